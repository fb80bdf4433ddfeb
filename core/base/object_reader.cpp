#include "core/base/object_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/json_writer.h"
#include "core/base/nearest.h"
#include "core/base/parse_units.h"

namespace fsdp {

namespace {

/// A text in quotes, shortened so that a message fits on a line.
std::string quoted(const std::string& text) {
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) return json_quoted(text);
  std::size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return json_quoted(text.substr(0, cut) + "...");
}

/// "Write an integer from 1 to 8.", if there are limits.
template <class Number>
std::string range_hint(std::string_view noun, Number min, Number max, Number lowest, Number highest) {
  if (min == lowest && max == highest) return fmt::format("Write {}.", noun);
  if (max == highest) return fmt::format("Write {} of at least {}.", noun, min);
  if (min == lowest) return fmt::format("Write {} of at most {}.", noun, max);
  return fmt::format("Write {} from {} to {}.", noun, min, max);
}

/// Reads a quantity: a string that `parse` accepts.
template <class T, class Parse>
bool read_quantity(const JsonValue& value, T& out, JsonErrors& errors, std::string_view expected,
                   std::string_view example, Parse parse) {
  if (value.type == JsonType::Number) {
    // The parser can guess the missing unit of a bare number.
    const Result<T> guess = parse(value.text, "");
    std::string hint = guess ? std::string() : guess.error().front().hint;
    return errors.add(value, fmt::format("Expected {}, found the number {}.", expected, value.text), std::move(hint));
  }
  if (value.type != JsonType::String) {
    return errors.add(value, fmt::format("Expected {}, found {}.", expected, describe(value)),
                      fmt::format("Write it as {}.", example));
  }
  const Result<T> parsed = parse(value.text, "");
  if (!parsed) return errors.add(value, parsed.error().front().what, parsed.error().front().hint);
  out = *parsed;
  return true;
}

}  // namespace

bool JsonErrors::add(std::uint32_t offset, std::string what, std::string hint) {
  found_.push_back({offset, std::move(what), std::move(hint)});
  return false;
}

Errors JsonErrors::take() && {
  std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.offset < b.offset; });
  Errors errors;
  for (Found& error : found_) {
    if (errors.size() == kMostErrors) {
      errors.push_back({document_.name, fmt::format("There are {} more errors.", found_.size() - kMostErrors), {}});
      break;
    }
    errors.push_back({document_.where(error.offset), std::move(error.what), std::move(error.hint)});
  }
  found_.clear();
  return errors;
}

std::string describe(const JsonValue& value) {
  switch (value.type) {
    case JsonType::Null:
      return "null";
    case JsonType::Bool:
      return value.boolean ? "true" : "false";
    case JsonType::Number:
      return fmt::format("the number {}", value.text);
    case JsonType::String:
      return fmt::format("the string {}", quoted(value.text));
    case JsonType::Array:
      return "a list";
    case JsonType::Object:
      return "an object";
  }
  return {};
}

bool expect_type(const JsonValue& value, JsonType type, std::string_view expected, JsonErrors& errors) {
  if (value.type == type) return true;
  return errors.add(value, fmt::format("Expected {}, found {}.", expected, describe(value)));
}

bool read_json(const JsonValue& value, bool& out, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Bool, "true or false", errors)) return false;
  out = value.boolean;
  return true;
}

bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors) {
  if (!expect_type(value, JsonType::String, "a string", errors)) return false;
  out = value.text;
  return true;
}

bool read_json(const JsonValue& value, std::int64_t& out, JsonErrors& errors, IntegerRange range) {
  constexpr IntegerRange all;
  if (value.type == JsonType::Number && value.is_integer && value.integer >= range.min && value.integer <= range.max) {
    out = value.integer;
    return true;
  }
  const std::string hint = range_hint("an integer", range.min, range.max, all.min, all.max);
  if (value.type != JsonType::Number || value.text.find_first_of(".eE") != std::string::npos)
    return errors.add(value, fmt::format("Expected an integer, found {}.", describe(value)), hint);
  return errors.add(value, fmt::format("{} is out of range.", value.text), hint);
}

bool read_json(const JsonValue& value, int& out, JsonErrors& errors, IntegerRange range) {
  constexpr IntegerRange limits{std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};
  std::int64_t wide = 0;
  if (!read_json(value, wide, errors, {std::max(range.min, limits.min), std::min(range.max, limits.max)})) return false;
  out = static_cast<int>(wide);
  return true;
}

bool read_json(const JsonValue& value, double& out, JsonErrors& errors, RealRange range) {
  constexpr RealRange all;
  if (value.type == JsonType::Number && value.real >= range.min && value.real <= range.max) {
    out = value.real;
    return true;
  }
  const std::string hint = range_hint("a number", range.min, range.max, all.min, all.max);
  if (value.type != JsonType::Number)
    return errors.add(value, fmt::format("Expected a number, found {}.", describe(value)), hint);
  return errors.add(value, fmt::format("{} is out of range.", value.text), hint);
}

