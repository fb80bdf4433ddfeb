#pragma once

// The output's terminal: its width, whether it shows colors, and the width of a text on it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text {

struct Terminal {
  bool is_terminal = false;
  int width = 80;      ///< Columns. Lines are wrapped to it; nothing is cut off.
  bool color = false;  ///< Whether ANSI escape sequences are allowed.

  bool operator==(const Terminal&) const = default;
};

enum class ColorMode { Auto, Always, Never };

/// The environment variables that describe a terminal. Empty if they are not set.
struct TerminalEnvironment {
  std::string no_color;
  std::string clicolor_force;
  std::string force_color;
  std::string term;
  std::string columns;
};

/// The terminal settings from `color` and the environment: the flag first, then NO_COLOR, then CLICOLOR_FORCE and
/// FORCE_COLOR, then whether it is a terminal that is not "dumb". The width is that of the terminal, else COLUMNS, else
/// 80, and at least 40.
Terminal terminal_of(bool is_terminal, std::optional<int> terminal_width, ColorMode color,
                     const TerminalEnvironment& environment);

/// The environment of this process.
TerminalEnvironment environment_of_process();

/// Columns of the terminal of a file descriptor; nullopt if it is no terminal, 0 if the width is unknown.
std::optional<int> terminal_width(int descriptor);

enum class Style { Plain, Good, Bad, Warning, Strong, Faint };

/// The text in a style, if the terminal shows colors.
std::string styled(std::string_view text, Style style, const Terminal& terminal);

/// Columns of a text: wide characters count two, combining ones and escape sequences none.
int display_width(std::string_view text);

/// Breaks a text at blanks into lines of at most `width` columns; a longer word stands alone. At least one line.
std::vector<std::string> wrap(std::string_view text, int width);

}  // namespace fsdp::text
