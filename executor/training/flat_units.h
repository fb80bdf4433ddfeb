#pragma once

// FSDP1 on one rank: its units, and what of the schedule they do.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan/schedule.h"
#include "executor/training/flat_unit.h"
#include "executor/training/later_number.h"

namespace fsdp::executor {

class FlatUnits {
 public:
  /// REQUIRES: the layout is of FSDP1; all references outlive it.
  FlatUnits(const Layout& layout, std::vector<std::unique_ptr<RunningUnit>>& units, UnitGroups groups,
            CollectiveListener& listener);

  /// Does an instruction of FSDP1's units; false: it is of something else.
  bool run(const Instruction& step);
  /// A forward begins.
  void enter_forward();
  /// Every unit is sharded again.
  void reshard_all();

  FlatUnit& unit(int index) { return *units_[index]; }
  /// What the optimizer updates, in its order: flat parameters, or with use_orig_params what the rank holds of the
  /// original ones. `states`: the trained ones, in the order of the model.
  std::vector<ParameterState*> updated(const std::vector<ParameterState*>& states);
  /// clip_grad_norm_ of FullyShardedDataParallel; returns the norm. `trained` as from `updated`.
  LaterNumber clip(const std::vector<ParameterState*>& trained, double max_norm);

 private:
  std::vector<ParameterState*> in_order_of_handles();

  const Layout& layout_;
  std::vector<std::unique_ptr<RunningUnit>>& states_;
  UnitGroups groups_;
  CollectiveListener& listener_;
  std::vector<std::unique_ptr<FlatUnit>> units_;  ///< [num units]
  at::Tensor zero_;                               ///< [] The norm of a rank that has no gradients.
};

}  // namespace fsdp::executor
