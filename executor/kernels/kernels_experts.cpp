// Mixture of experts: each token goes where the router sends it. A prediction assumes that tokens spread evenly, so the
// memory of a run with experts depends on its data.
//
// Source: transformers 4.57 models/mixtral/modeling_mixtral.py (MixtralSparseMoeBlock).

#include <ATen/TensorOperators.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

Tensors router(const OpRun& run) {
  auto [weights, chosen] = at::topk(at::softmax(run.inputs[0], 1, c10::kFloat), run.attributes().experts_per_token, -1);
  if (run.attributes().norm_topk_prob) weights = weights / weights.sum(-1, /*keepdim=*/true);
  return {weights.to(run.inputs[0].scalar_type()), chosen};
}

Tensors experts(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const at::Tensor& weights = run.inputs[1];
  const std::int64_t num_experts = run.attributes().num_experts;
  at::Tensor result = at::zeros_like(x, at::TensorOptions().requires_grad(false));
  const at::Tensor mask = at::one_hot(run.inputs[2], num_experts).permute({2, 1, 0});
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const auto parameter = [&](std::int64_t which) { return run.parameters[3 * e + which]; };
    const Tensors hits = at::where(mask.select(0, e));
    const at::Tensor& slots = hits[0];
    const at::Tensor& rows = hits[1];
    at::Tensor current = at::index(x, {rows});
    // In Python's order of evaluation, which C++ leaves open.
    const at::Tensor gate = at::silu(at::linear(current, parameter(0)));
    const at::Tensor up = at::linear(current, parameter(1));
    current = at::linear(gate * up, parameter(2));
    current = current * at::index(weights, {rows, slots}).unsqueeze(-1);
    result = at::index_add(result, 0, rows, current.to(x.scalar_type()));
  }
  return {result};
}

}  // namespace fsdp::executor::kernels