bool read_json(const JsonValue& value, Bytes& out, JsonErrors& errors) {
  return read_quantity(value, out, errors, "a size with its unit", "\"16GiB\"", parse_size);
}

bool read_json(const JsonValue& value, BytesPerSecond& out, JsonErrors& errors) {
  return read_quantity(value, out, errors, "a bandwidth with its unit", "\"450GB/s\"", parse_bandwidth);
}

bool read_json(const JsonValue& value, FlopsPerSecond& out, JsonErrors& errors) {
  return read_quantity(value, out, errors, "a rate of operations with its unit", "\"312TFLOPS\"", parse_flops_rate);
}

bool read_json(const JsonValue& value, Seconds& out, JsonErrors& errors) {
  return read_quantity(value, out, errors, "a time with its unit", "\"3.5us\"", parse_time);
}

bool read_json(const JsonValue& value, Bytes& out, JsonErrors& errors, InBytes) {
  std::int64_t count = 0;
  if (!read_json(value, count, errors, IntegerRange{0, kLargestSize.count()})) return false;
  out = Bytes(count);
  return true;
}

std::optional<std::size_t> read_name(const JsonValue& value, std::string_view noun,
                                     std::span<const std::string_view> names, JsonErrors& errors) {
  if (value.type != JsonType::String) {
    errors.add(value, fmt::format("Expected the name of a {}, found {}.", noun, describe(value)),
               suggest_name("", names));
    return std::nullopt;
  }
  const auto found = std::find(names.begin(), names.end(), value.text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  errors.add(value, fmt::format("Unknown {} {}.", noun, quoted(value.text)), suggest_name(value.text, names));
  return std::nullopt;
}

ObjectReader::ObjectReader(const JsonValue& value, JsonErrors& errors)
    : value_(value), errors_(errors), is_object_(expect_type(value, JsonType::Object, "an object", errors)) {
  good_ = is_object_;
  asked_.resize(value.members.size());
}

const JsonMember* ObjectReader::find(std::string_view key) {
  const std::size_t count = value_.members.size();
  for (std::size_t step = 0; step < count; ++step) {
    const std::size_t index = next_ + step < count ? next_ + step : next_ + step - count;
    if (value_.members[index].key != key) continue;
    asked_[index] = true;
    next_ = index + 1 < count ? index + 1 : 0;
    return &value_.members[index];
  }
  return nullptr;
}

const JsonValue* ObjectReader::optional_value(std::string_view key) {
  known_.push_back(key);
  const JsonMember* member = find(key);
  return member == nullptr ? nullptr : &member->value;
}

const JsonValue* ObjectReader::required_value(std::string_view key) {
  const JsonValue* value = optional_value(key);
  if (value == nullptr) missing_.push_back(key);
  return value;
}

bool ObjectReader::fail(std::string_view key, std::string what, std::string hint) {
  const JsonValue* member = value_.find(key);
  return keep(errors_.add(member == nullptr ? value_ : *member, std::move(what), std::move(hint)));
}

bool ObjectReader::finish(UnknownKeys unknown_keys) {
  if (!is_object_) return false;
  std::sort(known_.begin(), known_.end());
  known_.erase(std::unique(known_.begin(), known_.end()), known_.end());
  // A present key cannot be the meaning of another one, so only absent ones are candidates.
  std::vector<std::string_view> absent;
  std::copy_if(known_.begin(), known_.end(), std::back_inserter(absent),
               [&](std::string_view key) { return value_.find(key) == nullptr; });
  std::size_t num_unknown = 0;
  for (std::size_t i = 0; i < value_.members.size(); ++i) {
    if (asked_[i] || unknown_keys == UnknownKeys::Ignore) continue;
    const JsonMember& unknown = value_.members[i];
    // Only the first of hundreds of errors are printed; the rest need no hint.
    if (++num_unknown > kMostErrors) {
      good_ = errors_.add(unknown.key_offset, "Unknown key.");
      continue;
    }
    const std::optional<std::string> meant = nearest_name(unknown.key, absent);
    std::string hint = meant ? fmt::format("Did you mean \"{}\"?", *meant) : suggest_name("", known_);
    good_ = errors_.add(unknown.key_offset, fmt::format("Unknown key {}.", quoted(unknown.key)), std::move(hint));
    // One slip is one error: the meant key is not reported as missing, too.
    if (meant) std::erase(missing_, *meant);
  }
  for (const std::string_view key : missing_) {
    good_ = errors_.add(value_, fmt::format("\"{}\" is missing.", key), fmt::format("Add \"{}\" to this object.", key));
  }
  return good_;
}

}  // namespace fsdp
