#pragma once

// The schedule: one training step of one rank, as a list of instructions.
//
// This is the contract of the whole program. The planner chooses a plan, `lower()` turns the plan into a
// schedule, the simulator predicts the schedule's cost, and the executor runs it on real devices. Both read the same
// list, so a gap between prediction and measurement is a gap in a cost model.
//
// Names and order of events are those of PyTorch FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py), in
// the order in which the CPU issues them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/sharding.h"
#include "core/plan/step_phase.h"

namespace fsdp {

enum class InstructionKind : std::uint8_t {
  LoadInputs,       ///< The data loader puts a micro-batch on the device.
  Unshard,          ///< Start the all-gather of the unit: cast if the dtypes differ, allocate its output.
  WaitForUnshard,   ///< Wait for the all-gather and copy it out into the unsharded parameters.
  LeaveRoot,        ///< The root's post-forward hook: free the root's inputs.
  Forward,          ///< Run the ops [op_begin, op_end) of a call.
  Reshard,          ///< Free the unsharded parameters (in forward, keep a smaller shard if the unit asks for it).
  Backward,         ///< Run the backward of the ops [op_begin, op_end) of a call, last op first.
  AccumulateGrads,  ///< Without sync: keep the unsharded gradients, in the reduce dtype.
  ReduceGrads,      ///< Allocate the reduction's input; reduce-scatter, with HSDP all-reduce, into .grad.
  LimitGathers,     ///< FSDP1: ask its limiter for a unit that is still gathered, as Unshard does. ZeRO-3: request
                    ///< one parameter of a group.
  FlattenGrads,     ///< FSDP1: concatenate the gradients of one pass into one flat gradient.
  FinishReduce,     ///< End of backward: wait for all reductions.
  SyncBuffers,      ///< DDP: rank 0 sends the model's buffers to all.
  PrepareReduce,    ///< DDP and ZeRO, after the forward: later gradients go into buckets.
  ReduceBucket,     ///< DDP and ZeRO: all-reduce a full bucket.
  ReduceUsedMap,    ///< DDP with find_unused_parameters: all-reduce the map of used parameters.
  Free,             ///< Free a buffer of a unit after its last use.
  CheckOverflow,    ///< ZeRO: check whether some rank's gradients are not finite.
  ClipGradNorm,     ///< For ZeRO without clipping: the norm only.
  OptimizerStep,
  GatherParameters,   ///< ZeRO: all-gather the updated parts. ZeRO-3: some parameters, one by one.
  FetchParameters,    ///< ZeRO-3: start the all-gather of a group of parameters.
  WaitForParameters,  ///< Wait for that all-gather; copy each of several parameters out of its output.
  DropFetched,        ///< Free that output: each of its parameters was requested.
  ReleaseParameters,  ///< Free a group of gathered parameters.
  ZeroGrad,
  RunOther,  ///< The forward of another model, without gradients: `part` is its index in `Plan::also`.
};

inline constexpr int kNumInstructionKinds = static_cast<int>(InstructionKind::RunOther) + 1;
std::string_view name_of(InstructionKind kind);
/// Whether an instruction of this kind may have a collective. OptimizerStep is none: Muon's are its own.
bool calls_ranks(InstructionKind kind);

/// A buffer that one instruction makes and a later one frees. A buffer that lives only as long as its instruction is
/// not listed: both interpreters know it from the instruction.
enum class BufferKind : std::uint8_t {
  /// Made by Unshard, read by WaitForUnshard. Has no bytes if the shard group is one rank. Flat parameters
  /// have none: ops compute with the output of the all-gather.
  AllGatherOutput,
  ReduceInput,  ///< Made by ReduceGrads; the reduce-scatter reads it while the next unit computes.
  /// Made by a ReduceGrads that `keeps_all_reduce_output`. Without a cast it is the sharded gradient itself: Free then
  /// drops FSDP2's second reference to it.
  AllReduceOutput,
  /// DDP: the buckets of the first reduction, made with the wrapper. After its Free those of all later ones are there.
  FirstBuckets,
};

inline constexpr int kNumBufferKinds = static_cast<int>(BufferKind::FirstBuckets) + 1;
/// "all-gather output".
std::string_view name_of(BufferKind kind);

/// The most buffers of one kind that a unit has at once: it keeps one while a second pass gathers again.
inline constexpr int kNumSlots = 2;

/// The slot of the reduction of `Layout::loss`.
inline constexpr std::uint8_t kSlotOfLoss = 1;

struct Instruction {
  InstructionKind kind = InstructionKind::Forward;
  StepPhase phase = StepPhase::Forward;
  BufferKind buffer = BufferKind::AllGatherOutput;  ///< For Free: the kind of the buffer,
  /// and its slot. For Unshard and WaitForUnshard: the slot of the gather's output. For ReduceGrads: `kSlotOfLoss` if
  /// it reduces what the loss has made in the forward, with the slot of its input.
  std::uint8_t slot = 0;
  /// For Free: true if it ends the instruction before it, false if it begins the one after it. Either may have several.
  bool ends_previous = false;
  bool keeps_last_gradient = false;      ///< ReduceGrads: the last unsharded gradient lives until its end.
  bool keeps_all_reduce_output = false;  ///< ReduceGrads: the all-reduce's output lives until it is freed.
  bool reduces_each_norm = true;         ///< ClipGradNorm: the all-reduce has one element per parameter, otherwise one.
  bool reduces_in_float64 = false;       ///< ClipGradNorm: that one is in fp64, whatever the gradients' dtype.
  /// The ranks of its collective: who gathers, and who scatters or sums. Empty: nothing is called. Unshard has a part
  /// of a group for the shard that an integer reshard_after_forward kept.
  RankGroup ranks = {};
  /// ReduceGrads and ReduceBucket: the ranks that all-reduce what each of `ranks` reduces. ClipGradNorm: those that
  /// share the experts of a layer, whose norms they sum.
  RankGroup copies = {};
  int bucket = -1;   ///< As `Layout::bucket` counts them, for ReduceBucket.
  int group = -1;    ///< In `Schedule::groups`, for ZeRO-3's instructions on parameters.
  int unit = -1;     ///< In `Layout::units`, for the instructions of a unit; for Free, the owner of the buffer.
  int call = -1;     ///< In `Model::calls`, for Forward and Backward; for Unshard the loss that gathers its unit.
  int op_begin = 0;  ///< In the block of the call.
  int op_end = 0;
  int rerun_op = -1;  ///< In a checkpointed block that the next Backward reruns: this comes before that op.
  int micro_batch = 0;
  /// For a step of passes: in `Model::optimizers` for OptimizerStep, in `Model::clearings` for ZeroGrad. For RunOther:
  /// in `Plan::also`.
  int part = -1;

