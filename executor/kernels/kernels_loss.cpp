// Losses. Source: transformers loss/loss_utils.py (ForCausalLMLoss).

#include <ATen/core/Reduction.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>

#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

namespace {

constexpr std::int64_t kIgnoredLabel = -100;

}  // namespace

Tensors cross_entropy(const OpRun& run) {
  at::Tensor logits = run.inputs[0];
  at::Tensor labels = run.inputs[1];
  if (run.context.implementations.upcast_logits) logits = logits.to(c10::kFloat);
  if (run.attributes().shift) {
    labels = at::constant_pad_nd(labels, {0, 1}, kIgnoredLabel).narrow(-1, 1, labels.size(-1)).contiguous();
  }
  return {at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), labels.view(-1), {}, at::Reduction::Mean,
                                 kIgnoredLabel)};
}

Tensors mse_loss(const OpRun& run) {
  return {at::mse_loss(run.inputs[0], run.inputs[1])};
}

}  // namespace fsdp::executor::kernels
