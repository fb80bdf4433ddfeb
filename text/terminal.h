#pragma once

// Where the output goes: how wide it is, whether it takes colors, and how wide a text is on it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::planner {

struct Terminal {
  bool is_terminal = false;
  int width = 80;      ///< Columns. Lines are wrapped at it; nothing is ever cut off.
  bool color = false;  ///< ANSI escape sequences are welcome.

  bool operator==(const Terminal&) const = default;
};

enum class ColorMode { Auto, Always, Never };

/// The environment variables that decide about a terminal; empty where they are not set.
struct TerminalEnvironment {
  std::string no_color;
  std::string clicolor_force;
  std::string force_color;
  std::string term;
  std::string columns;
};

/// The terminal settings from `color` and the environment: the flag first, then NO_COLOR, then CLICOLOR_FORCE and
/// FORCE_COLOR, then whether it is a terminal that is not "dumb". The width is that of the terminal, else COLUMNS, else
/// 80, and never below 40.
Terminal terminal_of(bool is_terminal, std::optional<int> terminal_width, ColorMode color,
                     const TerminalEnvironment& environment);

/// The environment of this process.
TerminalEnvironment environment_of_process();

/// Columns of the terminal of a file descriptor; nothing when it is none, 0 when it does not say.
std::optional<int> terminal_width(int descriptor);

enum class Style { Plain, Good, Bad, Warning, Strong, Faint };

/// The text in a style, where the terminal takes colors.
std::string styled(std::string_view text, Style style, const Terminal& terminal);

/// Columns that a text takes: wide characters two, combining ones none, escape sequences none.
int display_width(std::string_view text);

/// Breaks a text at blanks into lines of at most `width` columns; a word that is longer stands alone. At least one
/// line.
std::vector<std::string> wrap(std::string_view text, int width);

}  // namespace fsdp::planner
