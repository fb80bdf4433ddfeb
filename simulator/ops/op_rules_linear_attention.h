#pragma once

// Calls that the rules of linear attention and state spaces share.

#include <cstdint>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

/// Refuses what the rules of linear attention do not predict: activations in fp32 or fp16, and CPUs.
void refuse_other_than_bf16(KernelWriter& w);

/// rsqrt(x + number).
int inverse_root(KernelWriter& w, int x);

/// torch.matmul of tensors with more than three dimensions, [batches, rows, inner] x [batches, inner, columns]: views
/// around a batched product, so that autograd adds to no gradient in place.
int viewed_matmul(KernelWriter& w, int a, int b, std::int64_t batches, std::int64_t rows, std::int64_t inner,
                  std::int64_t columns);

/// x.to(fp32) in the order of its shape; the gradient comes in the dtype of x.
int wide_in_order(KernelWriter& w, int x);

/// x with zeros after each row, or a copy of it; `elements` afterwards.
int padded_rows(KernelWriter& w, int x, std::int64_t elements);

/// torch.cumsum: the backward flips the gradient, sums, and flips the sums.
int cumulated(KernelWriter& w, int x);

/// x.masked_fill(mask, number): the gradient is a masked copy.
int filled(KernelWriter& w, int x, int mask);

/// A mask of booleans that one call makes from another one of the same size.
int square_mask(KernelWriter& w, std::int64_t side);

}  // namespace fsdp::simulator
