#pragma once

// The report: the cost of a training step. Predictions and measurements have the same form, so that they can be
// compared term by term. core/report/report_json.h writes its JSON, docs/file_formats.md describes it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/provenance.h"
#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/plan/step_phase.h"
#include "core/report/report_rehearsal.h"

namespace fsdp {

/// The categories of torch.distributed._tools.fsdp2_mem_tracker.FSDPMemTracker, under its names.
enum class MemoryCategory : std::uint8_t {
  ShardedParam,
  UnshardedParam,
  Buffer,
  ShardedGrad,
  UnshardedGrad,
  Activation,
  Temp,
  AllGather,
  ReduceScatter,
  OptState,
  Inputs,
};
inline constexpr int kNumMemoryCategories = static_cast<int>(MemoryCategory::Inputs) + 1;

/// "Sharded Param", as in the tracker.
std::string_view name_of(MemoryCategory category);

using BytesByCategory = std::array<Bytes, kNumMemoryCategories>;

/// The device term of `Cluster::reserved_memory`.
inline constexpr std::string_view kOtherPrograms = "other programs";

/// A named part of the device's memory outside of the allocator's reserve, or of a node's memory.
struct DeviceTerm {
  std::string name;
  Bytes bytes;
  Provenance provenance = Provenance::Assumed;
  std::string source;

  bool operator==(const DeviceTerm&) const = default;
};

/// Peaks of one phase, or of the whole run. Negative if unknown.
struct MemoryPeaks {
  Bytes live;       ///< Bytes that tensors request.
  Bytes allocated;  ///< torch.cuda.max_memory_allocated: in blocks.
  Bytes reserved;   ///< torch.cuda.max_memory_reserved: in segments.
  Bytes device;     ///< reserved + terms outside the allocator.

  bool operator==(const MemoryPeaks&) const = default;
};

/// The highest live bytes of a part of a step, over all its micro-batches.
struct PartPeak {
  StepPhase part = StepPhase::Forward;
  Bytes live;

  bool operator==(const PartPeak&) const = default;
};

/// A phase of a run with its own peaks.
enum class RunPhase : std::uint8_t {
  Initialization,  ///< Until the first forward.
  FirstStep,
  SteadyStep,  ///< All later steps.
  Evaluation,  ///< Between steps, like Saving.
  Saving,
};
/// "first_step".
std::string_view name_of(RunPhase phase);
/// "first step", for people.
std::string title_of(RunPhase phase);

struct PhasePeaks {
  RunPhase phase = RunPhase::Initialization;
  MemoryPeaks peaks;
  std::vector<PartPeak> parts = {};  ///< Parts of a predicted step, in order.

  bool operator==(const PhasePeaks&) const = default;
};

/// A live tensor at the peak; merges equal ones of repeated blocks.
struct LiveTensor {
  std::string name;  ///< "model.layers.{0..27}: mlp.gate_proj output"
  MemoryCategory category = MemoryCategory::Activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< The sum of all merged tensors.

  bool operator==(const LiveTensor&) const = default;
};

/// The moment and the place of the highest live memory.
struct PeakMoment {
  StepPhase phase = StepPhase::Unknown;
  std::string instruction;  ///< "Backward model.layers.27"
  std::string unit;         ///< FSDP unit at work; "" is the root.
  std::string op;           ///< Innermost module and op: "mlp.down_proj linear".

  bool operator==(const PeakMoment&) const = default;
};

/// The instruction at work, or the phase if there is none.
std::string name_of(const PeakMoment& moment);

/// The start of a phase of the step in `MemoryReport::live_over_step`.
struct PhaseMark {
  StepPhase phase = StepPhase::Unknown;
  std::int64_t index = 0;

  bool operator==(const PhaseMark&) const = default;
};

/// Host memory of the processes on the node that needs most.
struct HostMemory {
  std::optional<Bytes> budget;    ///< Memory of one node; not checked if `nullopt`.
  Bytes needed;                   ///< The sum of `terms`.
  Bytes pinned;                   ///< Part of `needed` that is page-locked.
  Bytes margin;                   ///< Safety margin on top of `needed`.
  std::vector<DeviceTerm> terms;  ///< Terms of all ranks of the node together.

