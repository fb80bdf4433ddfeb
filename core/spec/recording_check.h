#pragma once

// Checks that a recording can be walked: each tensor is made before it is freed, and freed once.

#include <optional>
#include <string>
#include <string_view>

#include "core/model/model.h"

namespace fsdp {

/// The place of a mistake in a recording.
struct RecordingMistake {
  std::string what;
  std::string_view part;  ///< "forward", "recompute", "backward" or "outputs".
  int op = -1;            ///< Op of the forward or backward.
  int event = -1;         ///< Event of the op, or of the recomputation; the output; -1 for the end of the tape.
};

/// Adds events that a recorder may omit. An input that the tape never releases is released with the last op of the
/// backward, or of the forward if there is no backward. A gradient reaches its parameter before the next one is made.
/// REQUIRES: as check_recording().
void complete_recording(const Block& block, RecordedTape& tape);

/// The first mistake of a tape; `nullopt` if it has none. REQUIRES: its sizes are those of the block and its indices
/// are in range.
std::optional<RecordingMistake> check_recording(const Block& block, const RecordedTape& tape);

}  // namespace fsdp
