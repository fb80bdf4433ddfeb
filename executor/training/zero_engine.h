#pragma once

// What DeepSpeed's ZeRO does on one rank, whatever its stage: zero_rank.h has ZeRO-1 and 2, zero3_rank.h ZeRO-3. When
// each thing happens is the schedule's to say.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "executor/network/collectives.h"
#include "executor/training/gradient_buffer.h"
#include "executor/training/later_number.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

class ZeroEngine {
 public:
  virtual ~ZeroEngine() = default;

  /// What the optimizer updates, with its gradient.
  virtual std::vector<ParameterState*> updated() = 0;
  /// Where the moments of what a rank has of a trained parameter are: in which of `updated`, and from which element on.
  struct Place {
    std::size_t index = 0;
    std::int64_t begin = 0;
  };
  virtual Place place_of(const ParameterState& state) const = 0;

  /// What is computed with becomes what the optimizer has, in front of the first forward. Without `has_trained` the
  /// optimizer's copy is first rounded to it, from which DeepSpeed makes it.
  virtual void begin_forward(bool has_trained) = 0;
  /// Forwards come without backwards, of a schedule that is not of the first step.
  virtual void begin_evaluation() {}
  /// One of them is over.
  virtual void end_evaluation() {}
  /// Called before each part of a backward.
  void begin_backward();
  virtual void finish_backward() = 0;
  GradientBuffer& gradients() { return *gradients_; }

  /// Does an instruction of ZeRO; false: it is of something else. `schedule`: of which it is, and `step` lies in it.
  virtual bool run(const Instruction& step, const Schedule& schedule);
  /// What an op computes with. REQUIRES: it is there.
  virtual at::Tensor read(int parameter) { return states_[parameter]->whole; }
  /// A checkpointed block that runs again has come to an op: what the schedule has in front of it is done.
  virtual void rerun_comes_to(int /*op*/) {}
  /// It has run: what is left of it is done.
  virtual void has_run_again() {}
  /// The norm of all gradients, which DeepSpeed takes whether it clips or not.
  virtual LaterNumber take_norm() = 0;
  /// Gives each of `updated` its gradient, and calls `step`, which updates what has one. Not where a gradient is not
  /// finite: such a step is left out.
  virtual void update(const std::function<void()>& step) = 0;

 protected:
  /// REQUIRES: all references outlive it.
  ZeroEngine(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
             Group& group, CollectiveListener& listener);

  const ZeroBuffer& buffer() const { return layout_.zero; }
  void told(CollectiveKind kind, const at::Tensor& whole);
  void all_reduce(const at::Tensor& tensor, ReduceOp op);
  /// The norm of all, from those of groups of parameters. Where it is not finite the step is left out.
  LaterNumber combine_norms(const std::vector<at::Tensor>& of_groups);
  /// By that norm. Without clipping: as it is.
  void clip(const at::Tensor& gradient) const;
  virtual void reduce(const GradientBucket& bucket, const at::Tensor& filled) = 0;

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  std::vector<ParameterState*> states_;  // [num parameters]
  Group& group_;
  CollectiveListener& listener_;
  std::unique_ptr<GradientBuffer> gradients_;
  std::vector<at::Tensor> losses_;  // What DeepSpeed makes of the loss, during the backward.
  at::Tensor norm_;                 // []
  bool is_left_out_ = false;        // The step: a gradient is not finite.
};

/// Neither infinite nor NaN, any of it.
bool is_finite(const at::Tensor& tensor);

/// That of the plan. `states` [num parameters].
std::unique_ptr<ZeroEngine> make_zero_engine(const ModelIndex& index, const Plan& plan, const Layout& layout,
                                             std::vector<ParameterState*> states, Group& group,
                                             CollectiveListener& listener);

}  // namespace fsdp::executor