  /// Memory that a node lacks; 0 if its memory is unknown.
  Bytes missing() const { return budget ? std::max(Bytes(0), needed + margin - *budget) : Bytes(0); }
  bool operator==(const HostMemory&) const = default;
};

/// ZeRO-Infinity's files on the NVMe drives of a node, and its traffic in one steady step, for all ranks of the node.
struct DriveReport {
  Bytes kept;           ///< Files.
  Bytes read, written;  ///< In a step.
  Bytes in_a_second;    ///< Rate of the node,
  Provenance provenance = Provenance::Assumed;
  std::string source;             ///< and the source of that figure.
  std::optional<Bytes> capacity;  ///< Capacity of the node; not checked if `nullopt`.

  /// Bytes that do not fit; 0 if the capacity is unknown.
  Bytes missing() const { return capacity ? std::max(Bytes(0), kept - *capacity) : Bytes(0); }
  bool operator==(const DriveReport&) const = default;
};

/// Why a plan that runs has no room to spare.
enum class Tightness : std::uint8_t {
  None,     ///< It has room, or it does not run.
  Margin,   ///< The peak is within the budget, but not together with the error of predictions.
  Streams,  ///< Other streams may hold more memory than is left. The allocator waits for them before it fails.
  Flushes,  ///< An allocator without a limit would reserve more. This one flushes its cache and continues.
};
std::string_view name_of(Tightness tightness);

/// A model beside the trained one, in a step.
struct OtherReport {
  std::string name;
  std::string how;           ///< As in `Plan::also`: "qwen3_1_7b,wrap=blocks".
  Bytes resident;            ///< Live on the device between its forwards: shards, buffers, workspaces.
  Bytes forward;             ///< The most beside that in its forward: gathered units, activations.
  Bytes kept;                ///< Its log-probabilities, from its forward to the end of the backward.
  Bytes host;                ///< Its pinned shards on the node that holds most of them.
  std::int64_t gathers = 0;  ///< All-gathers in a step,
  Bytes gathered;            ///< and their payload.
  Seconds time{0};           ///< The sum over its forwards in a step.

  bool operator==(const OtherReport&) const = default;
};

struct MemoryReport {
  std::int64_t rank = 0;  ///< The rank in the world with this memory.
  Bytes budget;           ///< Total memory of the device.
  Bytes margin;           ///< Safety margin on top of the prediction.
  Bytes held;             ///< In the margin: memory that FSDP1 or ZeRO may not get back from other streams in time.
  MemoryPeaks peaks;
  PeakMoment peak;
  BytesByCategory at_peak{};
  std::vector<LiveTensor> live_at_peak;  ///< Largest first.
  std::vector<DeviceTerm> device_terms;  ///< Reserved first; they add up to `peaks.device`.
  std::vector<PhasePeaks> phases;
  Tightness tightness = Tightness::None;
  /// Cache flushes of the allocator that keep it below the budget, in initialization and the walked steps; -1 if it
  /// runs out of memory.
  std::int64_t cache_flushes = 0;
  std::int64_t step_flushes = 0;          ///< Flushes in a steady step. With Tightness::Streams, their maximum.
  Seconds flush_time{0};                  ///< Their time in a steady step, at most. Not in TimeReport::step.
  Bytes host_pinned;                      ///< Pinned host memory of this rank, with CPU offload.
  std::optional<HostMemory> host;         ///< `nullopt` if the plan puts no part of the model there.
  std::optional<DriveReport> drive = {};  ///< `nullopt` if the plan uses no NVMe drive.
  std::vector<Bytes> live_over_step;      ///< [instructions] The highest live bytes during each, in one steady step.
  std::vector<PhaseMark> phase_marks;     ///< Its phases, in order; with accumulation, of each micro-batch.

