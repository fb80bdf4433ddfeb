#include "planner/cli_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/limits.h"
#include "core/nearest.h"
#include "core/parse_units.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kLargestCount = std::int64_t{1} << 31;

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<std::int64_t> OptionReader::count(Option option, std::int64_t min) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  const std::optional<std::int64_t> number = parse_integer(*text);
  const std::int64_t most = option == Option::Accumulate ? kMostMicroBatches : kLargestCount;
  if (!number || *number < min || *number > most) {
    fail(option, fmt::format("\"{}\" is not a whole number from {} to {}.", *text, min, most));
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> OptionReader::length(Option option) {
  const std::optional<std::string> text = line_.value(option);
  const bool in_kibi = text && (text->ends_with('k') || text->ends_with('K'));
  if (!in_kibi) return count(option);
  const std::optional<std::int64_t> number = parse_integer(std::string_view(*text).substr(0, text->size() - 1));
  if (!number || *number < 1 || *number > kLargestCount / 1024) {
    fail(option, fmt::format("\"{}\" is not a whole number from 1 to {}.", *text, kLargestCount), "Write 8192 or 8k.");
    return std::nullopt;
  }
  return *number * 1024;
}

std::optional<double> OptionReader::number(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  const std::optional<double> number = parse_number(*text);
  if (!number || *number <= 0) {
    fail(option, fmt::format("\"{}\" is not a number above 0.", *text));
    return std::nullopt;
  }
  return number;
}

std::optional<Bytes> OptionReader::size(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  return keep(parse_size(*text, flag_of(option)));
}

std::optional<double> OptionReader::share(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  const bool in_percent = text->ends_with('%');
  const std::optional<double> number = parse_number(text->substr(0, text->size() - (in_percent ? 1 : 0)));
  if (!number || *number < 0) {
    fail(option, fmt::format("\"{}\" is not a percentage or a fraction.", *text), "Write 2% or 0.02.");
    return std::nullopt;
  }
  return in_percent ? *number / 100 : *number;
}

std::optional<Seconds> OptionReader::time(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  const std::optional<Seconds> time = keep(parse_time(*text, flag_of(option)));
  if (time && *time <= Seconds(0)) fail(option, "It must be above zero.");
  return time;
}

std::optional<bool> OptionReader::yes_or_no(Option option) {
  const std::optional<std::string> text = line_.value(option);
  if (!text) return std::nullopt;
  if (*text == "yes" || *text == "true" || *text == "on") return true;
  if (*text == "no" || *text == "false" || *text == "off") return false;
  fail(option, fmt::format("\"{}\" is neither yes nor no.", *text), "Write yes or no.");
  return std::nullopt;
}

void OptionReader::fail(Option option, std::string what, std::string hint) {
  errors_.push_back({std::string(flag_of(option)), std::move(what), std::move(hint)});
}

bool OptionReader::is_same_name(std::string_view text, std::string_view name) {
  const auto folded = [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  return std::equal(text.begin(), text.end(), name.begin(), name.end(),
                    [&](char a, char b) { return folded(a) == folded(b); });
}

void OptionReader::fail_choice(Option option, std::string_view text, std::string_view noun,
                               const std::vector<std::string_view>& names) {
  fail(option, fmt::format("Unknown {} \"{}\".", noun, text), suggest_name(text, names));
}

}  // namespace fsdp::planner
