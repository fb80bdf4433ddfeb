// Views, copies and indexing, and tensors that are made in the forward.

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/stack.h>

#include <optional>

#include "executor/kernels/constants.h"
#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

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
  return run.inputs[0].chunk(static_cast<std::int64_t>(run.op.outputs.size()), run.attributes().dim);
}

Tensors contiguous(const OpRun& run) {
  // The model says that there is a copy; contiguous() would make none of a tensor that lies in order already.
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

// Half of what is missing in front, the rest behind, as convolutions with padding "same" do.
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
