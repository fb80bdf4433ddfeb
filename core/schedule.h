#pragma once

// The schedule: one training step of one rank, as a list of instructions.
//
// This is the contract of the whole program. The planner chooses a plan, `lower()` turns the plan into a schedule, the
// simulator predicts what the schedule costs, and the executor runs it on real devices. Both read the same list, so a
// gap between prediction and measurement is a gap in a cost model, never in what was run.
//
// Names and order of events are those of PyTorch FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py), in
// the order in which the CPU issues them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/sharding.h"

namespace fsdp {

enum class Do : std::uint8_t {
  LoadInputs,       ///< The data loader puts a micro-batch on the device.
  Unshard,          ///< Start the all-gather of the unit: cast where the dtypes differ, allocate its output.
  WaitForUnshard,   ///< Wait for it and copy out into the unsharded parameters.
  DropAllGather,    ///< Drop the last all-gather output of the forward (the root's post-forward).
  Forward,          ///< Run the ops [op_begin, op_end) of a call.
  Reshard,          ///< Free the unsharded parameters (keep a smaller shard where the unit says so, in forward).
  Backward,         ///< Run the backward of the ops [op_begin, op_end) of a call, last op first.
  AccumulateGrads,  ///< Without sync: keep the unsharded gradients, in the reduce dtype.
  ReduceGrads,      ///< Wait for the unit before, drop its input; reduce-scatter, with HSDP all-reduce, into .grad.
  FinishReduce,     ///< End of backward: wait for all reductions, drop what they kept.
  ClipGradNorm,
  OptimizerStep,
  ZeroGrad,
};

inline constexpr int kNumDo = static_cast<int>(Do::ZeroGrad) + 1;
std::string_view name_of(Do what);

enum class StepPhase : std::uint8_t { Forward, Backward, Optimizer };
std::string_view name_of(StepPhase phase);

struct Instruction {
  Do what = Do::Forward;
  StepPhase phase = StepPhase::Forward;
  int unit = -1;     ///< In `Layout::units`, for the instructions of a unit.
  int call = -1;     ///< In `Model::calls`, for Forward and Backward.
  int op_begin = 0;  ///< In the block of the call.
  int op_end = 0;
  int micro_batch = 0;
  bool smaller_group = false;  ///< Unshard from the shard that an integer reshard_after_forward kept.

  bool operator==(const Instruction&) const = default;
};

struct Schedule {
  std::vector<Instruction> instructions;  ///< One steady step.

  bool operator==(const Schedule&) const = default;
};

/// Checks the promises that both interpreters rely on:
///  - an op runs only while every unit that owns a parameter of it is unsharded;
///  - Unshard comes only when sharded, WaitForUnshard only after Unshard, Reshard only after WaitForUnshard;
///  - the ops of a micro-batch run forward once in order, then backward once in reverse order;
///  - gradients are reduced (or kept) once per unit and micro-batch, after the backward of all its ops; those kept from
///    earlier micro-batches may be reduced before;
///  - nothing is unsharded when the optimizer runs, and each unit is sharded at the end.
/// Errors: `where` is the index of an instruction that breaks one.
Errors validate(const Schedule& schedule, const ModelIndex& index, const Layout& layout);

/// One line per instruction, "Backward model.layers.27 [0, 34)", for golden files and people.
std::string to_text(const Schedule& schedule, const ModelIndex& index, const Layout& layout);

/// How each call is checkpointed [num_calls].
std::vector<CheckpointMode> checkpoint_modes(const ModelIndex& index, const Checkpointing& checkpointing);

/// Which ops of a block selective checkpointing keeps the outputs of [num ops].
std::vector<bool> kept_ops(const Block& block, const Checkpointing& checkpointing);

/// PyTorch FSDP2: the schedule of one step. The only place that knows its order of events (core/lower_fsdp2.cpp).
Schedule lower_fsdp2(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
