#include "core/base/object_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/parse_units.h"

namespace fsdp {

namespace {

constexpr std::size_t kWidest = 180;

/// `, "minimum": 1, "maximum": 8`, if there are limits.
template <class Number>
std::string limits(Number min, Number max, Number lowest, Number highest, std::string (*write)(Number)) {
  std::string text;
  if (min != lowest) text += fmt::format(R"(, "minimum": {})", write(min));
  if (max != highest) text += fmt::format(R"(, "maximum": {})", write(max));
  return text;
}

std::string write_integer(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string write_real(double value) {
  return shortest(value);
}

/// The value on one line.
std::string flat(const JsonValue& value) {
  std::string text;
  switch (value.type) {
    case JsonType::Null:
      return "null";
    case JsonType::Bool:
      return value.boolean ? "true" : "false";
    case JsonType::Number:
      return value.text;
    case JsonType::String:
      return json_quoted(value.text);
    case JsonType::Array:
      for (const JsonValue& element : value.elements) text += (text.empty() ? "" : ", ") + flat(element);
      return "[" + text + "]";
    case JsonType::Object:
      for (const JsonMember& member : value.members) {
        text += (text.empty() ? "" : ", ") + json_quoted(member.key) + ": " + flat(member.value);
      }
      return "{" + text + "}";
  }
  return text;
}

/// A value that begins after `before` characters of its line.
void lay_out(const JsonValue& value, std::size_t depth, std::size_t before, std::string& out) {
  const std::string line = flat(value);
  const bool is_list = value.type == JsonType::Array;
  if (before + line.size() <= kWidest || (!is_list && value.type != JsonType::Object)) {
    out += line;
    return;
  }
  const std::string indent(2 * (depth + 1), ' ');
  out += is_list ? '[' : '{';
  const char* separator = "\n";
  const auto begin = [&](const std::string& key) {
    out += separator + indent + key;
    separator = ",\n";
    return indent.size() + key.size() + 1;
  };
  for (const JsonValue& element : value.elements) lay_out(element, depth + 1, begin({}), out);
  for (const JsonMember& member : value.members) {
    lay_out(member.value, depth + 1, begin(json_quoted(member.key) + ": "), out);
  }
  out += "\n" + std::string(2 * depth, ' ') + (is_list ? ']' : '}');
}

}  // namespace

std::string schema_of(bool /*value*/) {
  return R"("type": "boolean")";
}

std::string schema_of(const std::string& /*value*/) {
  return R"("type": "string")";
}

std::string schema_of(std::int64_t /*value*/, IntegerRange range) {
  constexpr IntegerRange all;
  return R"("type": "integer")" + limits(range.min, range.max, all.min, all.max, write_integer);
}

std::string schema_of(int /*value*/, IntegerRange range) {
  constexpr IntegerRange all{std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};
  return schema_of(std::int64_t{}, {std::max(range.min, all.min), std::min(range.max, all.max)});
}

std::string schema_of(double /*value*/, RealRange range) {
  constexpr RealRange all;
  constexpr double kLargest = std::numeric_limits<double>::max();
  return R"("type": "number")" +
         limits(range.min, range.max == kLargest ? all.max : range.max, all.min, all.max, write_real);
}

std::string schema_of(Bytes /*value*/, InBytes /*unused*/) {
  return schema_of(std::int64_t{}, IntegerRange{0, kLargestSize.count()});
}

std::string schema_of_names(const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + json_quoted(name);
  return fmt::format(R"("enum": [{}])", list);
}

std::string schema_of_names(const std::vector<std::string_view>& names, std::span<const std::string_view> sentences) {
  assert(names.size() == sentences.size());
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    list += fmt::format(R"({}{{"const": {}, "description": {}}})", i == 0 ? "" : ", ", json_quoted(names[i]),
                        json_quoted(sentences[i]));
  }
  return fmt::format(R"("oneOf": [{}])", list);
}

bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors, NotEmpty rule) {
  if (!read_json(value, out, errors)) return false;
  return !out.empty() || errors.add(value, std::string(rule.what), std::string(rule.hint));
}

std::string schema_of(const std::string& /*value*/, NotEmpty /*unused*/) {
  return R"("type": "string", "minLength": 1)";
}

