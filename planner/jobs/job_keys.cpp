#include "planner/jobs/job_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/nearest.h"
#include "core/base/object_reader.h"
#include "core/base/parse_units.h"

namespace fsdp::planner {

namespace {

/// The value as its program would print it: "true", "2", "full_shard". Empty for lists and objects.
std::string text_of(const JsonValue& value) {
  if (value.type == JsonType::Bool) return value.boolean ? "true" : "false";
  return value.type == JsonType::Number || value.type == JsonType::String ? value.text : "";
}

/// True for what switches nothing on: null, false, "", {} and [].
bool is_off(const JsonValue& value) {
  if (value.type == JsonType::Bool) return !value.boolean;
  if (value.type == JsonType::Number) return false;
  return value.text.empty() && value.elements.empty() && value.members.empty();
}

bool is_usual(const JsonValue& value, const JobKey& row) {
  if (is_off(value)) return true;
  const std::string text = text_of(value);
  if (text.empty()) return false;  // A list or an object.
  if (text == row.usual) return true;
  const std::optional<double> number = parse_number(text);
  return number && number == parse_number(row.usual);
}

const JobKey* row_named(std::span<const JobKey> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const JobKey& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

/// "sft.yaml:12:1: /fsdp_config/version". Members of a line are in the order of its words, and not of their places in
/// the object.
std::string place_of(const JsonDocument& document, std::uint32_t offset, std::string_view key) {
  if (document.is_translated) return document.name;
  std::string path(key);
  std::replace(path.begin(), path.end(), '.', '/');
  return fmt::format("{}: /{}", document.position(offset), path);
}

/// The nearest row for all keys below an object: "a.b.*" or "a.*" for "a.b.".
const JobKey* row_of_all_below(std::span<const JobKey> table, std::string prefix) {
  while (!prefix.empty()) {
    if (const JobKey* row = row_named(table, prefix + "*")) return row;
    prefix.pop_back();
    prefix.erase(prefix.rfind('.') + 1);
  }
  return nullptr;
}

bool has_members(std::span<const JobKey> table, const std::string& prefix) {
  return std::any_of(table.begin(), table.end(), [&](const JobKey& row) { return row.name.starts_with(prefix); });
}

/// The keys of one object of the table.
std::vector<std::string_view> keys_below(std::span<const JobKey> table, const std::string& prefix) {
  std::vector<std::string_view> keys;
  for (const JobKey& row : table) {
    if (!row.name.starts_with(prefix)) continue;
    const std::string_view rest = row.name.substr(prefix.size());
    const std::string_view key = rest.substr(0, rest.find('.'));
    if (keys.empty() || keys.back() != key) keys.push_back(key);
  }
  return keys;
}

}  // namespace

const JsonValue* find_in(const JsonValue& root, std::string_view key) {
  const JsonValue* value = &root;
  while (true) {
    const std::size_t dot = key.find('.');
    value = value->find(key.substr(0, dot));
    if (value == nullptr || value->type == JsonType::Null) return nullptr;
    if (dot == std::string_view::npos) return value;
    key.remove_prefix(dot + 1);
  }
}

JobKeys::JobKeys(std::vector<JobLayer> layers, std::string instead, Errors& errors)
    : layers_(std::move(layers)), instead_(std::move(instead)), errors_(errors) {
  for (const JobLayer& layer : layers_) check(layer, layer.document->root, "");
}

void JobKeys::check(const JobLayer& layer, const JsonValue& object, const std::string& prefix) {
  for (const JsonMember& member : object.members) {
    const std::string name = prefix + member.key;
    if (const JobKey* row = row_named(layer.table, name)) {
      check_key(layer, member, name, *row);
      continue;
    }
    // A section needs no row of its own.
    if (const std::string inside = name + "."; has_members(layer.table, inside)) {
      check(layer, member.value, inside);
      continue;
    }
    if (const JobKey* all = row_of_all_below(layer.table, prefix)) {
      check_key(layer, member, name, *all);
      continue;
    }
    const std::optional<std::string> nearest = nearest_name(member.key, keys_below(layer.table, prefix));
    errors_.push_back({place_of(*layer.document, member.key_offset, name), fmt::format("Unknown key \"{}\".", name),
                       nearest ? fmt::format("Did you mean \"{}\"?", *nearest) : "Remove it."});
  }
}

void JobKeys::check_key(const JobLayer& layer, const JsonMember& member, const std::string& name, const JobKey& row) {
  const std::string inside = fmt::format("{}.", row.name);
  if (member.value.type == JsonType::Object && has_members(layer.table, inside)) check(layer, member.value, inside);
  if (row.meaning == KeyMeaning::Ignored && !is_off(member.value)) {
    notes_.push_back(fmt::format("{} is ignored: {}.", row.name, row.what));
  }
  if (row.meaning != KeyMeaning::Usual || is_usual(member.value, row)) return;
  errors_.push_back({place_of(*layer.document, member.value.offset, name),
                     fmt::format("It asks for {}, which is not predicted.", row.what), instead_});
}

std::optional<JobKeys::Found> JobKeys::found(std::string_view key) const {
  for (const JobLayer& layer : layers_) {
    if (const JsonValue* value = find_in(layer.document->root, key)) return Found{value, layer.document};
  }
  return std::nullopt;
}

const JsonValue* JobKeys::find(std::string_view key) const {
  const std::optional<Found> found_here = found(key);
  return found_here ? found_here->value : nullptr;
}

std::string JobKeys::where(std::string_view key) const {
  const std::optional<Found> found_here = found(key);
  return found_here ? place_of(*found_here->document, found_here->value->offset, key) : layers_.back().document->name;
}

void JobKeys::expect(std::string_view key, std::string_view expected) {
  refuse(key, fmt::format("Expected {}, found {}.", expected, describe(*find(key))), {});
}

std::optional<bool> JobKeys::flag(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == JsonType::Bool) return value->boolean;
  const std::string text = text_of(*value);
  for (const std::string_view yes : {"true", "True", "yes", "1"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "False", "no", "0"}) {
    if (text == no) return false;
  }
  expect(key, "true or false");
  return std::nullopt;
}

std::optional<double> JobKeys::number(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == JsonType::Number) return value->real;
  if (value->type == JsonType::String) {
    if (const std::optional<double> number = parse_number(value->text)) return number;
  }
  expect(key, "a number");
  return std::nullopt;
}

