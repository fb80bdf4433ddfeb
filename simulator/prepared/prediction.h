#pragma once

// One plan on its way through the simulator: lowered, its tapes and durations looked up. Shared by the short answer
// (predictor.cpp) and the whole report (report_builder.cpp).

#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "core/report/report.h"
#include "simulator/allocator/caching_allocator.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/time/plan_times.h"
#include "simulator/time/tape_library.h"
#include "simulator/time/timeline.h"

namespace fsdp::simulator {

/// Steps that are walked: the first, the steady one, and one more, because which block a request gets depends on the
/// step before.
inline constexpr int kNumSteps = 3;

/// Micro-batches of a step that are walked when there are more: the first makes the sharded gradients, the second adds
/// to them, the last may be the one that reduces. Those left out repeat the second.
inline constexpr std::int64_t kNumMicroBatches = 3;

/// The same of a bound: one that makes gradients, and one that adds to them and reduces. At the begin of backward, when
/// most is alive, the last one holds as much as any between.
inline constexpr std::int64_t kNumBoundMicroBatches = 2;

struct PreparedPlan {
  const ModelIndex* index = nullptr;
  const Cluster* cluster = nullptr;
  Plan plan;
  std::optional<Plan> walked;  ///< As the memory walk takes it; empty: as it is.
  Layout layout;
  Schedule schedule;
  Dtype activation = Dtype::BFloat16;
  bool use_cache = false;  ///< Keys and values are kept: asked for, and no checkpointing turns it off.
  ComputeCosts costs;
  std::vector<const Tape*> tapes;         ///< [num_calls]
  std::vector<const CallTimes*> times;    ///< [num_calls]
  std::vector<UnitTimes> unit_times;      ///< [num_units]
  std::vector<BucketTimes> bucket_times;  ///< [num buckets]
  std::vector<FetchTimes> fetch_times;    ///< [groups of the schedule]
  std::vector<Seconds> on_host;           ///< [num instructions] TimelineInput::on_host; empty where it is null.
  std::optional<MuonStep> muon;           ///< For a plan that has it.
  MemoryIds ids;
  std::vector<std::string> unmeasured;  ///< Calls of a CPU of which it is only assumed what they take.

  Schedule first_schedule;        ///< For the first step; empty where it is like all others.
  Schedule short_first_schedule;  ///< The same, of the short one.
  Schedule short_schedule;        ///< With no more than `kNumMicroBatches`; empty where `schedule` has no more.

  WalkInput walk_input() const;
  /// With the short schedule: the same peaks for less.
  WalkInput short_walk_input() const;
  TimelineResult timeline(const MeshCosts& mesh, TimelineDetail* detail = nullptr) const;
  /// The same of the first step; empty where that is like all others.
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
  Walk,   ///< The walk only: no times, and no more than `kNumMicroBatches` in the plan itself.
  Bound,  ///< A walk for a lower bound: no more than `kNumBoundMicroBatches`.
};

/// `rank` is that in the shard group: shards and optimizer states differ where rows do not divide.
/// Errors: those of make_layout; an attention backend that PyTorch refuses to run here.
Result<PreparedPlan> prepare(const ModelIndex& index, const Cluster& cluster, const Plan& plan, const MeshCosts& mesh,
                             TapeLibrary& library, std::int64_t rank = 0, PreparedFor use = PreparedFor::Everything);

/// The same with a layout at hand. REQUIRES: it is that of the plan.
Result<PreparedPlan> prepare(const ModelIndex& index, const Cluster& cluster, Plan plan, Layout layout,
                             const MeshCosts& mesh, TapeLibrary& library, PreparedFor use);

/// The same plan, seen from another rank of the shard group.
void see_from(PreparedPlan& prepared, std::int64_t rank, TapeLibrary& library);

struct MemoryPrediction {
  MemoryPeaks peaks;
  std::vector<PhasePeaks> phases;
  Bytes margin;  ///< With `held`.
  /// Reserved memory beyond the peak if the CPU runs as far ahead of the GPU as it can: memory that FSDP1 or ZeRO
  /// frees while another stream may use it (record_stream) comes back later.
  Bytes held;
  std::vector<DeviceTerm> outside;
  bool is_whole = true;   ///< False: the walk ended above `enough`, and the peaks are those up to there.
  std::int64_t work = 0;  ///< Work of the walks, in requests of a pool.
};

/// Walks initialization and steps, until the device peak and the margin are above `enough`: through `pools` where the
/// settings of the allocator allow it, which is ten times as fast, else through `allocator`. Both are kept by the
/// caller for their memory. Error: settings that the allocator does not know.
Result<MemoryPrediction> predict_memory(const PreparedPlan& prepared, PoolSink& pools, CachingAllocator& allocator,
                                        Bytes enough = kEndlessMemory);

/// Actions of an allocator to stay within the device (cache_flushes.cpp).
struct CacheFlushes {
  std::int64_t total = 0;    ///< Times it gives back its cache, in initialization and all steps; -1: it runs out of
                             ///< memory all the same.
  std::int64_t in_step = 0;  ///< How many of them in the last step.
  Seconds step_time{0};      ///< Their time, estimated.
};
/// `progress`: of streams after which memory is freed. Error: settings that the allocator does not know.
Result<CacheFlushes> count_flushes(const PreparedPlan& prepared, const std::vector<DeviceTerm>& outside,
                                   CachingAllocator& allocator, StreamProgress progress = StreamProgress::Instant);

/// cuDNN's memory during a convolution, which the walk lacks: input, weight and output of the largest
/// one in another memory order, and half as much again. 0 without convolutions, and on CPU, whose kernels were
/// measured.
Bytes convolution_workspace(const PreparedPlan& prepared);

/// The whole report.
Result<StepReport> build_report(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& timeline,
                                PoolSink& pools, CachingAllocator& allocator);

}  // namespace fsdp::simulator
