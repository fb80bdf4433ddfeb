#pragma once

// The memory walk: expands each instruction of a schedule into allocations and frees, per stream, in the order in which
// the CPU issues them. memory_walk.cpp lists the allocations and frees of each instruction.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "simulator/memory/block_sums.h"
#include "simulator/memory/curve_sink.h"
#include "simulator/memory/memory_ids.h"
#include "simulator/memory/memory_sinks.h"
#include "simulator/memory/pool_sink.h"
#include "simulator/ops/muon_step.h"
#include "simulator/ops/reduction_scratch.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

struct OtherWalk;

/// The inputs of a walk. Refers to its parts.
struct WalkInput {
  const ModelIndex* index = nullptr;
  const Plan* plan = nullptr;
  const Layout* layout = nullptr;
  const Schedule* schedule = nullptr;
  const Schedule* first_schedule = nullptr;         ///< Schedule of the first step, if it differs,
  const Schedule* second_schedule = nullptr;        ///< and of the second one.
  const std::vector<const Tape*>* tapes = nullptr;  ///< [num_calls]
  const MemoryIds* ids = nullptr;
  Bytes cublas_workspace{8519680};
  /// True if a reduce-scatter receives the parts of all ranks in a buffer of its input's size, and frees it after their
  /// sum: fsdp-exec over Gloo (executor/network/collectives_gloo.cpp). NCCL has no such buffer.
  bool reduce_scatter_receives_parts = false;
  Dtype activation = Dtype::BFloat16;
  bool use_cache = true;  ///< True if attention caches keys and values in training.
  LaunchLimits limits;
  std::int64_t gpus_per_node = 1;
  const MuonStep* muon = nullptr;    ///< nullptr without Muon.
  const LayoutSums* sums = nullptr;  ///< Sums of an FSDP2 layout, for sinks that only count; otherwise nullptr.
  const std::vector<OtherWalk>* others = nullptr;  ///< [Plan::also] nullptr if there are none.
  int root = 0;               ///< For another model its number from 1 on: a root has streams of its own.
  bool shares_batch = false;  ///< The inputs are those of the trained model, which holds them.
};

/// Another model, and its forward without gradients in each micro-batch.
struct OtherWalk {
  WalkInput held;                    ///< The model as it is made.
  WalkInput forward;                 ///< Its tapes and ids, which follow those of `held`.
  const Schedule* first = nullptr;   ///< Its first forward, and
  const Schedule* steady = nullptr;  ///< every later one: a unit that the first leaves gathered is not gathered again.
  int result = -1;                   ///< The number of its log-probabilities, which live until the backward is over.
  std::int64_t result_bytes = 0;
};

/// Walks a run: initialization, then steps. Keeps the tensors that live between steps.
template <class Sink>
class MemoryWalk {
 public:
  MemoryWalk(const WalkInput& input, Sink& sink);
  ~MemoryWalk();

  void initialize();
  /// The first batch arrives before the step that uses it, and another model may run on it: the next step begins with
  /// the first forward of the trained model. Returns the number of actions that are done.
  int load_first_batch();
  /// Allocates the optimizer's states before the first step, so that the next step equals all later ones.
  void make_states();
  /// Returns early if the sink has enough; the walk is then over.
  void step();

  /// A forward without gradients beside the last step's batch, then the end of its results. `evaluation`: its model,
  /// tapes and ids, which follow those of this walk; `forward`: that of a step.
  void evaluate(const WalkInput& evaluation, const Schedule& forward);
  /// Frees the parameters of `units`, which a forward without a backward has left unsharded.
  void reshard(const std::vector<int>& units);
  /// Makes the tensors of each group, in bytes, and frees them before the next group. `ids`: numbers from there on.
  void visit(const std::vector<std::vector<std::int64_t>>& groups, int ids);
  /// The update by which a checkpoint's loader makes the states of a new optimizer: zeros as gradients, which are freed
  /// after it.
  void update_zeros();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

extern template class MemoryWalk<LiveSink>;
extern template class MemoryWalk<AllocatorSink>;
extern template class MemoryWalk<CurveSink>;
extern template class MemoryWalk<PeakSink>;
extern template class MemoryWalk<PoolSink>;
extern template class MemoryWalk<TraceSink>;

}  // namespace fsdp::simulator
