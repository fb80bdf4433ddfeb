#pragma once

// The report: what a training step costs. One shape for what is predicted and what is measured, so that two of them can
// be compared term by term. Its JSON is written by core/report/report_json.h and described in docs/file_formats.md.

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

/// "Sharded Param", as the tracker prints it.
std::string_view name_of(MemoryCategory category);

using BytesByCategory = std::array<Bytes, kNumMemoryCategories>;

/// A named part of a memory: of the device's outside of the allocator's reserve, or of a node's own.
struct DeviceTerm {
  std::string name;
  Bytes bytes;
  Provenance provenance = Provenance::Assumed;
  std::string source;

  bool operator==(const DeviceTerm&) const = default;
};

/// Peaks of one phase, or of the whole run. Below 0: not known.
struct MemoryPeaks {
  Bytes live;       ///< Bytes that tensors ask for.
  Bytes allocated;  ///< torch.cuda.max_memory_allocated: in blocks.
  Bytes reserved;   ///< torch.cuda.max_memory_reserved: in segments.
  Bytes device;     ///< reserved + terms outside the allocator.

  bool operator==(const MemoryPeaks&) const = default;
};

/// The highest live bytes of a part of a step, of all its micro-batches.
struct PartPeak {
  StepPhase part = StepPhase::Forward;
  Bytes live;

  bool operator==(const PartPeak&) const = default;
};

/// A stretch of a run that has peaks of its own.
enum class RunPhase : std::uint8_t {
  Initialization,  ///< Until the first forward.
  FirstStep,
  SteadyStep,  ///< All later steps.
  Evaluation,  ///< Between steps, as Saving.
  Saving,
};
/// "first_step".
std::string_view name_of(RunPhase phase);
/// "first step", for people.
std::string words_of(RunPhase phase);

struct PhasePeaks {
  RunPhase phase = RunPhase::Initialization;
  MemoryPeaks peaks;
  std::vector<PartPeak> parts = {};  ///< Parts of a predicted step, in order.

  bool operator==(const PhasePeaks&) const = default;
};

/// A tensor that is alive at the peak; equal ones of repeated blocks are merged.
struct LiveTensor {
  std::string name;  ///< "model.layers.{0..27}: mlp.gate_proj output"
  MemoryCategory category = MemoryCategory::Activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< Sum of all of them.

  bool operator==(const LiveTensor&) const = default;
};

/// When and where live memory is highest.
struct PeakMoment {
  StepPhase phase = StepPhase::Unknown;
  std::string instruction;  ///< "Backward model.layers.27"
  std::string unit;         ///< FSDP unit at work; "" is the root.
  std::string op;           ///< Innermost module and op: "mlp.down_proj linear".

  bool operator==(const PeakMoment&) const = default;
};

/// The instruction at work, or the phase if there is none.
std::string name_of(const PeakMoment& moment);

/// Where a phase of the step begins in `MemoryReport::live_over_step`.
struct PhaseMark {
  StepPhase phase = StepPhase::Unknown;
  std::int64_t index = 0;

  bool operator==(const PhaseMark&) const = default;
};

/// Host memory of the processes of one node, the one that needs most.
struct HostMemory {
  std::optional<Bytes> budget;    ///< Memory of one node; nothing: not known, and not checked.
  Bytes needed;                   ///< The sum of `terms`.
  Bytes pinned;                   ///< In it: page-locked.
  Bytes margin;                   ///< Kept free on top of it.
  std::vector<DeviceTerm> terms;  ///< Terms of all ranks of the node together.

  /// Memory that a node lacks; 0 where its memory is not known.
  Bytes missing() const { return budget ? std::max(Bytes(0), needed + margin - *budget) : Bytes(0); }
  bool operator==(const HostMemory&) const = default;
};

/// ZeRO-Infinity's files on the NVMe drives of a node, and its traffic in one steady step. For all ranks of the
/// node.
struct DriveReport {
  Bytes kept;           ///< Files.
  Bytes read, written;  ///< In a step.
  Bytes in_a_second;    ///< Rate of the node,
  Provenance provenance = Provenance::Assumed;
  std::string source;             ///< and where that figure is from.
  std::optional<Bytes> capacity;  ///< Capacity of the node; nothing: not known, and not checked.

  /// Bytes that do not fit; 0 where the capacity is not known.
  Bytes missing() const { return capacity ? std::max(Bytes(0), kept - *capacity) : Bytes(0); }
  bool operator==(const DriveReport&) const = default;
};

