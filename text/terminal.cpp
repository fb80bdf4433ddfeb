#include "text/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "core/base/environment.h"
#include "core/base/utf8.h"

namespace fsdp::text {

namespace {

constexpr int kNarrowest = 40;
constexpr int kUsualWidth = 80;

bool takes_color(bool is_terminal, ColorMode color, const TerminalEnvironment& environment) {
  if (color != ColorMode::Auto) return color == ColorMode::Always;
  if (!environment.no_color.empty()) return false;
  const auto is_on = [](const std::string& text) { return !text.empty() && text != "0"; };
  if (is_on(environment.clicolor_force) || is_on(environment.force_color)) return true;
  return is_terminal && environment.term != "dumb";
}

std::uint32_t code_point(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])); };
  switch (bytes.size()) {
    case 2:
      return (byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU);
    case 3:
      return (byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
    case 4:
      return (byte(0) & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU);
    default:
      return byte(0);
  }
}

/// The blocks of Unicode's East Asian Width "W" and "F" (UAX #11), coarsely, and of characters that take no column.
int columns_of(std::uint32_t point) {
  using Block = std::pair<std::uint32_t, std::uint32_t>;
  constexpr std::array kNone = {Block{0x0000, 0x001F}, Block{0x007F, 0x009F}, Block{0x0300, 0x036F},
                                Block{0x200B, 0x200F}, Block{0xFE00, 0xFE0F}, Block{0xFEFF, 0xFEFF}};
  constexpr std::array kWide = {Block{0x1100, 0x115F}, Block{0x2E80, 0xA4CF},   Block{0xAC00, 0xD7A3},
                                Block{0xF900, 0xFAFF}, Block{0xFE30, 0xFE6F},   Block{0xFF00, 0xFF60},
                                Block{0xFFE0, 0xFFE6}, Block{0x1F300, 0x1FAFF}, Block{0x20000, 0x3FFFD}};
  const auto holds = [point](const Block& block) { return point >= block.first && point <= block.second; };
  if (std::any_of(kNone.begin(), kNone.end(), holds)) return 0;
  return std::any_of(kWide.begin(), kWide.end(), holds) ? 2 : 1;
}

}  // namespace

Terminal terminal_of(bool is_terminal, std::optional<int> terminal_width, ColorMode color,
                     const TerminalEnvironment& environment) {
  int width = kUsualWidth;
  if (terminal_width && *terminal_width > 0) {
    width = *terminal_width;
  } else {
    int columns = 0;
    const std::string& text = environment.columns;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (error == std::errc{} && end == text.data() + text.size() && columns > 0) width = columns;
  }
  return {.is_terminal = is_terminal,
          .width = std::max(width, kNarrowest),
          .color = takes_color(is_terminal, color, environment)};
}

TerminalEnvironment environment_of_process() {
  return {.no_color = environment_variable("NO_COLOR"),
          .clicolor_force = environment_variable("CLICOLOR_FORCE"),
          .force_color = environment_variable("FORCE_COLOR"),
          .term = environment_variable("TERM"),
          .columns = environment_variable("COLUMNS")};
}

std::optional<int> terminal_width(int descriptor) {
  if (isatty(descriptor) != 1) return std::nullopt;
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string styled(std::string_view text, Style style, const Terminal& terminal) {
  if (!terminal.color || style == Style::Plain || text.empty()) return std::string(text);
  const char* code = "";
  switch (style) {
    case Style::Good:
      code = "\x1b[1;32m";
      break;
    case Style::Bad:
      code = "\x1b[1;31m";
      break;
    case Style::Warning:
      code = "\x1b[33m";
      break;
    case Style::Strong:
      code = "\x1b[1m";
      break;
    case Style::Faint:
      code = "\x1b[2m";
      break;
    case Style::Plain:
      break;
  }
  return code + std::string(text) + "\x1b[0m";
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    if (text.starts_with("\x1b[")) {
      const std::size_t end = text.find('m');
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      continue;
    }
    const std::size_t length = utf8_length(text);
    width += length == 0 ? 1 : columns_of(code_point(text.substr(0, length)));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return width;
}

std::vector<std::string> wrap(std::string_view text, int width) {
  std::vector<std::string> lines(1);
  int used = 0;
  while (!text.empty()) {
    const std::size_t blank = text.find(' ');
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
    const int columns = display_width(word);
    if (used > 0 && used + 1 + columns > width) {
      while (lines.back().ends_with(' ')) lines.back().pop_back();
      lines.emplace_back();
      used = 0;
    }
    if (used > 0) {
      lines.back() += ' ';
      ++used;
    }
    lines.back() += word;
    used += columns;
  }
  return lines;
}

}  // namespace fsdp::text
