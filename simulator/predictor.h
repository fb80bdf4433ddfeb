#pragma once

// Predicts what a plan costs: lowers it, walks its memory through a model of the caching allocator, counts its traffic
// and lays it out in time.
//
// A predictor is made once for a model (with its sizes) and a cluster, and asked many times: what depends on neither
// the units nor the mesh (the allocations of a decoder layer's forward and backward, its FLOPs) is worked out once and
// kept. The cost of a prediction grows with the number of calls and ops, never with the number of GPUs.

#include <memory>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "core/report/device_verdict.h"
#include "core/report/report.h"
#include "core/report/stream_event.h"
#include "simulator/curves/step_curves.h"
#include "simulator/ops/pool_bytes.h"

namespace fsdp::simulator {

struct CallTimes;
struct MeshCosts;

/// Cost of one run of a call by itself, under one checkpoint mode; the planner's bounds are sums of these.
struct CallCost {
  Seconds forward{0};
  Seconds backward{0};   ///< Without the recomputation.
  Seconds recompute{0};  ///< 0 without checkpointing.
  Bytes kept;  ///< Activations that it adds to what lives from its forward to its backward (its outputs not counted
               ///< twice: storages made inside this call only).
  Bytes backward_peak;   ///< Highest live bytes of its backward (recomputed tensors, gradients, temporaries) above what
                         ///< is alive outside the call, parameters' gradients not included.
  PoolBytes kept_pools;  ///< The same by pool, each at a moment of its own.
  PoolBytes peak_pools;
  /// Times of its ops. Stays where it is for the predictor's life.
  const CallTimes* times = nullptr;
  /// The same beside checkpointed calls; none where that makes no difference.
  const CallTimes* times_beside = nullptr;
};

/// The least of each of the figures, with the ops of the first.
CallCost least_of(const CallCost& a, const CallCost& b);

/// How much of the prediction is wanted.
enum class Detail : std::uint8_t {
  Time,    ///< Times only.
  Live,    ///< A lower bound of the device total only: live bytes per stream, in blocks of 512 bytes.
  Device,  ///< Reserved memory, device total and verdict only.
  Tight,   ///< The same, and where the peak is above the budget whether an allocator below it survives.
  Memory,  ///< Times, allocator, device total, verdict.
};

/// The short answer, for searches.
struct Outcome {
  Seconds step{0};
  Seconds compute{0};
  Seconds exposed_communication{0};
  Bytes device_lower_bound;  ///< Never above `peaks.device`.
  /// With `Detail::Live`: the same and nearer to it, since small tensors and large ones lie in pools of their own.
  Bytes pools_lower_bound;
  /// With `Detail::Live`: nearer still, since no pool has less than its own segments. A bound of this plan alone: the
  /// other two bound its neighbors, too (planner/predicted_cost.cpp).
  Bytes own_lower_bound;
  /// With `Detail::Memory`; reserved and device also with `Detail::Device` and `Detail::Tight`. These two are of the
  /// rank that needs most, the others of rank 0.
  MemoryPeaks peaks;
  bool fits = false;   ///< The device has room (DeviceVerdict::has_room), and nothing lacks on the host. With both.
  Bytes host_missing;  ///< Host memory that a node lacks; 0 where that is not known. With both.
  Bytes margin;
  /// Memory that the device must have, with both: peaks.device + margin. With `Detail::Tight` what the plan can live
  /// in: no more than the device has where it runs, and more where it does not.
  Bytes needed;
  DeviceVerdict device;   ///< With both. Only `Detail::Tight` knows Tightness::Flushes.
  Seconds flush_time{0};  ///< With `Detail::Tight`: what giving back the cache takes of a step.
  /// With `Detail::Live`: the most that is allocated at one moment, and what lies outside of the allocator, at least.
  Bytes allocated_lower_bound;
  /// False: memory was walked only until it was above `enough`, or by one rank, which needs more than `too_large`.
  bool is_whole = true;
};

/// A steady step on the streams of a GPU.
struct StepTimeline {
  Seconds step{0};
  Seconds compute{0};  ///< Busy time of the compute stream.
  Seconds exposed_communication{0};
  std::vector<StreamEvent> events;  ///< In issue order.
};

/// No limit for Predictor::evaluate.
inline constexpr Bytes kWholePrediction{std::int64_t{1} << 50};

/// The ranks of a cluster are 0 to world size - 1. Error: `rank` is none of them.
Errors check_rank(std::int64_t rank, const Cluster& cluster);

class Predictor {
 public:
  Predictor(Model model, Cluster cluster);
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  const Model& model() const;
  /// Index of the model. Stays where it is for the predictor's life.
  const ModelIndex& index() const;
  const Cluster& cluster() const;

  /// With `Detail::Memory` and `Detail::Device` the prediction ends as soon as device peak and margin are above
  /// `enough`: who only asks whether a plan fits need not know by how much it does not. Where the first rank that is
  /// asked needs more than `too_large`, the others are not asked. Errors: those of check(plan, model), and an attention
  /// backend that PyTorch refuses to run for this model, precision and GPU.
  Result<Outcome> evaluate(Plan plan, Detail detail, Bytes enough = kWholePrediction,
                           Bytes too_large = kWholePrediction);

  /// Work done so far, in steps of some 20 ns: a limit in it is the same on every machine. It begins with what
  /// making the predictor took.
  std::int64_t work() const;

  /// Without a look at memory. Errors: those of evaluate.
  Result<StepTimeline> timeline(const Plan& plan);

  /// The rank whose device needs most, of equal ones the first: shards and optimizer states differ where rows do not
  /// divide. Rank 0 holds most bytes, and still another may need more, because it pads what it makes, or because of how
  /// the allocator's blocks come to lie. Errors: those of evaluate.
  Result<std::int64_t> worst_rank(const Plan& plan);

  /// The whole report, with the live tensors at the peak and the timeline, of one rank of the world, which is the worst
  /// unless given. Errors: those of evaluate and check_rank.
  Result<StepReport> report(const Plan& plan, std::optional<std::int64_t> rank = std::nullopt);

  /// The step of the same rank, moment by moment. Stays valid when the predictor is gone. Errors: those of report.
  Result<StepCurves> curves(const Plan& plan, std::optional<std::int64_t> rank = std::nullopt);

  /// [num calls] Cost of one run of each call under the precision and runtime of `plan`. For a call that was recorded
  /// beside checkpointed ones, too: the least of both. `modes`: [num calls].
  std::vector<CallCost> call_costs(const Plan& plan, const std::vector<CheckpointMode>& modes);

  /// The result of make_layout(index(), plan). It stays until the predictor is asked for another thing.
  /// REQUIRES: the plan passes check().
  const Layout& layout(const Plan& plan);

  /// Costs of collectives over the dimensions of a mesh. Stays where it is for the predictor's life.
  const MeshCosts& mesh_costs(const Mesh& mesh);

  /// Time of one collective over a dimension of the mesh by itself. `total` is the full tensor.
  Seconds collective_time(const Mesh& mesh, MeshDimension dimension, CollectiveKind kind, Bytes total);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace fsdp::simulator
