#pragma once

// One FSDP1 unit on one rank: its flat parameter, which is gathered and computed with through views, and its flat
// gradient. When each happens is the schedule's to say; what each call allocates and frees is what the simulator says
// (simulator/memory/memory_walk_flat_units.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan/sharding.h"
#include "executor/network/collectives.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

/// Where what a rank holds of a parameter begins in it, in elements. Where it holds nothing, somewhere in it.
std::int64_t first_element(const ShardedParameter& parameter, std::int64_t shard_rank);

class FlatUnit {
 public:
  /// Gives the original parameters of `states` their shards, which are views of a flat one of zeros. REQUIRES: the
  /// layout is of FSDP1; all references outlive it.
  FlatUnit(int index, const ShardedUnit& unit, const Layout& layout, RunningUnit& states, UnitGroups groups,
           CollectiveListener& listener);

  /// The flat parameter, with its gradient, as the optimizer sees it without use_orig_params.
  ParameterState& flat() { return flat_; }
  bool is_whole() const { return is_whole_; }

  /// Starts the all-gather of the flat parameter, in the dtype that is computed in. NO_SHARD: casts it, if at all.
  void unshard();
  void wait_for_unshard();
  void reshard();

  /// A gradient of an original parameter; several of one pass are added.
  void add_gradient(int parameter, at::Tensor gradient);
  /// The gradients of one pass become one flat gradient, which is added to those of other passes and micro-batches.
  void flatten();
  /// Without gradient sync: the flat gradient stays as it is.
  void accumulate();
  /// Averages the flat gradient over all ranks; the rank's part of it is added to `grad`, or is it.
  void reduce();
  /// The hook of the reduction returns: what it held goes.
  void end_reduction();

  /// Gradients are none. With use_orig_params their memory stays until the next forward begins.
  void zero_grad();
  void enter_forward();

 private:
  bool is_sharded() const { return layout_.mesh.shard > 1; }
  bool is_cast() const { return unit_.param_dtype != unit_.original_dtype; }
  bool has_views() const { return layout_.flat == FlatParameters::Views; }
  bool is_last_pass();
  at::Tensor cat_gradients();
  void add_up();
  void scatter(at::Tensor input);
  void reduce_whole(at::Tensor input);
  void sum_over(Group& group, MeshDimension dimension, const at::Tensor& tensor);
  void view_gradients();
  void drop_gradient();

  int index_;
  const ShardedUnit& unit_;
  const Layout& layout_;
  UnitGroups groups_;
  CollectiveListener& listener_;
  std::vector<ParameterState>& states_;
  ParameterState flat_;
  at::Tensor gathered_;  ///< [full elements] Emptied while the unit is sharded; undefined: the shard is computed with.
  std::unique_ptr<Pending> pending_;
  bool is_whole_ = false;
  at::Tensor unsharded_grad_;     ///< [true elements] Of this backward and of those before that were not reduced.
  at::Tensor added_;              ///< What is to be added to it at once, of several passes.
  at::Tensor last_pass_;          ///< Of several passes that were added one by one, until the hook returns.
  std::vector<at::Tensor> held_;  ///< By the hook of the reduction.
  at::Tensor sharded_grad_;       ///< `grad`, and what of it lives on behind zero_grad.
  bool is_earlier_ = false;       ///< `unsharded_grad_` is of a micro-batch that was not reduced.
  bool is_grad_ = false;          ///< NO_SHARD: it is `.grad`.
  bool is_zeroed_ = false;
  int passes_ = 0;  ///< Of this backward that have a flat gradient.
};

}  // namespace fsdp::executor
