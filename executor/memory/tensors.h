#pragma once

// Conversions between our dtypes and shapes and ATen's, and storages whose bytes come and go.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "core/base/dtype.h"
#include "core/model/model.h"

namespace fsdp::executor {

/// PyTorch's dtype.
c10::ScalarType scalar_type(Dtype dtype);

/// Our dtype; bytes for a dtype without a name of ours.
Dtype dtype_of(c10::ScalarType type);

/// Frees the bytes of a tensor's storage. The tensor, its views and autograd's saved tensors stay, and see the bytes
/// again after `fill_storage`.
void empty_storage(const at::Tensor& tensor);

/// Gives a storage that was emptied `bytes` of memory, uninitialized.
void fill_storage(const at::Tensor& tensor, std::int64_t bytes);

/// Whether the storage holds all bytes that the tensor shows.
bool is_resident(const at::Tensor& tensor);

/// The same bytes, which stay those of `tensor`. REQUIRES: nobody reads it once they have gone, unless they were handed
/// over.
at::Tensor borrowed(const at::Tensor& tensor);

/// Empties the storage of a tensor whose bytes were borrowed: they go with the last tensor of the borrower's storage.
void hand_over_storage(const at::Tensor& from, const at::Tensor& to_borrower);

/// Copies into a parameter that autograd has saved, whose version must not change: it holds the same values as before.
void refill(const at::Tensor& to, const at::Tensor& from);

}  // namespace fsdp::executor
