#include "core/formats/lengths_file.h"

#include <fmt/format.h>

#include <optional>

#include "core/base/files.h"
#include "core/base/parse_units.h"
#include "core/base/printable.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

constexpr std::size_t kMostLengthErrors = 5;

std::string_view trimmed_line(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

Result<std::vector<std::int64_t>> parse_lengths(std::string_view text, std::string_view name, std::string_view where) {
  std::string_view rest = trimmed_line(text);
  const bool is_array = rest.starts_with('[') && rest.ends_with(']') && rest.size() > 1;
  if (is_array) rest = rest.substr(1, rest.size() - 2);
  std::vector<std::int64_t> lengths;
  Errors errors;
  std::int64_t place = 0;
  for (const std::string_view part : split(rest, is_array ? ',' : '\n')) {
    ++place;
    const std::string_view word = trimmed_line(part);
    if (!is_array && (word.empty() || word.starts_with('#'))) continue;
    const std::optional<std::int64_t> length = parse_integer(word);
    if (length && *length > 0) {
      lengths.push_back(*length);
    } else if (errors.size() < kMostLengthErrors && !trimmed_line(rest).empty()) {
      constexpr std::size_t kShown = 40;
      errors.push_back({std::string(where),
                        fmt::format("{}: {} {}, \"{}\", is no length.", name, is_array ? "element" : "line", place,
                                    printable(word.substr(0, kShown))),
                        "Write a number of tokens above 0."});
    }
  }
  if (errors.empty() && lengths.empty()) {
    errors.push_back({std::string(where), fmt::format("{} has no lengths.", name),
                      "Write a number of tokens in each line, or a JSON array of them."});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return lengths;
}

Result<std::vector<std::int64_t>> read_lengths(const std::string& path, std::string_view where) {
  auto text = read_text_file(path);
  if (!text) {
    Errors errors = std::move(text).error();
    for (Error& error : errors) error.where = std::string(where);
    return tl::unexpected(std::move(errors));
  }
  return parse_lengths(*text, path, where);
}

}  // namespace fsdp
