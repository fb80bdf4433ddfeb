#include "core/base/printable.h"

#include <fmt/format.h>

#include "core/base/utf8.h"

namespace fsdp {

namespace {

char32_t character(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(bytes[i])); };
  switch (bytes.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

bool is_obeyed(char32_t c) {
  if (c == '\t' || c == '\n') return false;
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool turns =
      c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  // Not characters, and refused by some readers of YAML.
  const bool is_none = c == 0xFFFE || c == 0xFFFF;
  return is_control || turns || is_none;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i++]));
      continue;
    }
    const std::string_view bytes = text.substr(i, length);
    const char32_t c = character(bytes);
    if (!is_obeyed(c)) {
      result += bytes;
    } else {
      result += fmt::format(fmt::runtime(c < 0x80 ? "\\x{:02x}" : "\\u{:04x}"), static_cast<unsigned>(c));
    }
    i += length;
  }
  return result;
}

}  // namespace fsdp
