#pragma once

// A configuration with its mistakes mended, and everything else as it was.

#include <span>
#include <string>

#include "planner/check/finding.h"

namespace fsdp::planner {

struct MendedText {
  std::string text;
  int mended = 0;  ///< Findings that are mended in it.
};

/// Replaces values of `file` that are errors, and removes keys without effect. Comments and order stay. Leaves a place
/// alone if it is not certain what stands there: a value over several lines, in a list or with escapes, a quoted value
/// that becomes another type, and any key of JSON that would go.
MendedText mended_text(const std::string& text, const std::string& file, std::span<const Finding> findings);

}  // namespace fsdp::planner
