#pragma once

// Lays a schedule out in time over FSDP2's streams. timeline.cpp explains the waits.

#include <array>
#include <string>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "core/plan/workload.h"
#include "core/report/report.h"
#include "core/report/stream_event.h"
#include "simulator/time/roofline.h"

namespace fsdp::simulator {

/// Durations of one call's ops, as running sums, so that any stretch of ops is one subtraction.
struct CallTimes {
  /// Tensors that ranks with other experts exchange, in the order of a run.
  struct Exchange {
    int op = 0;  ///< In the block.
    Bytes bytes;
    bool is_read_by_host = false;  ///< The host reads it, and waits for it.
  };
  std::vector<Exchange> forward_exchanges = {};
  std::vector<Exchange> recompute_exchanges = {};
  std::vector<Exchange> backward_exchanges = {};
  std::vector<Seconds> forward;       ///< [num ops + 1] Device time of the ops before.
  std::vector<Seconds> backward;      ///< [num ops + 1]
  std::vector<Seconds> cpu_forward;   ///< [num ops + 1] CPU time to issue them.
  std::vector<Seconds> cpu_backward;  ///< [num ops + 1]
  Seconds recompute{0};
  Seconds cpu_recompute{0};
  Seconds inputs_to_host{0};  ///< The copy of inputs that a checkpoint keeps on the host, either way. The CPU waits for
                              ///< the one to the host.
  std::vector<std::string> not_measured;  ///< Ops without a measured time on a measured machine, each once.
};

/// `works` [num ops]: the names of the measured times; empty without measurements.
CallTimes call_times(const Tape& tape, const ComputeCosts& costs, const std::vector<NamedWork>& works = {});

/// Durations of one unit's collectives and copies.
struct UnitTimes {
  Seconds copy_in{0};  ///< Copies shards into the all-gather's buffer, with a cast; from the host with offload.
  Seconds all_gather{0};
  Seconds small_gather{0};  ///< From the smaller group of an integer reshard_after_forward.
  Seconds copy_out{0};
  Seconds keep_gradients{0};  ///< Without reduction: the first gradients of a step, cast to the reduce dtype,
  Seconds add_gradients{0};   ///< and each later ones, added to them.
  int num_gradients = 0;      ///< Kernels of either.
  Seconds reduce_copy{0};     ///< Gradients into the reduce-scatter's buffer.
  Seconds reduce_scatter{0};
  Seconds all_reduce{0};
  Seconds latency{0};  ///< Latency of a collective of the shard group that moves next to nothing.
  Seconds to_host{0};  ///< Sharded gradients, with CPU offload.
  Seconds flatten{0};  ///< FSDP1: gradients into a flat one,
  Seconds divide{0};   ///< which is cast and divided before its reduction.
};

/// Durations of one bucket of DDP or ZeRO, or of the gradient of one read of SimpleFSDP.
struct BucketTimes {
  Seconds copy{0};  ///< Gradients into the bucket, divided by the number of ranks.
  Seconds all_reduce{0};
  Seconds copy_back{0};  ///< Sums into the gradients; 0 if those are views.
  int num_gradients = 0;
  Seconds reduce_scatter{0};  ///< SimpleFSDP, after the all-reduce, or instead of it.
};

/// ZeRO's work in a step beside the optimizer's own: the overflow check of gradients, and the all-gather of the updated
/// parts.
struct ZeroTimes {
  Seconds check_overflow{0};
  Seconds gather_parameters{0};
};

/// Durations of one gather of ZeRO-3 or SimpleFSDP.
struct FetchTimes {
  Bytes payload;
  Dtype dtype = Dtype::Float32;
  Seconds all_gather{0};        ///< Includes the work on the rank's part before it.
  std::int64_t num_scales = 0;  ///< Quantized: fp32 scales, gathered after it,
  Seconds scales{0};            ///< in this time.
  Seconds copy_out{0};
  int num_kernels = 0;  ///< Number of the copies.
};

/// The forward of another model by itself.
struct OtherTime {
  std::string name;
  Seconds step{0};
  Seconds compute{0};
  Seconds exposed{0};
};

struct TimelineInput {
  const ModelIndex* index = nullptr;
  const Layout* layout = nullptr;
  const Schedule* schedule = nullptr;
  const std::vector<const CallTimes*>* calls = nullptr;  ///< [num_calls]
  const std::vector<UnitTimes>* units = nullptr;         ///< [num_units]
  const std::vector<BucketTimes>* buckets = nullptr;  ///< [buckets] As `Layout::bucket` counts those of the schedule.
  const std::vector<FetchTimes>* fetches = nullptr;   ///< [groups of the schedule]
  Seconds sync_buffers{0};
  Seconds used_map{0};  ///< All-reduce of DDP's map of used parameters.
  ZeroTimes zero;
  bool overlaps_buckets = true;  ///< False if the backward waits for each reduction of a bucket (ZeRO).
  Seconds optimizer{0};
  Seconds clip{0};
  Seconds launch{6e-6};
  /// [num instructions] For a measured CPU: the computing thread's work in each instruction beside ops. If null,
  /// streams do it, and the times of units include it.
  const std::vector<Seconds>* on_host = nullptr;
  /// [kind] The fraction of a collective's time that compute loses beside it: for all-gathers, reduce-scatters and
  /// all-reduces.
  std::array<double, 3> compute_shares = {};
  bool limits_gathers = false;  ///< FSDP1's limit_all_gathers.
  bool reduces_apart = false;   ///< True if reduce-scatters have a communicator of their own.
  bool copies_kept = false;     ///< FSDP1 with CPU offload: also copies the shards of units that are still gathered.
  const CollectiveCost* experts = nullptr;         ///< Those of ranks that share experts.
  const std::vector<OtherTime>* others = nullptr;  ///< [Plan::also] nullptr if there are none.
};

struct TimelineResult {
  Seconds step{0};
  Seconds compute{0};
  Seconds exposed{0};
  Seconds optimizer{0};
  /// Per collective in issue order, aligned with the schedule's Unshard, ReduceGrads (two entries with an all-reduce),
  /// Forward and Backward (one for each exchange of tokens), SyncBuffers, ReduceBucket (two for SimpleFSDP, if it sums
  /// over copies and shards), FetchParameters and GatherParameters.
  std::vector<Seconds> exposed_of_collective;
};

/// For charts: the events with their amounts and waits, and the position of the compute stream over time.
struct TimelineDetail {
  struct Stretch {
    Seconds begin{0};
    Seconds end{0};
    Seconds recompute{0};  ///< The first part of a backward.
  };
  std::vector<StreamEvent> events;    ///< In issue order: each after everything that it waits for.
  std::vector<Stretch> instructions;  ///< [actions] On the compute stream.
};

/// Fills in `detail` if given.
TimelineResult lay_out(const TimelineInput& input, TimelineDetail* detail = nullptr);

}  // namespace fsdp::simulator