  /// ReduceGrads: the gradients are those that the loss has made (`Layout::loss`), before the forward is over.
  bool reduces_loss() const { return kind == InstructionKind::ReduceGrads && slot == kSlotOfLoss; }
  bool operator==(const Instruction&) const = default;
};

/// The elements that a reduction gets and gives.
struct ReducedElements {
  std::int64_t shard = 0;
  std::int64_t full = 0;
  std::int64_t whole = 0;  ///< Without padding.
};
ReducedElements elements_of_reduction(const Layout& layout, const Instruction& step);

/// Whether an Unshard gathers the shard that an integer reshard_after_forward kept.
bool gathers_smaller_shard(const Layout& layout, const Instruction& step);

/// Parameters that ZeRO-3 gathers in one collective, or frees at once.
struct ParameterGroup {
  std::vector<int> parameters;   ///< In `Model::parameters`, in the order in which they lie in the output.
  int last = -1;                 ///< The one that is requested last: no other live output has it as its last.
  RankGroup ranks = {};          ///< Who gathers: all ranks, or the neighbors that have a second copy (hpZ).
  std::int64_t drive_bytes = 0;  ///< The rank's parts, read from an NVMe drive before the gather begins.

  bool operator==(const ParameterGroup&) const = default;
};

/// Parameters that ZeRO-3 reads from an NVMe drive in a step.
struct DriveReads {
  std::int64_t read = 0;     ///< Bytes, in whole pieces.
  std::int64_t buffers = 0;  ///< The most parts that are in buffers at once,
  bool asks_twice = false;   ///< and whether one is read for two uses, at which DeepSpeed fails.

