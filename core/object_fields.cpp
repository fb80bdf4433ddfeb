#include "core/object_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace fsdp {

namespace {

constexpr std::size_t kWidest = 180;

/// `, "minimum": 1, "maximum": 8`, as far as there are limits.
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

/// On one line.
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

/// A value that begins behind `before` characters of its line.
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

std::string schema_of_names(const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + json_quoted(name);
  return fmt::format(R"("enum": [{}])", list);
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

bool Fields::describe(std::string_view key, const FieldDoc& doc, std::string_view schema, bool required,
                      std::string_view otherwise) {
  std::string text = fmt::format(R"("description": {})", json_quoted(doc.text));
  if (!schema.empty()) text += fmt::format(", {}", schema);
  if (!otherwise.empty()) text += fmt::format(R"(, "default": {})", otherwise);
  if (!doc.examples.empty()) text += fmt::format(R"(, "examples": {})", doc.examples);
  schemas_->push_back({key, std::move(text), required});
  return false;
}

std::string schema_of_object(const std::vector<FieldSchema>& fields) {
  std::string required;
  std::string properties;
  for (const FieldSchema& field : fields) {
    if (field.required) required += (required.empty() ? "" : ", ") + json_quoted(field.key);
    properties += fmt::format("{}{}: {{{}}}", properties.empty() ? "" : ", ", json_quoted(field.key), field.schema);
  }
  return fmt::format(R"("type": "object", {}"properties": {{{}}}, "additionalProperties": false)",
                     required.empty() ? "" : fmt::format(R"("required": [{}], )", required), properties);
}

std::string schema_reference(std::string_view definition) {
  return fmt::format(R"("allOf": [{{"$ref": "#/definitions/{}"}}])", definition);
}

std::string lay_out_json(const std::string& text) {
  const Result<JsonDocument> document = parse_json(text, "");
  assert(document);
  std::string out;
  lay_out(document->root, 0, 0, out);
  return out + "\n";
}

}  // namespace fsdp
