#include "planner/check/mended_file.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

namespace fsdp::planner {

namespace {

/// A stretch of the text, and what comes in its place.
struct Edit {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string text;
};

constexpr std::string_view kWordEnds = " \t\r\n,]}#";

bool is_word_of_json(std::string_view word) {
  return word == "true" || word == "false" || (!word.empty() && word.find_first_not_of("0123456789.") == word.npos);
}

/// The scalar that begins at a place, replaced.
std::optional<Edit> replaced(std::string_view text, std::size_t begin, std::string value) {
  if (begin >= text.size()) return std::nullopt;
  const char quote = text[begin];
  if (quote == '"' || quote == '\'') {
    const std::size_t end = text.find(quote, begin + 1);
    if (end == std::string_view::npos || is_word_of_json(value)) return std::nullopt;
    const std::string_view inside = text.substr(begin + 1, end - begin - 1);
    const bool is_plain = inside.find_first_of("\\\n") == std::string_view::npos;
    const bool is_doubled = end + 1 < text.size() && text[end + 1] == quote;
    if (!is_plain || is_doubled) return std::nullopt;
    if (value.starts_with('\'')) value = value.substr(1, value.size() - 2);
    return Edit{begin + 1, end, std::move(value)};
  }
  const std::size_t end = std::min(text.find_first_of(kWordEnds, begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  const bool is_scalar = !word.empty() && std::string_view("[{&*|>!%@-").find(word[0]) == std::string_view::npos;
  // A plain value of several words goes on after a blank.
  const std::size_t next = text.find_first_not_of(" \t", end);
  const bool goes_on = next != std::string_view::npos && kWordEnds.find(text[next]) == std::string_view::npos;
  if (!is_scalar || goes_on) return std::nullopt;
  return Edit{begin, end, std::move(value)};
}

std::size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// The line around a place.
std::pair<std::size_t, std::size_t> line_at(std::string_view text, std::size_t place) {
  const std::size_t before = place == 0 ? std::string_view::npos : text.rfind('\n', place - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = text.find('\n', begin);
  return {begin, end == std::string_view::npos ? text.size() : end + 1};
}

/// The line of a key in YAML, if it holds the whole value and has a neighbor in its section.
std::optional<Edit> removed(std::string_view text, std::size_t place, const std::string& key) {
  const auto [begin, end] = line_at(text, place);
  const std::string_view line = text.substr(begin, end - begin);
  const std::size_t indent = indent_of(line);
  if (!line.substr(indent).starts_with(key + ":")) return std::nullopt;
  const std::size_t value = line.find_first_not_of(" \t", indent + key.size() + 1);
  if (value == std::string_view::npos ||
      std::string_view("\r\n#[{&*|>!\"'").find(line[value]) != std::string_view::npos) {
    return std::nullopt;
  }
  const auto is_neighbor = [&](std::string_view other) {
    return !other.empty() && other != "\n" && indent_of(other) == indent;
  };
  const auto [above, above_end] = line_at(text, begin == 0 ? 0 : begin - 1);
  const bool has_above = begin > 0 && is_neighbor(text.substr(above, above_end - above));
  const bool has_below = end < text.size() && is_neighbor(text.substr(end, line_at(text, end).second - end));
  if (!has_above && !has_below) return std::nullopt;
  return Edit{begin, end, {}};
}

}  // namespace

MendedText mended_text(const std::string& text, const std::string& file, std::span<const Finding> findings) {
  const bool is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
  std::map<std::size_t, Edit, std::greater<>> edits;  // Last first, so that earlier places stay.
  for (const Finding& finding : findings) {
    const bool is_wanted = finding.severity == Severity::Error || finding.mend.how == Mend::How::Remove;
    if (finding.place.file != file || finding.mend.how == Mend::How::Advice || !is_wanted) continue;
    const std::size_t place = finding.place.offset;
    const std::optional<Edit> edit = finding.mend.how == Mend::How::Replace
                                         ? replaced(text, place, finding.mend.text)
                                         : (is_yaml ? removed(text, place, finding.mend.key) : std::nullopt);
    if (edit) edits.emplace(edit->begin, *edit);
  }
  MendedText result{text, 0};
  std::size_t before = text.size();
  for (const auto& [begin, edit] : edits) {
    if (edit.end > before) continue;
    result.text.replace(begin, edit.end - begin, edit.text);
    before = begin;
    ++result.mended;
  }
  return result;
}

}  // namespace fsdp::planner