std::optional<std::int64_t> JobKeys::integer(std::string_view key, std::int64_t least) {
  const std::optional<double> real = number(key);
  if (!real) return std::nullopt;
  constexpr double kLargest = 1e15;
  if (*real == std::floor(*real) && *real >= static_cast<double>(least) && *real <= kLargest) {
    return static_cast<std::int64_t>(*real);
  }
  expect(key, fmt::format("an integer of at least {}", least));
  return std::nullopt;
}

std::optional<std::string> JobKeys::word(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::string text = text_of(*value);
  if (!text.empty() || value->type == JsonType::String) return text;
  expect(key, "a word");
  return std::nullopt;
}

std::string JobKeys::text(std::string_view key) const {
  const JsonValue* value = find(key);
  return value == nullptr ? std::string() : text_of(*value);
}

std::vector<std::string> JobKeys::words(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return {};
  if (value->type != JsonType::Array) {
    const std::optional<std::string> one = word(key);
    return one ? std::vector{*one} : std::vector<std::string>{};
  }
  std::vector<std::string> all;
  for (const JsonValue& element : value->elements) all.push_back(text_of(element));
  if (std::find(all.begin(), all.end(), "") != all.end()) expect(key, "words");
  return all;
}

void JobKeys::refuse(std::string_view key, std::string what, std::string hint) {
  errors_.push_back({where(key), std::move(what), std::move(hint)});
}

}  // namespace fsdp::planner
