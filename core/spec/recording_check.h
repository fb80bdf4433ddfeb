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
  int op = -1;            ///< Of forward and backward.
  int event = -1;         ///< Of the op, or of the recomputation; the output; -1: the end of the tape.
};

/// The first mistake of a tape. REQUIRES: its sizes are those of the block and its indices are in range.
std::optional<RecordingMistake> check_recording(const Block& block, const RecordedTape& tape);

}  // namespace fsdp
