#pragma once

// What a capture must meet before it is written: what it predicts of its own script, sharded, beside what was
// rehearsed.

#include <string>
#include <vector>

#include "core/report/compare.h"

namespace fsdp::planner {

/// What a capture may be off by, in bytes requested and allocated in a steady step, and in what collectives move.
inline constexpr double kCaptureTolerance = 0.005;
/// GPUs that the model is sharded over for it.
inline constexpr int kCheckedGpus = 2;

struct CaptureCheck {
  std::vector<ComparedTerm> terms;  ///< Of a steady step, which is what a capture records. Empty: none was made.
  std::string not_made;             ///< Why there is none; empty too where nobody asked for one.

  /// Whether every term that must be met is. Reserved bytes follow from the others by the allocator's choices, of which
  /// a few depend on what was before: they are shown.
  bool holds() const;
};

/// The terms of a comparison that say something of a capture.
CaptureCheck checked(const Comparison& comparison);

}  // namespace fsdp::planner
