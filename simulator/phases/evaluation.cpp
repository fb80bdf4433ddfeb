// An evaluation runs the forward of a step in the order of the step: the same gathers, the same frees. It differs in
// its tapes. Nothing is saved for a backward, so a tensor lives until its last reader or the end of the variable that
// names it; dropout does nothing; checkpointed blocks run as plain ones (transformers checkpoints only in training). So
// the model of an evaluation is that of training with all parameters frozen and without dropout. The loss is computed
// as in training.
//
// The batch of the last step still exists, as in transformers' Trainer, whose loop evaluates while it holds it.
//
// A unit with reshard_after_forward=False, and the root, stay unsharded until the backward of the next step, or until a
// state dict is made, which reshards them.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_state.py (_post_forward), _fully_shard.py (state dict hooks:
// _to_sharded), torch 2.11; transformers 5.24, trainer.py (_inner_training_loop, evaluation_loop).
//
// Not modeled: logits that a Trainer keeps on the GPU for compute_metrics (eval_accumulation_steps bounds them);
// torch.inference_mode; batch norm's evaluation, which saves no statistics.

#include "simulator/phases/evaluation.h"

#include <algorithm>
#include <utility>

#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"

namespace fsdp::simulator {

namespace {

Model without_training(Model model, const Plan& plan) {
  for (Parameter& parameter : model.parameters) {
    if (parameter.trainable && plan.parameter_dtype) parameter.dtype = *plan.parameter_dtype;
    parameter.trainable = false;
  }
  for (Block& block : model.blocks) {
    for (Op& op : block.ops) {
      if (op.kind == OpKind::Dropout || op.kind == OpKind::Attention) op.attributes.probability = 0;
    }
  }
  derive_gradient_flow(model);
  return model;
}

Schedule forward_of(const Schedule& step) {
  Schedule forward;
  const std::vector<Instruction>& all = step.instructions;
  for (std::size_t begin = 0; begin < all.size();) {
    const Action action = action_at(all, begin);
    if (all[action.main].phase != StepPhase::Forward) break;
    begin = action.end;
    // Reductions come with a backward only.
    if (all[action.main].kind == InstructionKind::PrepareReduce) continue;
    forward.instructions.insert(forward.instructions.end(), all.begin() + static_cast<std::ptrdiff_t>(action.begin),
                                all.begin() + static_cast<std::ptrdiff_t>(action.end));
  }
  return forward;
}

std::vector<int> left_unsharded_by(const Schedule& forward) {
  std::vector<int> left;
  for (const Instruction& step : forward.instructions) {
    if (step.kind == InstructionKind::WaitForUnshard) left.push_back(step.unit);
    if (step.kind == InstructionKind::Reshard) std::erase(left, step.unit);
  }
  return left;
}

}  // namespace

EvaluationForward::EvaluationForward(Model model, const PreparedPlan& training)
    : model_(without_training(std::move(model), training.plan)),
      index_(index_of(model_)),
      library_(index_),
      schedule_(forward_of(training.schedule)),
      left_unsharded_(left_unsharded_by(schedule_)) {
  Plan plan = training.plan;
  plan.checkpointing.entries.clear();
  TapeSettings settings = tape_settings(model_, plan, *training.cluster, training.layout.rank);
  // What it computes in follows from the dtypes before they were frozen.
  settings.rules.activation = training.activation;
  std::vector<int> num_storages;
  for (int call = 0; call < static_cast<int>(model_.calls.size()); ++call) {
    const TimedTape& timed = library_.tape(settings, call, CheckpointMode::None);
    tapes_.push_back(&timed.tape);
    times_.push_back(&timed.times);
    num_storages.push_back(tapes_.back()->num_storages);
  }
  ids_ = number_tensors(model_, training.plan, training.layout, num_storages, training.ids.total);
  input_ = training.walk_input();
  input_.index = &index_;
  input_.schedule = &schedule_;
  input_.tapes = &tapes_;
  input_.ids = &ids_;
  input_.use_cache = settings.rules.implementations.use_cache;
}

std::string why_no_evaluation(const Model& model, const Plan& plan) {
  if (has_passes(model)) return "a step of several models";
  if (is_captured(model)) return "a captured model: rehearse its script";
  if (traits_of(plan).zero_stage > 0 || traits_of(plan).gathers_each_read) return "not predicted for this framework";
  if (loss_row(plan.runtime.implementations.loss).calls_head) return "a loss that calls the head";
  if (plan.packing || plan.runtime.implementations.padding_mask) return "rows of documents, or of different lengths";
  if (plan.mixed_precision.autocast) return "a forward under autocast";
  if (plan.mesh.ep > 1) return "experts that ranks share";
  return "";
}

}  // namespace fsdp::simulator
