// The divided and the scaled loss take their bytes, and are not computed with: the gradient begins as 1 / N.
//
// Sources: deepspeed/runtime/engine.py (backward), deepspeed/runtime/zero/stage_1_and_2.py and stage3.py
// (unscale_and_clip_grads), runtime/utils.py (combine_grad_norm_groups), DeepSpeed 0.19.8.

#include "executor/training/zero_engine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/training/zero3_rank.h"
#include "executor/training/zero_rank.h"

namespace fsdp::executor {

ZeroEngine::ZeroEngine(const ModelIndex& index, const Plan& plan, const Layout& layout,
                       std::vector<ParameterState*> states, Group& group, CollectiveListener& listener)
    : index_(index), plan_(plan), layout_(layout), states_(std::move(states)), group_(group), listener_(listener) {
  gradients_ = std::make_unique<GradientBuffer>(
      index, plan, layout, states_,
      [this](const GradientBucket& bucket, const at::Tensor& filled) { reduce(bucket, filled); });
}

void ZeroEngine::begin_backward() {
  if (!losses_.empty()) return;
  const CategoryScope category(MemoryCategory::Temp);
  for (int i = 0; i < 2; ++i) losses_.push_back(at::zeros({}, c10::kFloat));
}

void ZeroEngine::told(CollectiveKind kind, const at::Tensor& whole) {
  listener_.called(-1, {kind, whole.scalar_type(), whole.numel(), static_cast<std::int64_t>(whole.nbytes()),
                        MeshDimension::Shard, group_.size()});
}

void ZeroEngine::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  told(CollectiveKind::AllReduce, tensor);
  group_.all_reduce(tensor, op)->wait();
}

bool ZeroEngine::run(const Instruction& step, const Schedule& /*schedule*/) {
  switch (step.kind) {
    case InstructionKind::PrepareReduce:
      return gradients_->prepare_reduce(), true;
    case InstructionKind::ReduceBucket:
      return gradients_->reduce(step.bucket), true;
    default:
      return false;
  }
}

LaterNumber ZeroEngine::combine_norms(const std::vector<at::Tensor>& of_groups) {
  norm_ = at::linalg_vector_norm(at::stack(of_groups), 2.0);
  is_left_out_ = !is_finite(norm_);
  return plan_.optimizer.clip_grad_norm ? LaterNumber(norm_) : LaterNumber();
}

void ZeroEngine::clip(const at::Tensor& gradient) const {
  if (!plan_.optimizer.clip_grad_norm) return;
  const at::Tensor above = ((norm_ + 1e-6) / *plan_.optimizer.clip_grad_norm).clamp_min(1.0);
  gradient.mul_(at::reciprocal(above));
}

bool is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  return std::isfinite(tensor.amax().item<double>()) && std::isfinite(tensor.amin().item<double>());
}

std::unique_ptr<ZeroEngine> make_zero_engine(const ModelIndex& index, const Plan& plan, const Layout& layout,
                                             std::vector<ParameterState*> states, Group& group,
                                             CollectiveListener& listener) {
  if (is_zero3(plan)) return std::make_unique<Zero3Rank>(index, plan, layout, std::move(states), group, listener);
  return std::make_unique<ZeroRank>(index, plan, layout, std::move(states), group, listener);
}

}  // namespace fsdp::executor
