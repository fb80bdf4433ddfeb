#pragma once

// One plan on its way through the simulator: lowered, its tapes and durations looked up. Shared by the short answer
// (predictor.cpp) and the whole report (report_builder.cpp).

#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/frameworks/layout.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "core/report/report.h"
#include "simulator/allocator/caching_allocator.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/prepared/prepared_others.h"
#include "simulator/time/plan_times.h"
#include "simulator/time/tape_library.h"
#include "simulator/time/timeline.h"

namespace fsdp::simulator {

/// Steps to walk: the first, the steady one, and one more, because the block that a request gets depends on the step
/// before.
inline constexpr int kNumSteps = 3;

/// The maximum number of micro-batches to walk: the first makes the sharded gradients, the second adds to them, the
/// last may be the one that reduces. The omitted ones repeat the second.
inline constexpr std::int64_t kNumMicroBatches = 3;

/// The same for a bound: one that makes gradients, and one that adds to them and reduces. At the start of backward,
/// when most tensors are alive, the last one holds as much as any between.
inline constexpr std::int64_t kNumBoundMicroBatches = 2;

struct PreparedPlan {
  const ModelIndex* index = nullptr;
  const Cluster* cluster = nullptr;
  Plan plan;
  std::optional<Plan> walked;  ///< The plan for the memory walk. nullopt if it is the same.
  Layout layout;
  Schedule schedule;
  Dtype activation = Dtype::BFloat16;
  bool use_cache = false;  ///< True if the plan caches keys and values, and no checkpointing turns that off.
  ComputeCosts costs;
  std::vector<const Tape*> tapes;         ///< [num_calls]
  std::vector<const CallTimes*> times;    ///< [num_calls]
  std::vector<UnitTimes> unit_times;      ///< The result of unit_times().
  std::vector<BucketTimes> bucket_times;  ///< [Layout::buckets]
  std::vector<FetchTimes> fetch_times;    ///< [groups of the schedule]
  std::vector<Seconds> on_host;           ///< [num instructions] TimelineInput::on_host. Empty if that is null.
  const MuonStep* muon = nullptr;         ///< For a plan that uses it.
  MemoryIds ids;
  std::vector<std::string> unmeasured;     ///< Calls of a CPU whose time we assume.
  const PreparedOthers* others = nullptr;  ///< Models beside the trained one. nullptr if there are none.

  Schedule first_schedule;         ///< For the first step, and
  Schedule second_schedule;        ///< for the second one; Empty if it is like all others.
  Schedule short_schedule;         ///< With at most `kNumMicroBatches`. Empty if `schedule` has no more.
  Schedule short_first_schedule;   ///< The first and
  Schedule short_second_schedule;  ///< the second step of the short ones.

  WalkInput walk_input() const;
  /// With the short schedule: the same peaks with less work.
  WalkInput short_walk_input() const;
  TimelineResult timeline(const MeshCosts& mesh, TimelineDetail* detail = nullptr) const;
  /// The same for the first step. nullopt if it is like all others.
  std::optional<TimelineDetail> first_step_timeline(const MeshCosts& mesh) const;

 private:
  TimelineInput timeline_input(const MeshCosts& mesh) const;
};

/// The inputs of a plan's tapes.
/// `rank`: in the shard group.
TapeSettings tape_settings(const Model& model, const Plan& plan, const Cluster& cluster, std::int64_t rank = 0);

enum class PreparedFor {
  Everything,
  Times,  ///< The timeline only: no tensor ids and no short schedule.
  Walk,   ///< The walk only: no times, and at most `kNumMicroBatches` in the plan itself.
  Bound,  ///< A walk for a lower bound: at most `kNumBoundMicroBatches`.
};

/// `rank` is that in the shard group: shards and optimizer states differ if rows do not divide. Errors: those of
/// make_layout; an attention backend that PyTorch refuses to run here.
Result<PreparedPlan> prepare(const ModelIndex& index, const Cluster& cluster, const Plan& plan, const MeshCosts& mesh,
                             TapeLibrary& library, std::int64_t rank = 0, PreparedFor use = PreparedFor::Everything);

/// The same with a given layout, and the other models of the plan. REQUIRES: both are those of the plan.
Result<PreparedPlan> prepare(const ModelIndex& index, const Cluster& cluster, Plan plan, Layout layout,
                             const MeshCosts& mesh, TapeLibrary& library, PreparedFor use,
                             const PreparedOthers* others = nullptr);

/// The same plan, seen from another rank of the shard group.
void see_from(PreparedPlan& prepared, std::int64_t rank, TapeLibrary& library);

struct MemoryPrediction {
  MemoryPeaks peaks;
  std::vector<PhasePeaks> phases;
  Bytes margin;  ///< With `held`.
  /// Reserved memory beyond the peak if the CPU runs as far ahead of the GPU as it can: memory that FSDP1 or ZeRO frees
  /// while another stream may use it (record_stream) returns later.
  Bytes held;
  std::vector<DeviceTerm> outside;
  bool is_whole = true;   ///< False if the walk ended above `enough`; then the peaks are those up to there.
  std::int64_t work = 0;  ///< Work of the walks, in requests of a pool.
};

/// Walks initialization and steps, until the device peak and the margin are above `enough`: through `pools` if the
/// settings of the allocator allow it, which is ten times as fast, otherwise through `allocator`. The caller reuses
/// both for their memory. Errors: settings that the allocator does not know.
Result<MemoryPrediction> predict_memory(const PreparedPlan& prepared, PoolSink& pools, CachingAllocator& allocator,
                                        Bytes enough = kEndlessMemory);

/// Actions of an allocator to stay within the device (cache_flushes.cpp).
struct CacheFlushes {
  std::int64_t total = 0;    ///< Times that it returns its cache, in initialization and all steps. -1 if it still runs
                             ///< out.
  std::int64_t in_step = 0;  ///< The number of them in the last step.
  Seconds step_time{0};      ///< Their time, estimated.
};
/// `progress`: that of the streams after which memory is freed. Errors: settings that the allocator does not know.
Result<CacheFlushes> count_flushes(const PreparedPlan& prepared, const std::vector<DeviceTerm>& outside,
                                   CachingAllocator& allocator, StreamProgress progress = StreamProgress::Instant);

/// cuDNN's memory during a convolution, which the walk omits: input, weight and output of the largest
/// one in another memory order, and half as much again. 0 without convolutions, and on CPU, whose kernels were
/// measured.
Bytes convolution_workspace(const PreparedPlan& prepared);

/// The whole report.
Result<StepReport> build_report(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& timeline,
                                PoolSink& pools, CachingAllocator& allocator);

}  // namespace fsdp::simulator
