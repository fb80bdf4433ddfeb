#include "core/formats/hf_config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp {

namespace {

bool is_null(const JsonValue* value) {
  return value == nullptr || value->type == JsonType::Null;
}

bool is_empty(const JsonValue& value) {
  switch (value.type) {
    case JsonType::Null:
      return true;
    case JsonType::Bool:
      return !value.boolean;
    case JsonType::Array:
      return value.elements.empty();
    case JsonType::Object:
      return value.members.empty();
    case JsonType::String:
      return value.text.empty();
    case JsonType::Number:
      return value.real == 0;
  }
  return false;
}

bool same(const JsonValue& a, const JsonValue& b) {
  return a.type == b.type && a.boolean == b.boolean && a.real == b.real &&
         (a.type == JsonType::Number || a.text == b.text);
}

}  // namespace

HfConfigReader::HfConfigReader(const JsonValue& object, std::string whose, JsonErrors& errors)
    : object_(object), whose_(std::move(whose)), errors_(errors) {}

void HfConfigReader::alias(std::string_view key, std::string_view other) {
  aliases_.push_back({key, other});
  const JsonValue* first = object_.find(key);
  const JsonValue* second = object_.find(other);
  if (first != nullptr && second != nullptr && !same(*first, *second)) {
    errors_.add(*second, fmt::format("\"{}\" and \"{}\" are two names of one size, and differ.", key, other),
                "Leave one of the two out.");
  }
}

void HfConfigReader::aliases(std::initializer_list<std::array<std::string_view, 2>> pairs) {
  for (const auto& [key, other] : pairs) alias(key, other);
}

const JsonValue* HfConfigReader::find(std::string_view key) {
  asked_.push_back(key);
  const JsonValue* value = object_.find(key);
  for (const auto& [name, other] : aliases_) {
    if (name != key) continue;
    asked_.push_back(other);
    if (value == nullptr) value = object_.find(other);
  }
  return value;
}

void HfConfigReader::refuse(const JsonValue& value, std::string_view key, std::string_view allowed) {
  errors_.add(value, fmt::format("\"{}\" is {}.", key, describe(value)),
              fmt::format("The blocks of a {} have {}; for another, {}", whose_, allowed, kCaptureInstead));
}

void HfConfigReader::fail(std::string_view key, std::string what, std::string hint) {
  const JsonValue* value = find(key);
  errors_.add(value == nullptr ? object_.offset : value->offset, std::move(what), std::move(hint));
}

std::optional<std::int64_t> HfConfigReader::integer(const JsonValue& value, std::string_view key, std::int64_t least,
                                                    std::int64_t most, std::string_view or_null) {
  if (value.type == JsonType::Number && value.is_integer && value.integer >= least && value.integer <= most) {
    return value.integer;
  }
  errors_.add(value, fmt::format("\"{}\" is {}.", key, describe(value)),
              fmt::format("It is an integer of {} to {}{}.", least, most, or_null));
  return std::nullopt;
}

std::int64_t HfConfigReader::size(std::string_view key, std::int64_t otherwise, std::int64_t most) {
  const JsonValue* value = find(key);
  return value == nullptr ? otherwise : integer(*value, key, 1, most, "").value_or(otherwise);
}

std::optional<std::int64_t> HfConfigReader::size_or_null(std::string_view key, std::optional<std::int64_t> otherwise,
                                                         std::int64_t most) {
  const JsonValue* value = find(key);
  if (value == nullptr) return otherwise;
  return is_null(value) ? std::nullopt : integer(*value, key, 1, most, ", or null");
}

std::int64_t HfConfigReader::count(std::string_view key, std::int64_t otherwise, std::int64_t most) {
  const JsonValue* value = find(key);
  return value == nullptr ? otherwise : integer(*value, key, 0, most, "").value_or(otherwise);
}