std::string schema_of(Bytes /*value*/) {
  return schema_reference("size");
}
std::string schema_of(BytesPerSecond /*value*/) {
  return schema_reference("bandwidth");
}
std::string schema_of(FlopsPerSecond /*value*/) {
  return schema_reference("flops_rate");
}
std::string schema_of(Seconds /*value*/) {
  return schema_reference("time");
}

std::vector<std::pair<std::string, std::string>> quantity_schemas() {
  const auto quantity = [](std::string_view description, const std::string& pattern, std::string_view examples) {
    return fmt::format(R"("description": {}, "type": "string", "pattern": {}, "examples": {})",
                       json_quoted(description), json_quoted(pattern), examples);
  };
  return {{"size", quantity("Bytes with a unit: K, M, G, T and KiB to TiB count in 1024s, KB to TB in 1000s.",
                            size_pattern(), R"(["16GiB", "1.5G", "15360MiB"])")},
          {"bandwidth",
           quantity("Bytes per second, in one direction.", bandwidth_pattern(), R"(["450GB/s", "12.5GiB/s"])")},
          {"flops_rate", quantity("Floating point operations per second.", flops_rate_pattern(), R"(["312TFLOPS"])")},
          {"time", quantity("A time with its unit.", time_pattern(), R"(["3.5us"])")}};
}

std::string default_of(bool value) {
  return value ? "true" : "false";
}

std::string default_of(const std::string& value) {
  return value.empty() ? std::string() : json_quoted(value);
}

std::string default_of(std::int64_t value, IntegerRange /*range*/) {
  return write_integer(value);
}

std::string default_of(int value, IntegerRange /*range*/) {
  return write_integer(value);
}

std::string default_of(double value, RealRange /*range*/) {
  return write_real(value);
}

std::string default_of(Bytes value, InBytes /*unused*/) {
  return write_integer(value.count());
}

bool Fields::describe(std::string_view key, const FieldDoc& doc, std::string_view schema, bool required,
                      std::string_view otherwise) {
  assert(schemas_ != nullptr);
  std::string text = fmt::format(R"("description": {})", json_quoted(doc.text));
  if (!schema.empty()) text += fmt::format(", {}", schema);
  if (!otherwise.empty()) text += fmt::format(R"(, "default": {})", otherwise);
  if (!doc.examples.empty()) text += fmt::format(R"(, "examples": {})", doc.examples);
  schemas_->push_back({key, std::move(text), required});
  return false;
}

std::string schema_of_object(const std::vector<FieldSchema>& fields, UnknownKeys unknown) {
  std::string required;
  std::string properties;
  for (const FieldSchema& field : fields) {
    if (field.required) required += (required.empty() ? "" : ", ") + json_quoted(field.key);
    properties += fmt::format("{}{}: {{{}}}", properties.empty() ? "" : ", ", json_quoted(field.key), field.schema);
  }
  return fmt::format(R"("type": "object", {}"properties": {{{}}}{})",
                     required.empty() ? "" : fmt::format(R"("required": [{}], )", required), properties,
                     unknown == UnknownKeys::Refuse ? R"(, "additionalProperties": false)" : "");
}

std::string schema_reference(std::string_view definition) {
  return fmt::format(R"("allOf": [{{"$ref": "#/definitions/{}"}}])", definition);
}

std::string schema_of_file(std::string_view name, std::string_view title, std::string_view description,
                           std::string_view schema, const std::vector<FieldSchema>& definitions) {
  std::string defined;
  for (const FieldSchema& each : definitions) {
    defined += fmt::format("{}{}: {{{}}}", defined.empty() ? "" : ", ", json_quoted(each.key), each.schema);
  }
  const auto document = parse_json(
      fmt::format(R"({{"$schema": "http://json-schema.org/draft-07/schema#", "$id": "{}.schema.json", "title": {},
                       "description": {}, {}{}}})",
                  name, json_quoted(title), json_quoted(description), schema,
                  defined.empty() ? "" : fmt::format(R"(, "definitions": {{{}}})", defined)),
      std::string(name));
  assert(document);
  std::string out;
  lay_out(document->root, 0, 0, out);
  return out + "\n";
}

}  // namespace fsdp
