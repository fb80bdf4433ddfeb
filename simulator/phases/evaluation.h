#pragma once

// A forward without gradients: of the trained model in an evaluation.

#include <memory>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/schedule.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// The model, its tapes and the numbers of its tensors, which follow those of a plan. Refers to itself: not copied.
class EvaluationForward {
 public:
  /// `model`: that of the plan, perhaps with another batch. REQUIRES: `training` outlives this.
  EvaluationForward(Model model, const PreparedPlan& training);
  EvaluationForward(const EvaluationForward&) = delete;
  EvaluationForward& operator=(const EvaluationForward&) = delete;

  const WalkInput& input() const { return input_; }
  /// The instructions of a forward: those of a step up to its first backward.
  const Schedule& schedule() const { return schedule_; }
  /// Units that the forward leaves unsharded.
  const std::vector<int>& left_unsharded() const { return left_unsharded_; }
  /// One past the last number of a tensor.
  int end_of_ids() const { return ids_.total; }
  /// [num_calls]
  const std::vector<const CallTimes*>& times() const { return times_; }

 private:
  Model model_;
  ModelIndex index_;
  TapeLibrary library_;
  std::vector<const Tape*> tapes_;       // [num_calls]
  std::vector<const CallTimes*> times_;  // [num_calls]
  MemoryIds ids_;
  Schedule schedule_;
  std::vector<int> left_unsharded_;
  WalkInput input_;
};

/// Why an evaluation of this plan is not predicted; empty if it is.
std::string why_no_evaluation(const Model& model, const Plan& plan);

}  // namespace fsdp::simulator
