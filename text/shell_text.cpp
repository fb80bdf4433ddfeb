// Sources: POSIX.1-2024, Shell Command Language, 2.2.2 (single quotes) and 2.2.4 ($'...', which bash, zsh and ksh have
// had for long).

#include "text/shell_text.h"

#include "text/source_text.h"

namespace fsdp::text {

namespace {

std::string word_text(std::string_view word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
  return is_plain ? std::string(word) : quoted_for_shell(word);
}

/// $'...', with control characters escaped.
std::string quoted_with_escapes(std::string_view text) {
  std::string inner;
  for (const char c : text) {
    if (c == '\'' || c == '\\') inner += '\\';
    inner += c;
  }
  return "$'" + one_line(inner) + "'";
}

}  // namespace

std::string quoted_for_shell(std::string_view text) {
  if (one_line(text) != text) return quoted_with_escapes(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word_text(word);
  return text;
}

std::string assignment_text(std::string_view assignment) {
  const std::size_t value = assignment.find('=') + 1;
  if (value == 0) return std::string(assignment);
  return std::string(assignment.substr(0, value)) + word_text(assignment.substr(value));
}

}  // namespace fsdp::text
