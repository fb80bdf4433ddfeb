#pragma once

// Commands and lines of Python, for people.

#include <string>
#include <vector>

#include "core/report_rehearsal.h"

namespace fsdp::planner {

/// A command as a shell would take it: words with blanks or signs in quotes.
std::string command_text(const std::vector<std::string>& words);

/// A file without what everybody knows: the folder that is worked in, the place of installed packages.
std::string short_path(const std::string& file, const std::string& folder);

/// "train.py:41 main"
std::string frame_text(const PythonFrame& frame, const std::string& folder);

/// The frames that say most, innermost first: without those inside torch, unless there are no others; at most 5, or
/// all.
void add_stack(std::vector<std::string>& lines, const std::vector<PythonFrame>& stack, const std::string& folder,
               bool all);

}  // namespace fsdp::planner