/// Why a plan that runs has no room to spare.
enum class Tightness : std::uint8_t {
  None,     ///< It has, or it does not run.
  Margin,   ///< The peak is within the budget, and with what predictions were off by it is not.
  Streams,  ///< Other streams may hold more memory than is left. The allocator waits for them before it gives up.
  Flushes,  ///< An allocator without a limit would reserve more. This one gives back its cache, and goes on.
};
std::string_view name_of(Tightness tightness);

struct MemoryReport {
  std::int64_t rank = 0;  ///< Rank in the world: whose memory this is.
  Bytes budget;           ///< Total memory of the device.
  Bytes margin;           ///< Kept free on top of the prediction.
  Bytes held;             ///< In the margin: what FSDP1 or ZeRO may not get back in time from other streams.
  MemoryPeaks peaks;
  PeakMoment peak;
  BytesByCategory at_peak{};
  std::vector<LiveTensor> live_at_peak;  ///< Largest first.
  std::vector<DeviceTerm> device_terms;  ///< Reserved first; they add up to `peaks.device`.
  std::vector<PhasePeaks> phases;
  Tightness tightness = Tightness::None;
  /// Times the allocator must give back its cache to stay below the budget, in initialization and the steps that are
  /// walked; -1: it runs out of memory.
  std::int64_t cache_flushes = 0;
  std::int64_t step_flushes = 0;          ///< Those of a steady step. With Tightness::Streams the most there may be.
  Seconds flush_time{0};                  ///< Their time in a steady step, at most. Not in TimeReport::step.
  Bytes host_pinned;                      ///< Pinned host memory of this rank, with CPU offload.
  std::optional<HostMemory> host;         ///< Nothing: the plan keeps nothing of the model there.
  std::optional<DriveReport> drive = {};  ///< Nothing: the plan uses no NVMe drive.
  std::vector<Bytes> live_over_step;      ///< [instructions] The most that is live during each of one steady step.
  std::vector<PhaseMark> phase_marks;     ///< In it, in order; with accumulation, of each micro-batch.

  bool operator==(const MemoryReport&) const = default;
};

/// The first three are those of FSDP, which are predicted; a measured script may run any.
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
  Other,  ///< For a measured collective only the size of its group is known.
};
std::string_view name_of(MeshDimension dimension);

/// How a reduction combines the values of its ranks.
enum class ReduceOp : std::uint8_t {
  None,  ///< Nothing is reduced, or it is not known: what the stub GPU saw.
  Avg,
  Sum,  ///< Where the average could overflow it is divided before and after by FSDP2 itself.
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
  std::int64_t group_size = 1;  ///< Below 0: measured, and not known.
  ReduceOp reduce_op = ReduceOp::None;
  std::int64_t micro_batch = -1;  ///< In which it is issued, from 0; -1: after all of them, or not known.
  Seconds time{0};                ///< Predicted or measured duration by itself.
  Seconds exposed{0};             ///< Time that the compute stream waits for it.
  BytesByCategory live{};         ///< Predicted: what tensors hold when it is called, its own buffers included,
  /// and the sum of that in the first step. Nothing where that one has other collectives.
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
  Seconds compute{0};                ///< Busy time of the compute stream. Below 0: not measured, as these two.
  Seconds exposed_communication{0};  ///< Time that it waits for collectives.
  Seconds optimizer{0};              ///< Part of compute.
  double tokens_per_second_per_gpu = 0;
  double mfu = 0;
  Seconds low{0}, high{0};  ///< The step's uncertainty band; `high` is 0 where it has no upper end,
  /// because nobody knows what these take: ops and kernels of libraries, by name.
  std::vector<std::string> without_cost;

  bool operator==(const TimeReport&) const = default;
};

/// Whether a plan runs: core/report/device_verdict.h has the rule.
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
  std::int64_t receives_gradient_parameters = 0;  ///< -1: not known.
  Bytes buffers{0};                               ///< -1: not known.

  std::string gpu;
  std::int64_t gpus_per_node = 1;
  std::int64_t nodes = 1;
  std::vector<std::string> assumptions;

  Plan plan;  ///< Without units: there is none, as of a script that was measured.
  MemoryReport memory;
  TrafficReport traffic;
  TimeReport time;                     ///< Zero: not known.
  std::optional<Rehearsal> rehearsal;  ///< For kind "measured".

  bool operator==(const StepReport&) const = default;
};

}  // namespace fsdp
