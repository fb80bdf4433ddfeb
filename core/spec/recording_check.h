#pragma once

// Whether a recording can be walked: each tensor comes before it goes, and nothing goes twice.

#include <optional>
#include <string>
#include <string_view>

#include "core/model/model.h"

namespace fsdp {

/// Where a recording is wrong.
struct RecordingMistake {
  std::string what;
  std::string_view part;  ///< "forward", "recompute", "backward" or "outputs".
  int op = -1;            ///< Op of forward and backward.
  int event = -1;         ///< Event of the op, or of the recomputation; the output; -1: the end of the tape.
};

/// Writes what a recorder may leave to the reader: an input that the tape never releases goes with the last of the
/// backward, or of the forward where there is none; a gradient reaches its parameter before the next one is made.
/// REQUIRES: as check_recording().
void complete_recording(const Block& block, RecordedTape& tape);

/// The first mistake of a tape. REQUIRES: its sizes are those of the block and its indices are in range.
std::optional<RecordingMistake> check_recording(const Block& block, const RecordedTape& tape);

}  // namespace fsdp
