#pragma once

// The optimizers of a plan over the sharded parameters, in the order of operations of torch.optim, so that equal
// gradients give equal bits.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/plan/plan.h"
#include "core/spec/hyperparameters.h"
#include "executor/training/later_number.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

/// The moments of one parameter; undefined until its first step.
struct Moments {
  at::Tensor first;   ///< exp_avg, or SGD's momentum buffer.
  at::Tensor second;  ///< exp_avg_sq.
  std::int64_t step = 0;
  at::Tensor step_on_device;  ///< The same, if the fused implementation counts it. [] fp32
};

class RunningOptimizer {
 public:
  /// `parameters` in the order in which the model registers them; the optimizer updates the trainable ones.
  /// `is_decayed` [num parameters]: whether weight decay applies.
  RunningOptimizer(const Optimizer& plan, const Hyperparameters& settings, std::vector<ParameterState*> parameters,
                   std::vector<bool> is_decayed);

  /// One step for every parameter that has a gradient.
  void step(double learning_rate);
  /// One for each parameter, in the order of `parameters`.
  std::vector<Moments>& moments() { return moments_; }
  /// Makes the moments of Adam for one parameter, all zero, as its first step does. [index in the order of
  /// `parameters`]
  void make_moments(std::size_t index);

 private:
  struct Group;
  /// [OptimizerImplementation] The update of a group.
  using Kernels = std::array<void (RunningOptimizer::*)(const Group&), 3>;
  static const Kernels& kernels_of(OptimizerKind kind);

  void adam(const Group& group);
  void adam_one_by_one(const Group& group);
  void adam_fused(const Group& group);
  at::Tensor with_momentum(std::size_t index, const at::Tensor& gradient);
  void sgd_one_by_one(const Group& group);
  void sgd(const Group& group);
  std::vector<Group> groups();

  bool is_decayed(const Group& group, std::size_t member) const;
  std::vector<at::Tensor> with_decay(const Group& group) const;

  Optimizer plan_;  ///< With the weight decay of the settings, if they have one.
  Hyperparameters settings_;
  double rate_ = 0;  ///< The current step's learning rate.
  std::vector<ParameterState*> parameters_;
  std::vector<bool> is_decayed_;
  std::vector<Moments> moments_;
};

/// torch.nn.utils.clip_grad_norm_ over all sharded gradients; returns their norm. The norms of the parameters are
/// reduced over the shard group, one element for each, as DTensor does it. Calls `listener` for the collectives.
LaterNumber clip_gradients(const std::vector<ParameterState*>& parameters, double max_norm, Group& shard,
                           CollectiveListener& listener);

}  // namespace fsdp::executor
