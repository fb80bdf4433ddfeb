#pragma once

// Lines of Python, for people.

#include <string>
#include <vector>

#include "core/report/report_rehearsal.h"

namespace fsdp::text {

/// A file's path without a known prefix: the working folder, or the folder of installed packages.
std::string short_path(const std::string& file, const std::string& folder);

/// "train.py:41 main"
std::string frame_text(const PythonFrame& frame, const std::string& folder);

/// The function that a line called, in a word: "cross_entropy" of "torch/nn/functional.py:3504 cross_entropy", "linear"
/// of "torch/nn/modules/linear.py:134 forward".
std::string through_text(const std::string& through);

/// The most informative frames: the script's own line `at`, then others, innermost first, without those inside torch;
/// at most 4, or all.
void add_stack(std::vector<std::string>& lines, const PythonFrame& at, const std::vector<PythonFrame>& stack,
               const std::string& folder, bool all);

}  // namespace fsdp::text
