#include "executor/memory/tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/from_blob.h>

namespace fsdp::executor {

c10::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float64:
      return c10::kDouble;
    case Dtype::Float32:
      return c10::kFloat;
    case Dtype::Float16:
      return c10::kHalf;
    case Dtype::BFloat16:
      return c10::kBFloat16;
    case Dtype::Int64:
      return c10::kLong;
    case Dtype::Int32:
      return c10::kInt;
    case Dtype::Int16:
      return c10::kShort;
    case Dtype::Int8:
      return c10::kChar;
    case Dtype::UInt8:
      return c10::kByte;
    case Dtype::Bool:
      return c10::kBool;
  }
  return c10::ScalarType::Undefined;
}

Dtype dtype_of(c10::ScalarType type) {
  for (int i = 0; i <= static_cast<int>(Dtype::Bool); ++i) {
    if (scalar_type(static_cast<Dtype>(i)) == type) return static_cast<Dtype>(i);
  }
  return Dtype::UInt8;
}

// Frees DataPtr by DataPtr, which works for any allocator; resize_bytes_cpu would copy the old bytes.
// torch/distributed/fsdp/_fully_shard/_fsdp_common.py does the same through untyped_storage().resize_.
void empty_storage(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->nbytes() == 0) return;
  storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
  storage->set_nbytes(0);
}

void fill_storage(const at::Tensor& tensor, std::int64_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(static_cast<std::size_t>(bytes)));
  storage->set_nbytes(static_cast<std::size_t>(bytes));
}

bool is_resident(const at::Tensor& tensor) {
  const auto needed = (static_cast<std::size_t>(tensor.storage_offset()) + static_cast<std::size_t>(tensor.numel())) *
                      tensor.element_size();
  return tensor.numel() == 0 || tensor.storage().nbytes() >= needed;
}

at::Tensor borrowed(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options());
}

void hand_over_storage(const at::Tensor& from, const at::Tensor& to_borrower) {
  c10::StorageImpl* storage = from.storage().unsafeGetStorageImpl();
  c10::StorageImpl* borrower = to_borrower.storage().unsafeGetStorageImpl();
  borrower->set_data_ptr_noswap(storage->set_data_ptr(storage->allocator()->allocate(0)));
  borrower->set_nbytes(storage->nbytes());
  storage->set_nbytes(0);
}

void refill(const at::Tensor& to, const at::Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView without_version_counter;
  to.copy_(from);
}

}  // namespace fsdp::executor
