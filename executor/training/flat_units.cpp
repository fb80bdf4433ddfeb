// Norms are of what a rank holds of each gradient, in fp32 and in the order of the modules: flat gradients, or with
// use_orig_params its parts of the original ones. Ranks add up the squares. What every rank has whole is clipped as in
// a model that nobody wraps.
//
// Source: torch/distributed/fsdp/fully_sharded_data_parallel.py (clip_grad_norm_, _get_grad_norm), torch 2.11.

#include "executor/training/flat_units.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "core/plan/unit_boundaries.h"
#include "executor/training/optimizer.h"

namespace fsdp::executor {

FlatUnits::FlatUnits(const Layout& layout, std::vector<std::unique_ptr<RunningUnit>>& units, UnitGroups groups,
                     CollectiveListener& listener)
    : layout_(layout), states_(units), groups_(groups), listener_(listener) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    units_.push_back(
        std::make_unique<FlatUnit>(static_cast<int>(u), layout.units[u], layout, *units[u], groups, listener));
  }
}

bool FlatUnits::run(const Instruction& step) {
  switch (step.kind) {
    case InstructionKind::Unshard:
      return units_[step.unit]->unshard(), true;
    case InstructionKind::WaitForUnshard:
      return units_[step.unit]->wait_for_unshard(), true;
    case InstructionKind::Reshard:
      return units_[step.unit]->reshard(), true;
    case InstructionKind::LimitGathers:
      return true;  // Without streams the host is never ahead.
    case InstructionKind::FlattenGrads:
      return units_[step.unit]->flatten(), true;
    case InstructionKind::AccumulateGrads:
      return units_[step.unit]->accumulate(), true;
    case InstructionKind::ReduceGrads:
      return units_[step.unit]->reduce(), true;
    case InstructionKind::Free:
      return units_[step.unit]->end_reduction(), true;
    case InstructionKind::ZeroGrad:
      for (auto& unit : units_) unit->zero_grad();
      return true;
    default:
      return false;
  }
}

void FlatUnits::enter_forward() {
  for (auto& unit : units_) unit->enter_forward();
}

void FlatUnits::reshard_all() {
  for (auto& unit : units_) unit->reshard();
}

std::vector<ParameterState*> FlatUnits::updated(const std::vector<ParameterState*>& states) {
  if (layout_.flat == FlatParameters::Views) return states;
  return in_order_of_handles();
}

std::vector<ParameterState*> FlatUnits::in_order_of_handles() {
  std::vector<ParameterState*> found;
  for (const int u : units_in_module_order(layout_)) {
    std::vector<ParameterState>& originals = states_[u]->parameters();
    if (originals.empty() || !originals.front().parameter->trainable) continue;
    if (layout_.flat == FlatParameters::Whole) {
      found.push_back(&units_[u]->flat());
      continue;
    }
    for (ParameterState& state : originals) found.push_back(&state);
  }
  return found;
}

LaterNumber FlatUnits::clip(const std::vector<ParameterState*>& trained, double max_norm) {
  const c10::AutoGradMode no_gradient(false);
  if (!zero_.defined()) zero_ = at::zeros({}, c10::kFloat);
  if (layout_.mesh.shard == 1) return clip_gradients(trained, max_norm, *groups_.shard, listener_);
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> norms;
  for (const ParameterState* state : in_order_of_handles()) {
    if (!state->grad.defined()) continue;
    gradients.push_back(state->grad);
    norms.push_back(at::linalg_vector_norm(state->grad, 2.0, std::nullopt, false, c10::kFloat));
  }
  at::Tensor local = zero_;
  if (!norms.empty()) local = at::linalg_vector_norm(at::stack(norms), 2.0, std::nullopt, false, c10::kFloat);
  norms.clear();
  const at::Tensor squares = local.pow(2.0);
  listener_.called(-1, {CollectiveKind::AllReduce, squares.scalar_type(), squares.numel(),
                        static_cast<std::int64_t>(squares.nbytes()), MeshDimension::Shard, groups_.shard->size()});
  groups_.shard->all_reduce(squares, ReduceOp::Sum)->wait();
  const at::Tensor total = squares.pow(1.0 / 2.0);
  // Python divides a number by a tensor as the product with its reciprocal.
  const at::Tensor factor = (at::reciprocal(total + 1e-6) * max_norm).clamp_max(1.0);
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor.to(gradient.scalar_type()));
  return LaterNumber(gradients.empty() ? total : total.to(gradients.front().scalar_type()));
}

}  // namespace fsdp::executor
