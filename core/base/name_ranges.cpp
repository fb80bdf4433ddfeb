#include "core/base/name_ranges.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace fsdp {

namespace {

/// A number between dots or after an underscore, as PyTorch and torchvision write it: digits, no sign, no leading zero.
std::optional<std::int64_t> parse_index(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// The part of a name from `begin` to the next dot.
std::string_view component_at(std::string_view name, std::size_t begin) {
  return name.substr(begin, name.find('.', begin) - begin);
}

}  // namespace

std::string to_string(const NameRange& range) {
  if (range.step == 1) return fmt::format("{}{{{}..{}}}{}", range.before, range.first, range.last, range.after);
  return fmt::format("{}{{{}..{}..{}}}{}", range.before, range.first, range.last, range.step, range.after);
}

std::optional<NameRange> range_of(std::string_view name, std::string_view next) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < name.size() && i < next.size() && name[i] == next[i]; ++i) {
    if (name[i] == '.' || name[i] == '_') begin = i + 1;
  }
  const std::string_view number = component_at(name, begin);
  const std::string_view next_number = component_at(next, begin);
  const std::string_view after = name.substr(begin + number.size());
  const std::optional<std::int64_t> first = parse_index(number);
  const std::optional<std::int64_t> second = parse_index(next_number);
  if (!first || !second || *second <= *first || after != next.substr(begin + next_number.size())) return std::nullopt;
  return NameRange{.before = std::string(name.substr(0, begin)),
                   .after = std::string(after),
                   .first = *first,
                   .last = *second,
                   .step = *second - *first};
}

bool extend(NameRange& range, std::string_view name) {
  if (name.size() <= range.before.size() + range.after.size() || !name.starts_with(range.before) ||
      !name.ends_with(range.after)) {
    return false;
  }
  const std::size_t length = name.size() - range.before.size() - range.after.size();
  const std::optional<std::int64_t> number = parse_index(name.substr(range.before.size(), length));
  if (!number || *number - range.last != range.step) return false;
  range.last = *number;
  return true;
}

std::vector<NameRow> name_rows(std::span<const std::string> names) {
  std::vector<NameRow> rows;
  for (std::size_t i = 0; i < names.size();) {
    std::size_t end = i + 1;
    std::optional<NameRange> range;
    if (end < names.size()) range = range_of(names[i], names[end]);
    if (range) {
      ++end;
      while (end < names.size() && extend(*range, names[end])) ++end;
    }
    if (range && (range->step == 1 || end - i >= 3)) {
      rows.push_back({.single = {}, .range = std::move(range)});
      i = end;
    } else {
      rows.push_back({.single = names[i], .range = std::nullopt});
      ++i;
    }
  }
  return rows;
}

std::vector<std::string> fold_names(std::span<const std::string> names) {
  std::vector<std::string> folded;
  for (const NameRow& row : name_rows(names)) folded.push_back(row.range ? to_string(*row.range) : row.single);
  return folded;
}

Result<std::vector<std::string>> unfold_name(std::string_view text, std::string_view where) {
  const std::size_t open = text.find('{');
  const std::size_t close = text.find('}');
  if (open == std::string_view::npos && close == std::string_view::npos) return std::vector{std::string(text)};

  const auto bad = [&](std::string_view problem) {
    return failure(std::string(where), fmt::format("\"{}\" {}.", text, problem),
                   "Write a row of modules as \"model.layers.{0..27}\", with a step as \"model.layers.{0..26..2}\".");
  };
  if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
      text.find_first_of("{}", close + 1) != std::string_view::npos ||
      text.find('{', open + 1) != std::string_view::npos) {
    return bad("does not hold exactly one pair of braces");
  }
  std::string_view inside = text.substr(open + 1, close - open - 1);
  std::vector<std::int64_t> numbers;
  while (true) {
    const std::size_t dots = inside.find("..");
    const std::optional<std::int64_t> number = parse_index(inside.substr(0, dots));
    if (!number || numbers.size() == 3) return bad("has braces without a range of numbers");
    numbers.push_back(*number);
    if (dots == std::string_view::npos) break;
    inside.remove_prefix(dots + 2);
  }
  if (numbers.size() < 2) return bad("has braces without a range of numbers");
  const std::int64_t step = numbers.size() == 3 ? numbers[2] : 1;
  if (step == 0 || numbers[1] < numbers[0]) return bad("is a range that does not rise");
  if ((numbers[1] - numbers[0]) / step >= kMostNamesOfARange) return bad("is a range of more than a million names");

  std::vector<std::string> names;
  for (std::int64_t number = numbers[0]; number <= numbers[1]; number += step) {
    names.push_back(fmt::format("{}{}{}", text.substr(0, open), number, text.substr(close + 1)));
    if (number > numbers[1] - step) break;  // The next sum could overflow.
  }
  return names;
}

}  // namespace fsdp
