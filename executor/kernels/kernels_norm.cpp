// Normalization.
//
// Sources: transformers models/llama and gemma2 /modeling_*.py (the order of the calls), aten/src/ATen/native/
// layer_norm.cpp (rms_norm_composite of PyTorch before 2.9).

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>

#include <optional>

#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

namespace {

std::optional<at::Tensor> parameter_at(const OpRun& run, std::size_t index) {
  if (run.parameters.size() <= index) return std::nullopt;
  return run.parameters[index];
}

}  // namespace

Tensors rms_norm(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const auto weight = parameter_at(run, 0);
  const RmsNormImplementation which = run.context.implementations.rms_norm;
  const bool unit_offset = run.attributes().unit_offset;
  const double eps = run.attributes().eps;
  if (which == RmsNormImplementation::Fused && !unit_offset) {
    return {at::rms_norm(x, {x.size(-1)}, weight, eps)};
  }
  at::Tensor wide = x.to(c10::kFloat);
  // A statement each: a temporary of C++ would live to the end of the whole expression.
  at::Tensor variance = wide.pow(2);
  variance = variance.mean(-1, /*keepdim=*/true);
  variance = variance + eps;
  variance = at::rsqrt(variance);
  const at::Tensor y = wide * variance;
  variance.reset();
  wide.reset();
  if (!weight) return {y.to(x.scalar_type())};
  if (unit_offset) return {(y * (1.0 + weight->to(c10::kFloat))).to(x.scalar_type())};
  if (which == RmsNormImplementation::WrittenOut) return {*weight * y.to(x.scalar_type())};
  return {(y * *weight).to(x.scalar_type())};
}

Tensors layer_norm(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  return {at::layer_norm(x, {x.size(-1)}, parameter_at(run, 0), parameter_at(run, 1), run.attributes().eps)};
}

Tensors group_norm(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {at::group_norm(run.inputs[0], a.groups, parameter_at(run, 0), parameter_at(run, 1), a.eps)};
}

Tensors batch_norm(const OpRun& run) {
  const auto buffer = [&](const char* name) { return run.context.buffers.at(run.module_name() + "." + name); };
  buffer("num_batches_tracked").add_(1);
  return {at::batch_norm(run.inputs[0], parameter_at(run, 0), parameter_at(run, 1), buffer("running_mean"),
                         buffer("running_var"), /*training=*/true, run.attributes().momentum, run.attributes().eps,
                         /*cudnn_enabled=*/false)};
}

}  // namespace fsdp::executor::kernels
