#pragma once

// Words as a shell takes them.

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::planner {

/// A text in single quotes, whatever it has: 'it'\''s'. Line feeds, and what a terminal would obey, are escapes in
/// $'...'.
std::string quoted_for_shell(std::string_view text);

/// A command as a shell takes it: words with blanks or signs, and empty ones, in quotes.
std::string command_text(const std::vector<std::string>& words);

/// "NAME=value" before a command, the value in quotes where a shell would read more in it.
std::string assignment_text(std::string_view assignment);

}  // namespace fsdp::planner
