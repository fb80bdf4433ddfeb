#pragma once

// Predicts the cost of a plan: lowers it, walks its memory through a model of the caching allocator, counts its traffic
// and lays it out in time.
//
// A predictor is made once for a model (with its sizes) and a cluster, and asked many times. It computes the parts that
// depend on neither the units nor the mesh (the allocations of a decoder layer's forward and backward, its FLOPs) once.
// The cost of a prediction grows with the number of calls and ops, never with the number of GPUs.

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
#include "core/report/job_phases.h"
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
  Bytes kept;  ///< Activations that it adds to those alive from its forward to its backward (storages made inside this
               ///< call only, so that outputs are not counted twice).
  Bytes backward_peak;   ///< Peak live bytes of its backward (recomputed tensors, gradients, temporaries), without
                         ///< tensors outside of the call and without parameters' gradients.
  PoolBytes kept_pools;  ///< The same by pool, each at a moment of its own.
  PoolBytes peak_pools;
  /// Times of its ops. Valid for the predictor's life.
  const CallTimes* times = nullptr;
  /// The same beside checkpointed calls. nullptr if it makes no difference.
  const CallTimes* times_beside = nullptr;
};

/// The minimum of each figure, with the ops of the first.
CallCost least_of(const CallCost& a, const CallCost& b);

/// The wanted part of a prediction.
enum class Detail : std::uint8_t {
  Time,    ///< Times only.
  Live,    ///< A lower bound of the device total only: live bytes per stream, in blocks of 512 bytes.
  Device,  ///< Reserved memory, device total and verdict only.
  Tight,   ///< The same; and if the peak is above the budget, whether an allocator with that limit survives.
  Memory,  ///< Times, allocator, device total, verdict.
};

/// The short answer, for searches.
struct Outcome {
  Seconds step{0};
  Seconds compute{0};
  Seconds exposed_communication{0};
  Bytes device_lower_bound;  ///< Never above `peaks.device`.
  /// With `Detail::Live`: a nearer bound, because small and large tensors have their own pools.
  Bytes pools_lower_bound;
  /// With `Detail::Live`: nearer still, because no pool has less than its own segments. It bounds this plan only; the
  /// other two also bound its neighbors (planner/search/predicted_cost.cpp).
  Bytes own_lower_bound;
  /// With `Detail::Memory`; reserved and device also with `Detail::Device` and `Detail::Tight`. These two are for the
  /// rank that needs most, the others for rank 0.
  MemoryPeaks peaks;
  bool fits = false;   ///< The device has room (DeviceVerdict::has_room), and the host has enough. With both details.
  Bytes host_missing;  ///< Host memory that a node lacks. 0 if unknown. With both.
  Bytes margin;
  /// Memory that the device must have, with both: peaks.device + margin. With `Detail::Tight`, the least in which the
  /// plan runs: at most the device's memory if it runs there, otherwise more.
  Bytes needed;
  DeviceVerdict device;   ///< With both. Only `Detail::Tight` knows Tightness::Flushes.
  Seconds flush_time{0};  ///< With `Detail::Tight`: time per step to return the cache.
  /// With `Detail::Live`: lower bounds of the peak of allocated memory, and of the memory outside the allocator.
  Bytes allocated_lower_bound;
  /// False if the walk ended with memory above `enough`, or after one rank that needs more than `too_large`.
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

/// An error unless `rank` is one of the cluster's ranks, 0 to world size - 1.
Errors check_rank(std::int64_t rank, const Cluster& cluster);

class Predictor {
 public:
  Predictor(Model model, Cluster cluster);
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  const Model& model() const;
  /// Index of the model. Valid for the predictor's life.
  const ModelIndex& index() const;
  const Cluster& cluster() const;

  /// With `Detail::Memory` and `Detail::Device` the prediction ends as soon as device peak and margin are above
  /// `enough`: a caller that only needs to know whether a plan fits does not need the excess. If the first rank needs
  /// more than `too_large`, the others are not predicted. Errors: those of check(plan, model), and an attention backend
  /// that PyTorch refuses to run for this model, precision and GPU.
  Result<Outcome> evaluate(Plan plan, Detail detail, Bytes enough = kWholePrediction,
                           Bytes too_large = kWholePrediction);

  /// Work so far, in steps of some 20 ns, including the construction of the predictor. A limit on it has the same
  /// effect on every machine.
  std::int64_t work() const;

  /// Does not predict memory. Errors: those of evaluate.
  Result<StepTimeline> timeline(const Plan& plan);

  /// The rank whose device needs most, the first among equals: shards and optimizer states differ if rows do not
  /// divide. Rank 0 holds most bytes, but another one may need more, because it pads its shards, or because of the
  /// allocator's block layout. Errors: those of evaluate.
  Result<std::int64_t> worst_rank(const Plan& plan);

  /// The whole report, with the live tensors at the peak and the timeline, for one rank of the world; defaults to the
  /// worst. Errors: those of evaluate and check_rank.
  Result<StepReport> report(const Plan& plan, std::optional<std::int64_t> rank = std::nullopt);

  /// What a job of the report's plan does beside its steps, for the report's rank. `evaluation`: the model with the
  /// batch of an evaluation; defaults to that of training. Errors: those of report.
  Result<std::vector<JobPhaseNeed>> job_phases(const StepReport& report,
                                               std::optional<Model> evaluation = std::nullopt);

  /// The step of the same rank, moment by moment. Outlives the predictor. Errors: those of report.
  Result<StepCurves> curves(const Plan& plan, std::optional<std::int64_t> rank = std::nullopt);

  /// [num calls] Cost of one run of each call under the precision and runtime of `plan`. For a call that was also
  /// recorded beside checkpointed ones: the minimum of both. `modes`: [num calls].
  std::vector<CallCost> call_costs(const Plan& plan, const std::vector<CheckpointMode>& modes);

  /// The result of make_layout(index(), plan). Valid until the next call.
  /// REQUIRES: the plan passes check().
  const Layout& layout(const Plan& plan);

  /// Costs of collectives over the dimensions of a mesh. Valid for the predictor's life.
  const MeshCosts& mesh_costs(const Mesh& mesh);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace fsdp::simulator
