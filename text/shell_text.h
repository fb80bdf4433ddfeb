#pragma once

// Words in a shell's syntax.

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text {

/// A text in single quotes, for any contents: 'it'\''s'. Line feeds and control characters become escapes in $'...'.
std::string quoted_for_shell(std::string_view text);

/// A shell command: words with blanks or special characters, and empty ones, in quotes.
std::string command_text(const std::vector<std::string>& words);

/// "NAME=value" before a command, the value in quotes if a shell would interpret it.
std::string assignment_text(std::string_view assignment);

}  // namespace fsdp::text
