// Elementwise functions and reductions; views, copies and indexing; and tensors that the forward makes.

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cmath>
#include <numbers>
#include <optional>

#include "executor/kernels/constants.h"
#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

Tensors silu(const OpRun& run) {
  return {at::silu(run.inputs[0])};
}

Tensors gelu(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  if (run.attributes().written_out) {  // NewGELUActivation of transformers.
    // In Python's order of evaluation, which C++ leaves open and in which the gradients of x are summed.
    const double factor = std::sqrt(2.0 / std::numbers::pi);
    const at::Tensor half = 0.5 * x;
    at::Tensor inner = at::pow(x, 3.0);
    inner = 0.044715 * inner;
    inner = x + inner;
    inner = factor * inner;
    inner = at::tanh(inner);
    inner = 1.0 + inner;
    return {half * inner};
  }
  return {at::gelu(x, run.attributes().approximate ? "tanh" : "none")};
}

Tensors relu(const OpRun& run) {
  const at::Tensor y = at::relu(run.inputs[0]);
  return {run.attributes().written_out ? y.square() : y};  // ReLUSquaredActivation of transformers.
}

Tensors sigmoid(const OpRun& run) {
  return {at::sigmoid(run.inputs[0])};
}

Tensors tanh(const OpRun& run) {
  return {at::tanh(run.inputs[0])};
}

Tensors mul(const OpRun& run) {
  return {run.inputs[0] * run.inputs[1]};
}

Tensors add(const OpRun& run) {
  if (run.attributes().in_place) return {run.inputs[0].add_(run.inputs[1])};
  return {run.inputs[0] + run.inputs[1]};
}

Tensors sub(const OpRun& run) {
  return {run.inputs[0] - run.inputs[1]};
}

namespace {

double rounded_to(c10::ScalarType dtype, double number) {
  if (dtype == c10::kHalf) return static_cast<double>(c10::Half(static_cast<float>(number)));
  if (dtype == c10::kBFloat16) return static_cast<double>(c10::BFloat16(static_cast<float>(number)));
  if (dtype == c10::kDouble) return number;
  return static_cast<double>(static_cast<float>(number));
}

}  // namespace

Tensors scale(const OpRun& run) {
  const double factor = run.attributes().scale;
  return {run.inputs[0] * (run.attributes().rounded ? rounded_to(run.inputs[0].scalar_type(), factor) : factor)};
}

Tensors softcap(const OpRun& run) {
  const double cap = run.attributes().softcap;
  at::Tensor y = run.inputs[0] / cap;
  y = at::tanh(y);
  return {y * cap};
}

Tensors dropout(const OpRun& run) {
  if (run.attributes().probability == 0) return {run.inputs[0]};
  return {at::dropout(run.inputs[0], run.attributes().probability, /*train=*/true)};
}

Tensors cast(const OpRun& run) {
  return {run.inputs[0].to(run.dtype_or_activation())};
}

Tensors softmax(const OpRun& run) {
  return {at::softmax(run.inputs[0], run.attributes().dim)};
}

Tensors mean(const OpRun& run) {
  return {run.inputs[0].mean(run.attributes().dim, run.attributes().keep_dim)};
}

Tensors sum(const OpRun& run) {
  return {run.inputs[0].sum(run.attributes().dim, run.attributes().keep_dim)};
}

// From ECAPA-TDNN's attentive statistics: weighted, with a floor below the root.
Tensors std_deviation(const OpRun& run) {
  const std::int64_t dim = run.attributes().dim;
  const bool keep = run.attributes().keep_dim;
  at::Tensor squares = (run.inputs[0] - run.inputs[1]).pow(2);
  if (run.inputs.size() > 2) squares = run.inputs[2] * squares;
  at::Tensor sums = squares.sum(dim, keep);
  squares = at::Tensor();  // Freed here like PyTorch's temporary.
  return {at::sqrt(sums.clamp(run.attributes().eps))};
}

Tensors detach(const OpRun& run) {
  return {run.inputs[0].detach()};
}

Tensors reshape(const OpRun& run) {
  return {run.inputs[0].reshape(run.output_shape())};
}

Tensors transpose(const OpRun& run) {
  return {run.inputs[0].transpose(run.attributes().dim, run.attributes().other_dim)};
}

Tensors slice(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {run.inputs[0].narrow(a.dim, a.start, a.length)};
}

Tensors select(const OpRun& run) {
  return {run.inputs[0].select(run.attributes().dim, run.attributes().start)};
}

Tensors expand(const OpRun& run) {
  return {run.inputs[0].expand(run.output_shape())};
}

Tensors split(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  const at::Tensor& x = run.inputs[0];
  if (!a.lengths.empty()) return x.split_with_sizes(a.lengths, a.dim);
  if (a.length > 0) return x.split_with_sizes({a.length, x.size(a.dim) - a.length}, a.dim);
  return x.chunk(static_cast<std::int64_t>(run.op.outputs.size()), a.dim);
}

Tensors contiguous(const OpRun& run) {
  // The model has a copy here; contiguous() would not copy a tensor that is contiguous already.
  return {run.inputs[0].clone(at::MemoryFormat::Contiguous)};
}

Tensors cat(const OpRun& run) {
  return {at::cat(run.inputs, run.attributes().dim)};
}

Tensors stack(const OpRun& run) {
  return {at::stack(run.inputs, run.attributes().dim)};
}

Tensors set_slice(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  const at::Tensor& x = run.inputs[0];
  const at::Tensor& part = run.inputs[1];
  x.narrow(a.dim, a.start, part.size(a.dim)).copy_(part);
  return {x};
}

Tensors index(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const std::int64_t dim = (run.attributes().dim + x.dim()) % x.dim();
  c10::List<std::optional<at::Tensor>> indices;
  for (std::int64_t i = 0; i < dim; ++i) indices.push_back(std::nullopt);
  indices.push_back(run.inputs[1]);
  return {at::index(x, indices)};
}

// Half of the padding before the data, the rest after it, as convolutions with padding "same" do.
Tensors pad(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const std::int64_t dim = (run.attributes().dim + x.dim()) % x.dim();
  const std::int64_t missing = run.attributes().length - x.size(dim);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(2 * (x.dim() - 1 - dim)), 0);
  sizes.push_back(missing / 2);
  sizes.push_back(missing - missing / 2);
  return {at::pad(x, sizes, run.attributes().reflect ? "reflect" : "constant")};
}

Tensors constant(const OpRun& run) {
  return {make_constant(run.attributes(), run.output_shape(), run.dtype_or_activation(), run.context.device)};
}

}  // namespace fsdp::executor::kernels
