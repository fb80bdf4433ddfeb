// Linear layers, embeddings, convolutions, pooling, and parameters that are read as they are.

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mm.h>

#include <optional>

#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

namespace {

std::optional<at::Tensor> bias_of(const OpRun& run) {
  if (run.parameters.size() < 2) return std::nullopt;
  return run.parameters[1];
}

}  // namespace

Tensors linear(const OpRun& run) {
  const at::Tensor& weight = run.parameters[0];
  const auto bias = bias_of(run);
  if (!run.attributes().transposed_weight) return {at::linear(run.inputs[0], weight, bias)};
  // Conv1D of transformers (pytorch_utils.py): the weight lies [in, out].
  const at::Tensor x = run.inputs[0].view({-1, run.inputs[0].size(-1)});
  const at::Tensor y = bias ? at::addmm(*bias, x, weight) : at::mm(x, weight);
  return {y.view(run.output_shape())};
}

Tensors embedding(const OpRun& run) {
  return {at::embedding(run.parameters[0], run.inputs[0], run.attributes().padding_idx)};
}

Tensors conv1d(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {at::conv1d(run.inputs[0], run.parameters[0], bias_of(run), a.stride, a.padding, a.dilation, a.groups)};
}

Tensors conv2d(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {at::conv2d(run.inputs[0], run.parameters[0], bias_of(run), a.stride, a.padding, a.dilation, a.groups)};
}

Tensors parameter(const OpRun& run) {
  return {run.parameters[0]};
}

Tensors max_pool2d(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {at::max_pool2d(run.inputs[0], a.kernel, a.stride, a.padding, a.dilation)};
}

Tensors adaptive_avg_pool2d(const OpRun& run) {
  const std::int64_t length = run.attributes().length;
  return {at::adaptive_avg_pool2d(run.inputs[0], {length, length})};
}

}  // namespace fsdp::executor::kernels
