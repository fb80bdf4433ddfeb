// One set of escapes serves three languages: \" \\ \n \t and \uXXXX mean the same in a string of Python, in a
// double-quoted scalar of YAML and in a basic string of TOML.
//
// Sources: Python's language reference, "String and Bytes literals" and "f-strings"; YAML 1.2.2, 5.7 (escaped
// characters) and 7.3.1; YAML 1.1's types bool, null, int and float, which PyYAML resolves; TOML 1.0.0, "String".

#include "text/source_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace fsdp::text {

namespace {

void replace_all(std::string& text, std::string_view found, std::string_view put) {
  for (std::size_t at = text.find(found); at != std::string::npos; at = text.find(found, at + put.size())) {
    text.replace(at, found.size(), put);
  }
}

/// One character of a literal: itself, or its escape.
std::string escaped(std::string_view character) {
  if (character == "\"") return "\\\"";
  if (character == "\\") return "\\\\";
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  std::string shown = fsdp::printable(character);
  // printable() writes "\x1b" for a byte; TOML accepts four digits only.
  if (shown.size() == 4 && shown.starts_with("\\x")) shown = "\\u00" + shown.substr(2);
  return shown;
}

std::string escaped_text(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    result += length == 0 ? std::string("\\ufffd") : escaped(text.substr(i, length));
    i += std::max<std::size_t>(length, 1);
  }
  return result;
}

/// Whether YAML would read the word as something else than text.
bool is_word_of_yaml(std::string_view text) {
  constexpr std::array<std::string_view, 8> kWords = {"true", "false", "yes", "no", "on", "off", "null", "y"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "n" || std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line = fsdp::printable(text);
  replace_all(line, "\n", "\\n");
  replace_all(line, "\t", "\\t");
  return line;
}

std::vector<std::string> as_comments(const std::vector<std::string>& lines) {
  std::vector<std::string> comments;
  for (const std::string& line : lines) comments.push_back(line.empty() ? "#" : "# " + one_line(line));
  return comments;
}

std::string python_docstring(const std::vector<std::string>& lines) {
  std::string plain;
  for (std::size_t i = 0; i < lines.size(); ++i) plain += (i == 0 ? "" : "\n") + one_line(lines[i]);
  std::string text;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    // A quote before other characters is left unescaped, so that a call in the text can be copied as it is.
    const bool may_end = plain[i] == '"' && (i + 1 == plain.size() || plain[i + 1] == '"');
    if (plain[i] == '\\' || may_end) text += '\\';
    text += plain[i];
  }
  return "\"\"\"" + text + "\"\"\"";
}

std::string quoted_text(std::string_view text) {
  return "\"" + escaped_text(text) + "\"";
}

std::string python_f_string(std::string_view before, std::string_view variable, std::string_view after) {
  const auto literal = [](std::string_view part) {
    std::string text = escaped_text(part);
    replace_all(text, "{", "{{");
    replace_all(text, "}", "}}");
    return text;
  };
  return fmt::format("f\"{}{{{}}}{}\"", literal(before), variable, literal(after));
}

std::string yaml_text(std::string_view text) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  const bool begins = !text.empty() && (std::isalpha(static_cast<unsigned char>(text.front())) != 0 || text[0] == '_');
  const bool goes_on =
      std::all_of(text.begin(), text.end(), [&](char c) { return is_plain(c) || c == ',' || c == '.'; });
  return begins && goes_on && !is_word_of_yaml(text) ? std::string(text) : quoted_text(text);
}

}  // namespace fsdp::text