std::optional<double> HfConfigReader::positive_or_null(std::string_view key, std::optional<double> otherwise) {
  const JsonValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (is_null(value)) return std::nullopt;
  if (value->type == JsonType::Number && value->real > 0) return value->real;
  errors_.add(*value, fmt::format("\"{}\" is {}.", key, describe(*value)), "It is a number above 0, or null.");
  return otherwise;
}

double HfConfigReader::positive(std::string_view key, double otherwise) {
  const JsonValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->type == JsonType::Number && value->real > 0) return value->real;
  errors_.add(*value, fmt::format("\"{}\" is {}.", key, describe(*value)), "It is a number above 0.");
  return otherwise;
}

double HfConfigReader::probability(std::string_view key, double otherwise) {
  const JsonValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->type == JsonType::Number && value->real >= 0 && value->real < 1) return value->real;
  errors_.add(*value, fmt::format("\"{}\" is {}.", key, describe(*value)), "It is a number of 0 to below 1.");
  return otherwise;
}

bool HfConfigReader::flag(std::string_view key, bool otherwise) {
  const JsonValue* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->type == JsonType::Bool) return value->boolean;
  errors_.add(*value, fmt::format("\"{}\" is {}.", key, describe(*value)), "It is true or false.");
  return otherwise;
}

std::string HfConfigReader::text(std::string_view key, std::string_view otherwise,
                                 std::initializer_list<std::string_view> allowed) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  const bool is_known =
      value->type == JsonType::String && std::find(allowed.begin(), allowed.end(), value->text) != allowed.end();
  if (is_known) return value->text;
  std::string names;
  for (const std::string_view name : allowed) names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", name);
  refuse(*value, key, names);
  return std::string(otherwise);
}

std::optional<std::int64_t> HfConfigReader::padding_index(std::string_view key, std::optional<std::int64_t> otherwise,
                                                          std::int64_t rows) {
  const JsonValue* value = find(key);
  if (is_null(value)) {
    if (value != nullptr || !otherwise) return std::nullopt;
    if (*otherwise < rows) return otherwise;
    fail(key, fmt::format("\"{}\" is absent, so that it is {}, and there are {} tokens.", key, *otherwise, rows),
         "Write null if there is none.");
    return std::nullopt;
  }
  const auto index = integer(*value, key, -rows, rows - 1, ", or null");
  return index && *index < 0 ? std::optional(*index + rows) : index;
}

void HfConfigReader::only(std::string_view key, bool value) {
  const JsonValue* found = find(key);
  // Python treats null as false.
  if (found == nullptr || (found->type == JsonType::Bool && found->boolean == value) || (!value && is_null(found))) {
    return;
  }
  refuse(*found, key, value ? "true" : "false");
}

void HfConfigReader::only(std::string_view key, double value) {
  const JsonValue* found = find(key);
  if (found == nullptr || (found->type == JsonType::Number && found->real == value)) return;
  if (value == 0 && is_null(found)) return;
  refuse(*found, key, fmt::format("{}", value));
}

void HfConfigReader::only_empty(std::initializer_list<std::string_view> keys, std::string_view hint) {
  for (const std::string_view key : keys) {
    const JsonValue* found = find(key);
    if (found == nullptr || is_empty(*found)) continue;
    if (hint.empty()) {
      refuse(*found, key, "none of it");
    } else {
      errors_.add(*found, fmt::format("\"{}\" is {}.", key, describe(*found)), std::string(hint));
    }
  }
}

void HfConfigReader::pass_over(std::initializer_list<std::string_view> keys) {
  asked_.insert(asked_.end(), keys.begin(), keys.end());
}

std::vector<std::string> HfConfigReader::unread() const {
  std::vector<std::string> result;
  for (const JsonMember& member : object_.members) {
    const bool is_off =
        member.value.type == JsonType::Null || (member.value.type == JsonType::Bool && !member.value.boolean);
    if (is_off || std::find(asked_.begin(), asked_.end(), member.key) != asked_.end()) continue;
    result.push_back(member.key);
  }
  return result;
}

}  // namespace fsdp
