#pragma once

// Conversions between our dtypes and shapes and ATen's, and storages that are freed and refilled.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "core/base/dtype.h"
#include "core/model/model.h"

namespace fsdp::executor {

/// PyTorch's dtype.
c10::ScalarType scalar_type(Dtype dtype);

/// Our dtype. Defaults to bytes if we have no name for it.
Dtype dtype_of(c10::ScalarType type);

/// Frees the bytes of a tensor's storage. The tensor, its views and autograd's saved tensors remain, and see the bytes
/// again after `fill_storage`.
void empty_storage(const at::Tensor& tensor);

/// Gives an emptied storage `bytes` of uninitialized memory.
void fill_storage(const at::Tensor& tensor, std::int64_t bytes);

/// Whether the storage has all bytes of the tensor.
bool is_resident(const at::Tensor& tensor);

/// The same bytes, which still belong to `tensor`. REQUIRES: nobody reads it after they are freed, unless they were
/// handed over.
at::Tensor borrowed(const at::Tensor& tensor);

/// Empties the storage of a tensor whose bytes were borrowed: the last tensor of the borrower's storage frees them.
void hand_over_storage(const at::Tensor& from, const at::Tensor& to_borrower);

/// Copies into a parameter that autograd has saved. Its version must not change, because its values are the same as
/// before.
void refill(const at::Tensor& to, const at::Tensor& from);

}  // namespace fsdp::executor
