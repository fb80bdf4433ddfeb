#pragma once

// SimpleFSDP on one rank: what each read of a parameter gathers, and what the gradient of that read becomes. When is
// the schedule's to say; how long a copy lives is autograd's. What each call allocates and frees is what the simulator
// says (simulator/ops/gathered_parameters.cpp).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "core/report/report.h"
#include "executor/network/collectives.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

class ParameterReads {
 public:
  /// `states` [num parameters] of the model, in its order. REQUIRES: `layout` is of SimpleFSDP; all references outlive
  /// it.
  ParameterReads(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
                 UnitGroups groups, CollectiveListener& listener);

  /// GatherParameters: the copy for a read that follows. In a backward it is made when the block that runs again comes
  /// to the read.
  void gather(const Schedule& schedule, const Instruction& step);
  /// The copy for the read at hand, in the shape of the parameter; of what is whole on each rank the parameter itself,
  /// or its cast. Throws ScheduleBroken where another read was to come.
  at::Tensor read(int parameter);

  /// The gradient of a read, which waits for its reduction.
  void add_gradient(int parameter, at::Tensor gradient);
  /// ParameterAccess::add_to_earlier. A single rank sums nothing, and takes each gradient as it comes.
  bool add_to_earlier(int parameter, const at::Tensor& gradient);
  /// ReduceBucket: the sum over all ranks of the gradient of one read, cut. Throws ScheduleBroken where it has not
  /// come.
  void reduce(int bucket);
  /// A backward is over. Throws ScheduleBroken where something was gathered or has come that nobody took.
  void finish();

 private:
  struct Copy {
    int parameter = -1;
    at::Tensor whole;  ///< Undefined: still to be made.
  };

  c10::ScalarType reduce_dtype_of(const ParameterState& state) const;
  at::Tensor copy_of(const ParameterState& state);
  at::Tensor reduced(const ParameterState& state, const at::Tensor& gradient);
  /// `category`: of what they return.
  at::Tensor summed(const at::Tensor& gradient, MemoryCategory category);
  at::Tensor scattered(const ParameterState& state, const at::Tensor& gradient, MemoryCategory category);
  void keep(int parameter, at::Tensor gradient);
  void told(CollectiveKind kind, const at::Tensor& whole, MeshDimension dimension, const Group& group);

  const Plan& plan_;
  const Layout& layout_;
  std::vector<ParameterState*> states_;
  UnitGroups groups_;
  CollectiveListener& listener_;
  std::vector<int> uses_;                            ///< [num parameters] Gradients that come in one backward.
  std::deque<Copy> copies_;                          ///< For the reads that come next, in order.
  std::vector<std::pair<int, at::Tensor>> arrived_;  ///< By parameter, in the order of the reads.
};

}  // namespace fsdp::executor
