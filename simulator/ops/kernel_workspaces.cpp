// CPU workspaces of a product's calls. With y = a b, and g the gradient of y, autograd's calls are
//
//   forward   a b, where b is usually a transposed weight [out, in], in column-major order;
//   of a      g b^T, so that a transposed operand is in order, and vice versa;
//   of b      a^T g; or, if b is transposed, g^T a, whose transpose is the gradient.
//
// We assume that operands are contiguous except for gaps between rows, as after linear layers.
//
// Sources: torch/csrc/autograd/FunctionsManual.cpp (mm_mat1_backward, mm_mat2_backward),
// tools/autograd/derivatives.yaml (bmm), torch 2.11.

#include "core/model/kernel_workspaces.h"

#include <algorithm>
#include <utility>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

KernelOperand matrix(std::int64_t batches, std::int64_t rows, std::int64_t columns, bool turned) {
  KernelOperand operand{.sizes = {rows, columns}, .strides = {}};
  if (turned) operand.strides = {1, rows};
  if (batches == 0) return operand;
  operand.sizes.insert(operand.sizes.begin(), batches);
  if (turned) operand.strides.insert(operand.strides.begin(), rows * columns);
  return operand;
}

}  // namespace

Workspace KernelWriter::workspace_of(const KernelCall& call, std::int64_t assumed) {
  if (!context_.is_cpu() || !takes_workspace(call)) return {};
  std::string text = text_of(call);
  auto& calls = program_.calls;
  const auto found = std::find(calls.begin(), calls.end(), text);
  const int index = static_cast<int>(found - calls.begin());
  if (found == calls.end()) calls.push_back(std::move(text));
  return {index, assumed};
}

void KernelWriter::note_product(Kernel& kernel, const Product& p) {
  kernel.product = {std::max<std::int64_t>(p.batches, 1), p.rows, p.columns, p.inner};
  kernel.left = p.left;
  if (!context_.is_cpu()) return;
  const Dtype dtype = slot(kernel.outputs.front()).dtype;
  const auto ask = [&](const std::string& name, const KernelOperand& a, const KernelOperand& b) {
    return workspace_of({.name = name, .dtype = dtype, .operands = {a, b}});
  };
  const std::string plain = p.batches > 0 ? "bmm" : "mm";
  const auto of = [&](std::int64_t rows, std::int64_t columns, bool turned) {
    return matrix(p.batches, rows, columns, turned);
  };
  kernel.forward_workspace = ask(p.name, of(p.rows, p.inner, false), of(p.inner, p.columns, p.turned));
  kernel.inputs[p.left].workspace = ask(plain, of(p.rows, p.columns, false), of(p.columns, p.inner, !p.turned));
  const bool asks_transposed = p.turned && p.batches == 0;
  kernel.inputs[p.right].workspace = asks_transposed
                                         ? ask(plain, of(p.columns, p.rows, true), of(p.rows, p.inner, false))
                                         : ask(plain, of(p.inner, p.rows, true), of(p.rows, p.columns, false));
}

void KernelWriter::note_attention(Kernel& kernel, KernelCall call) {
  if (!context_.is_cpu() || !takes_workspace(call)) return;
  std::int64_t forward = 0;
  for (const std::int64_t bytes : kernel.forward_temps) forward += bytes;
  kernel.forward_temps.clear();
  kernel.forward_workspace = workspace_of(call, forward);
  std::int64_t backward = 0;
  for (const BackwardTemp& temp : kernel.backward_temps) backward += temp.bytes;
  kernel.backward_temps.clear();
  call.name += "_backward";
  // The call makes all gradients, requested or not.
  kernel.backward_workspaces.assign(std::size_t{1} << kernel.inputs.size(), workspace_of(call, backward));
}

}  // namespace fsdp::simulator
