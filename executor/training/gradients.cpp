#include "executor/training/gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>

#include <utility>

namespace fsdp::executor {

namespace {

bool is_sole_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_non_overlapping_and_dense();
}

}  // namespace

void add_gradient_to(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (is_sole_owner(sum)) {
    sum.add_(gradient);
  } else {
    sum = sum + gradient;
  }
}

at::Tensor as_kept(at::Tensor gradient) {
  if (gradient.is_contiguous() && gradient.use_count() == 1) return gradient;
  return gradient.clone(at::MemoryFormat::Contiguous);
}

}  // namespace fsdp::executor
