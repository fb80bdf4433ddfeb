#pragma once

// Words as a shell takes them.

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::planner {

/// A text in single quotes, whatever it has: 'it'\''s'.
std::string quoted_for_shell(std::string_view text);

/// A command as a shell takes it: words with blanks or signs, and empty ones, in quotes.
std::string command_text(const std::vector<std::string>& words);

}  // namespace fsdp::planner
