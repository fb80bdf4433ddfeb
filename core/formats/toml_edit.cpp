// An edit is a guess from the places of the tree, and counts only if the edited text reads as the wanted tree, as in
// yaml_edit.cpp. A scalar ends where its line's value ends. A new key is a line below a key of its table, whose value
// may go over several lines: each place is tried, from the last to the first.
//
// Not modeled: arrays and tables as values; keys in tables between braces.

#include "core/formats/toml_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/json_writer.h"
#include "core/formats/toml_document.h"
#include "core/formats/yaml_edit.h"

namespace fsdp {

namespace {

std::string toml_of(const JsonValue& value) {
  if (value.type == JsonType::Bool) return value.boolean ? "true" : "false";
  return value.type == JsonType::Number ? value.text : json_quoted(value.text);
}

/// The end of a scalar on one line.
std::size_t end_of_toml_scalar(std::string_view text, std::size_t begin) {
  const char quote = begin < text.size() ? text[begin] : '\0';
  if (quote != '"' && quote != '\'') return std::min(text.find_first_of(" \t\r\n,]}#", begin), text.size());
  const std::size_t end = text.find(quote, begin + 1);
  return end == std::string_view::npos ? text.size() : end + 1;
}

std::size_t end_of_line(std::string_view text, std::size_t place) {
  const std::size_t end = text.find('\n', place);
  return end == std::string_view::npos ? text.size() : end + 1;
}

/// A line after the one of a place, whichever way that line ends.
TextEdit line_after(std::string_view text, std::size_t place, const std::string& line) {
  const std::size_t end = end_of_line(text, place);
  const std::string_view line_end = text.substr(0, end).ends_with("\r\n") ? "\r\n" : "\n";
  const bool is_ended = end > 0 && text[end - 1] == '\n';
  return {end, end, is_ended ? fmt::format("{}{}", line, line_end) : fmt::format("{}{}", line_end, line)};
}

/// The edits that may add a key to a table, the best first.
std::vector<TextEdit> lines_in(std::string_view text, const JsonValue& table, const std::string& line,
                               std::string_view beside) {
  std::vector<const JsonMember*> anchors;
  for (const JsonMember& member : table.members) anchors.insert(anchors.begin(), &member);
  std::stable_partition(anchors.begin(), anchors.end(), [&](const JsonMember* each) { return each->key == beside; });
  std::vector<TextEdit> edits;
  for (const JsonMember* anchor : anchors) edits.push_back(line_after(text, anchor->value.offset, line));
  edits.push_back(line_after(text, table.offset, line));  // Below the header.
  return edits;
}

std::vector<TextEdit> edits_of(const JsonDocument& document, std::string_view key, const JsonValue& value,
                               std::string_view beside) {
  const std::size_t dot = key.rfind('.');
  const std::string name(key.substr(dot == std::string_view::npos ? 0 : dot + 1));
  const std::string line = fmt::format("{} = {}", name, toml_of(value));
  const JsonValue* table = &document.root;
  for (std::string_view rest = key; table != nullptr && rest.find('.') != std::string_view::npos;) {
    table = table->type == JsonType::Object ? table->find(rest.substr(0, rest.find('.'))) : nullptr;
    rest.remove_prefix(rest.find('.') + 1);
  }
  const std::string_view text = document.text;
  if (table == nullptr || table->type != JsonType::Object) {
    return {line_after(text, text.empty() ? 0 : text.size() - 1, fmt::format("\n[{}]\n{}", key.substr(0, dot), line))};
  }
  const JsonValue* old = table->find(name);
  if (old == nullptr) return lines_in(text, *table, line, beside);
  return {{old->offset, end_of_toml_scalar(text, old->offset), toml_of(value)}};
}

}  // namespace

Result<std::string> with_toml_key(const JsonDocument& document, std::string_view key, const JsonValue& value,
                                  std::string_view beside) {
  JsonValue wanted = document.root;
  set_value(wanted, key, value);
  for (const TextEdit& edit : edits_of(document, key, value, beside)) {
    std::string text = document.text;
    text.replace(edit.begin, edit.end - edit.begin, edit.text);
    const Result<JsonDocument> again = parse_toml(text, document.name);
    if (again && have_same_values(again->root, wanted)) return text;
  }
  return failure(document.name, fmt::format("{} cannot be changed without rewriting more of the file.", key),
                 fmt::format("Write it yourself: {} = {}", key, toml_of(value)));
}

}  // namespace fsdp
