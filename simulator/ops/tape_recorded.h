#pragma once

// Converts recordings to tapes: the block of a captured model has no kernels of its own, and its tape is the recorded
// one.

#include <optional>

#include "core/base/result.h"
#include "core/model/model.h"
#include "simulator/ops/op_rules.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// A recorded block as a program without kernels: one slot for each value, then one for each parameter, contiguous.
/// REQUIRES: the block has a recording.
KernelProgram recorded_program(const Block& block, Dtype activation);

/// The tape of a recording. REQUIRES: it passes check_recording() (core/spec/recording_check.h).
Tape tape_of_recording(const Block& block, const RecordedTape& recorded);

/// The result of looking for a tape: empty if it was not recorded.
struct FoundTape {
  Tape tape;
  std::optional<Error> refusal;  ///< The missing recording.
};
/// The tape of a block's recording for a precision and a mode of checkpointing. REQUIRES: the block has a recording.
FoundTape find_recorded_tape(const Block& block, const OpRuleContext& context, CheckpointMode mode,
                             const Checkpointing& checkpointing);

}  // namespace fsdp::simulator