  bool operator==(const MemoryReport&) const = default;
};

/// The first three are FSDP's, which we predict. A measured script may run any.
enum class CollectiveKind : std::uint8_t {
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Reduce,
  AllToAll,
  Send,
  Recv,
  Gather,
  Scatter,
};
inline constexpr int kNumTrafficKinds = static_cast<int>(CollectiveKind::Scatter) + 1;
/// "all_gather"
std::string_view name_of(CollectiveKind kind);

enum class MeshDimension : std::uint8_t {
  Shard,
  Replicate,
  Other,  ///< For a measured collective with only a known group size.
};
std::string_view name_of(MeshDimension dimension);
/// The dimension that a group lies along; Other for several, or none.
MeshDimension dimension_of(const RankGroup& ranks);

/// How a reduction combines the ranks' values.
enum class ReduceOp : std::uint8_t {
  None,  ///< No reduction, or unknown: the stub GPU does not see it.
  Avg,
  Sum,  ///< If the average could overflow it, FSDP2 itself divides before and after.
  Max,
};
/// "avg", "sum", "max"; "" for None.
std::string_view name_of(ReduceOp op);

struct Collective {
  CollectiveKind kind = CollectiveKind::AllGather;
  std::string unit;  ///< Its first module; "" is the root.
  StepPhase phase = StepPhase::Unknown;
  Dtype dtype = Dtype::Float32;
  std::int64_t elements = 0;  ///< Elements of the full tensor, padding included.
  Bytes payload;              ///< Bytes of the full tensor: all-gather output, reduce-scatter input, all-reduce buffer.
  MeshDimension group = MeshDimension::Shard;
  std::int64_t group_size = 1;  ///< Negative for an unknown group of a measurement.
  ReduceOp reduce_op = ReduceOp::None;
  std::int64_t micro_batch = -1;  ///< Micro-batch that issues it, from 0; -1 after all of them, or if unknown.
  Seconds time{0};                ///< Predicted or measured duration by itself.
  Seconds exposed{0};             ///< Time that the compute stream waits for it.
  BytesByCategory live{};         ///< Predicted live bytes at its call, with its own buffers,
  /// and their sum in the first step; `nullopt` if that step has other collectives.
  std::optional<Bytes> first_step_live;

  bool operator==(const Collective&) const = default;
};

struct TrafficTotal {
  std::int64_t count = 0;
  Bytes payload;
  Bytes sent_per_rank;  ///< Bytes that a ring sends.

  bool operator==(const TrafficTotal&) const = default;
};

struct TrafficReport {
  std::array<TrafficTotal, kNumTrafficKinds> totals{};  ///< By CollectiveKind.
  Bytes sent_inside_node;                               ///< Sent per rank and step inside a node (-1: not known), and
  Bytes sent_between_nodes;                             ///< over the network.
  std::vector<Collective> collectives;                  ///< In issue order of one steady step.

  bool operator==(const TrafficReport&) const = default;
};

struct TimeReport {
  Seconds step{0};
  Seconds compute{0};                ///< Busy time of the compute stream. Negative if not measured, like the next two.
  Seconds exposed_communication{0};  ///< Time that it waits for collectives.
  Seconds optimizer{0};              ///< Part of compute.
  double tokens_per_second_per_gpu = 0;
  double mfu = 0;
  Seconds low{0}, high{0};  ///< The step's uncertainty band; `high` is 0 if it has no upper end, because
  /// the time of these ops and library kernels, by name, is unknown.
  std::vector<std::string> without_cost;

  bool operator==(const TimeReport&) const = default;
};

/// Whether a plan runs. core/report/device_verdict.h has the rule.
enum class Verdict : std::uint8_t { Fits, DoesNotFit, Unknown };
std::string_view name_of(Verdict verdict);

struct StepReport {
  std::string kind = "predicted";  ///< Or "measured".
  std::string runtime;
  std::string runtime_version;
  Verdict verdict = Verdict::Unknown;

  std::string model;
  std::int64_t parameters = 0;
  std::int64_t trainable_parameters = 0;
  std::int64_t receives_gradient_parameters = 0;  ///< -1 if unknown.
  Bytes buffers{0};                               ///< -1 if unknown.

  std::string gpu;
  std::int64_t gpus_per_node = 1;
  std::int64_t nodes = 1;
  std::vector<std::string> assumptions;

  Plan plan;  ///< Without units if there is no plan, as for a measured script.
  MemoryReport memory;
  TrafficReport traffic;
  TimeReport time;                     ///< Zero if unknown.
  std::vector<OtherReport> others;     ///< Models beside the trained one.
  std::optional<Rehearsal> rehearsal;  ///< For kind "measured".

  bool operator==(const StepReport&) const = default;
};

}  // namespace fsdp
