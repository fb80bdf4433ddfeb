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

at::Tensor taken_over(const at::Tensor& gradient) {
  const bool is_alone = gradient.is_contiguous() && gradient.use_count() == 1;
  return is_alone ? gradient : gradient.clone(at::MemoryFormat::Contiguous);
}

std::vector<int> gradient_uses(const ModelIndex& index) {
  const Model& model = *index.model;
  std::vector<int> uses(model.parameters.size(), 0);
  for (std::size_t c = 0; c + 1 < index.call_begin.size(); ++c) {
    const Call& call = model.calls[c];
    const Block& block = model.blocks[call.block];
    for (std::size_t op = 0; op < block.ops.size(); ++op) {
      if (!index.in_backward[static_cast<std::size_t>(index.call_begin[c]) + op]) continue;
      for (const int local : block.ops[op].parameters) ++uses[call.parameters[local]];
    }
  }
  return uses;
}

}  // namespace fsdp::executor