  bool operator==(const DriveReads&) const = default;
};

struct Schedule {
  std::vector<Instruction> instructions;  ///< One steady step.
  std::vector<ParameterGroup> groups = {};
  DriveReads drive = {};

  bool operator==(const Schedule&) const = default;
};

/// An instruction with the frees that it begins and ends with. Reports count, time and show it as one.
struct Action {
  std::size_t begin = 0;  ///< In `Schedule::instructions`: frees [begin, main),
  std::size_t main = 0;   ///< the instruction itself, which is no Free,
  std::size_t end = 0;    ///< and frees [main + 1, end).
};

/// The action that begins at an index; the next one begins at its end. REQUIRES: the schedule is valid.
inline Action action_at(const std::vector<Instruction>& instructions, std::size_t begin) {
  Action action{begin, begin, begin};
  while (instructions[action.main].kind == InstructionKind::Free) ++action.main;
  action.end = action.main + 1;
  while (action.end < instructions.size() && instructions[action.end].ends_previous) ++action.end;
  return action;
}

/// [actions] The instructions of a schedule without its frees.
std::vector<Instruction> actions_of(const Schedule& schedule);

/// Checks the promises that both interpreters rely on:
///  - an op runs only while every unit that owns a parameter of it is unsharded;
///  - Unshard comes only when sharded, WaitForUnshard only after Unshard, Reshard only after WaitForUnshard;
///  - the ops of a micro-batch run forward once in order, then backward once in reverse order;
///  - gradients are reduced (or kept) once per unit and micro-batch, after the backward of all its ops; those kept from
///    earlier micro-batches may be reduced before;
///  - nothing is unsharded when the optimizer runs, and each unit is sharded at the end; of a replicated layout, whose
///    units are always unsharded, each bucket is reduced once in a micro-batch that reduces, in order, when all its
///    gradients are there;
///  - under ZeRO-3 an op runs only while its parameters are gathered; no parameter is gathered twice, and only gathered
///    ones are freed;
///  - a buffer is freed once after it was made, never used after that, and none outlives the step;
///  - a Free begins or ends an instruction;
///  - DDP's first reduction is in its own buckets, which are freed before any later one;
///  - a reduction of several ranks names them, and what calls nobody names none.
/// In a step of passes each pass is such a micro-batch, for the ops that its backward runs through; an optimizer
/// requires its own units to be sharded; units that are gathered at the begin of a step are gathered at its end.
/// Errors: `where` is the index of an instruction that breaks one.
Errors validate(const Schedule& schedule, const ModelIndex& index, const Layout& layout);

/// One line per instruction, "Backward model.layers.27 [0, 34)", for golden files and people.
std::string to_text(const Schedule& schedule, const ModelIndex& index, const Layout& layout);

/// How each call is checkpointed [num_calls].
std::vector<CheckpointMode> checkpoint_modes(const ModelIndex& index, const Checkpointing& checkpointing);

/// [num ops] Whether selective checkpointing keeps the outputs of an op of a block.
std::vector<bool> kept_ops(const Block& block, const Checkpointing& checkpointing);

/// Whether the backward of an op needs more of its forward than sizes.
bool saves_tensors(const Op& op);

/// The position of the op whose backward is the first to read a saved tensor of `call`, if the backward runs down from
/// `position`; the first position of the call if none reads one. A checkpointed block is recomputed there.
int first_use_of_saved(const ModelIndex& index, int call, int position);

/// The first steps of a run, and those after them.
struct StepSchedules {
  /// Empty if it equals the others. It differs under DDP, which has other buckets; under FSDP1 with forward_prefetch
  /// and under ZeRO-3, which do not know the order of modules yet; and in a step of passes that leaves a model gathered
  /// for the next.
  Schedule first;
  Schedule steady;
  /// Empty if it equals `steady`. Under DDP the second forward of a run makes the buckets of all later steps.
  Schedule second = {};
};

}  // namespace fsdp
