// The schema of model specs, built from the reader's own lists: the members of objects (core/base/object_fields.h), the
// options of block kinds, and the attributes of ops.
//
// One definition per kind of block and of op, selected by "if" and "then", lets an editor offer only the options of
// that kind. The schema has every rule about two places that its language can express; only the program checks the
// rest: that names are known, that an expression uses dimensions, that a range counts upwards.
//
// Source: JSON Schema draft-07, which editors support and which has "if".

#include "core/spec/model_schema.h"

#include <fmt/format.h>

#include "core/base/expression.h"
#include "core/base/object_fields.h"
#include "core/model/op_table.h"
#include "core/spec/block_kinds.h"
#include "core/spec/dimensions.h"
#include "core/spec/model_spec_reader.h"

namespace fsdp {
namespace {

using Definitions = std::vector<std::pair<std::string, std::string>>;

std::string refer(std::string_view definition) {
  return fmt::format(R"("$ref": "#/definitions/{}")", definition);
}

/// A number of this kind, or an expression.
std::string number_or_expression(const std::string& number) {
  return fmt::format(R"("oneOf": [{{{}}}, {{"$ref": "#/definitions/expression"}}])", number);
}

Definitions basic_definitions() {
  const std::vector<std::string_view> functions(expression_functions().begin(), expression_functions().end());
  const auto integer = [](std::int64_t min) {
    return number_or_expression(fsdp::schema_of(std::int64_t{}, IntegerRange{.min = min, .max = kLargestInteger}));
  };
  return {
      {"dimension_name",
       fmt::format(R"("description": "A letter, then letters, digits and underscores; no name of a function.",
                      "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": {{{}}})",
                   schema_of_names(functions))},
      {"expression",
       R"x("description": "An expression over dimensions: numbers, names, + - * / %, parentheses, floor, ceil, round, min, max.",
           "type": "string", "examples": ["16 * frames", "ceil(12.5 * seconds)"])x"},
      {"number", number_or_expression(fsdp::schema_of(0.0))},
      {"size", integer(1)},
      {"count", integer(0)},
      {"integer", integer(IntegerRange{}.min)},
      {"sizes", R"("type": "array", "items": {"$ref": "#/definitions/size"})"},
      {"patterns",
       R"("description": "Names of modules or parameters; * stands for any characters, ? for one, and a module for all below it.",
          "type": "array", "items": {"type": "string"}, "examples": [["model.layers.*.mlp", "lm_head"]])"},
      {"renames",
       R"("oneOf": [{"type": "object", "propertyNames": {"minLength": 1},
                     "additionalProperties": {"type": "string", "minLength": 1}},
                    {"type": "array", "items": {"type": "string", "minLength": 1}}])"}};
}

std::string schema_of_rule(const OptionRule& rule) {
  const std::string described = fmt::format(R"("description": {}, )", json_quoted(rule.doc));
  switch (rule.type) {
    case OptionType::Size:
      return described + schema_reference("size");
    case OptionType::Count:
      return described + schema_reference("count");
    case OptionType::Integer:
      return described + schema_reference("integer");
    case OptionType::Number:
      return described + schema_reference("number");
    case OptionType::Flag:
      return described + fsdp::schema_of(bool{});
    case OptionType::Text:
      return described + (rule.allowed.empty() ? fsdp::schema_of(std::string()) : schema_of_names(rule.allowed));
    case OptionType::Sizes:
      return described + schema_reference("sizes");
  }
  return described;
}

/// Members of many objects, each a definition of its own: `"class": {"$ref": "#/definitions/entry_class"}`.
void share(const std::vector<FieldSchema>& fields, std::string_view prefix, Definitions& definitions,
           std::vector<FieldSchema>& shared) {
  for (const FieldSchema& field : fields) {
    const std::string name = fmt::format("{}{}", prefix, field.key);
    shared.push_back({field.key, refer(name), field.required});
    definitions.emplace_back(name, field.schema);
  }
}

/// The options of a kind that take turns: lists of their single values.
std::string schema_of_turns(const BlockKind& kind) {
  if (kind.options.empty()) {
    return R"("description": "Options by layer; this block has none.", "type": "object", "maxProperties": 0)";
  }
  std::vector<FieldSchema> lists;
  for (const OptionRule& rule : kind.options) {
    lists.push_back({rule.name, fmt::format(R"("type": "array", "minItems": 1, "items": {{{}}})",
                                            refer(fmt::format("block_{}/properties/{}", kind.name, rule.name)))});
  }
  return R"("description": "Options that take the values of a list in turn over the repetitions.",
            "examples": [{"sliding_window": [4096, 0]}], )" +
         schema_of_object(lists);
}

std::string schema_of_block(const BlockKind& kind, const std::vector<FieldSchema>& entry) {
  std::vector<FieldSchema> fields = {
      {"block", fmt::format(R"("const": {}, "description": {})", json_quoted(kind.name), json_quoted(kind.doc)), true}};
  fields.insert(fields.end(), entry.begin(), entry.end());
  fields.push_back({"per_layer", schema_of_turns(kind)});
  // A required option may be in "per_layer".
  std::string needed;
  for (const OptionRule& rule : kind.options) {
    fields.push_back({rule.name, schema_of_rule(rule)});
    if (!rule.required) continue;
    needed += fmt::format(
        R"({}{{"anyOf": [{{"required": [{}]}}, {{"required": ["per_layer"], "properties": {{"per_layer": {{"required": [{}]}}}}}}]}})",
        needed.empty() ? "" : ", ", json_quoted(rule.name), json_quoted(rule.name));
  }
  return fmt::format(R"("description": {}, {}{})", json_quoted(kind.doc), schema_of_object(fields),
                     needed.empty() ? "" : fmt::format(R"(, "allOf": [{}])", needed));
}

std::string schema_of_op(OpKind kind, const std::vector<FieldSchema>& entry) {
  std::vector<FieldSchema> fields = {{"op", fmt::format(R"("const": {})", json_quoted(name_of(kind))), true}};
  fields.insert(fields.end(), entry.begin(), entry.end());
  for (const OptionRule& rule : op_row(kind).attributes)
    fields.push_back({rule.name, schema_of_rule(rule), rule.required});
  return schema_of_object(fields);
}

/// `{"if": {"block" is "x"}, "then": block_x}` for each name.
std::string choices(std::string_view key, const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) {
    list +=
        fmt::format(R"({}{{"if": {{"properties": {{"{}": {{"const": "{}"}}}}, "required": ["{}"]}}, "then": {{{}}}}})",
                    list.empty() ? "" : ", ", key, name, key, refer(fmt::format("{}_{}", key, name)));
  }
  return list;
}

std::string schema_of_module(const std::vector<std::string_view>& blocks) {
  return fmt::format(
      R"("description": "One call, or a row of calls alike: a block with its options, or plain ops.",
         "type": "object", "required": ["name"], "oneOf": [{{"required": ["block"]}}, {{"required": ["ops"]}}],
         "properties": {{"block": {{"description": "Kind of the block.", {}}}}},
         "if": {{"required": ["ops"]}}, "then": {{{}}}, "else": {{"allOf": [{}]}},
         "allOf": [{{"if": {{"properties": {{"after_root": {{"const": true}}}}, "required": ["after_root"]}},
                    "then": {{"properties": {{"name": {{"const": ""}}, "class": false, "called": {{"const": true}},
                                              "keep_outputs": {{"const": false}}}}}}}}])",
      schema_of_names(blocks), refer("plain_ops"), choices("block", blocks));
}

std::string schema_of_plain_ops(const std::vector<FieldSchema>& entry, const std::vector<std::string_view>& sources) {
  // An op without inputs reads the previous op's outputs; the first op has no previous one.
  std::vector<FieldSchema> fields = {
      {"ops",
       fmt::format(R"("description": "The ops in forward order.", "type": "array", "minItems": 1, "items": {{{}}},
                      "allOf": [{{"items": [{{"if": {{"properties": {{"op": {{{}}}}}}}, "else": {{"required": ["inputs"]}}}}]}}])",
                   refer("op"), schema_of_names(sources)),
       true}};
  fields.insert(fields.end(), entry.begin(), entry.end());
  return R"("description": "A module whose forward is written op by op.", )" + schema_of_object(fields);
}

std::string schema_of_any_op(const std::vector<std::string_view>& ops) {
  return fmt::format(
      R"("description": "One op.", "type": "object", "required": ["op"],
         "properties": {{"op": {{"description": "Kind of the op.", {}}}}}, "allOf": [{}],
         "if": {{"required": ["class"]}},
         "then": {{"required": ["module"], "properties": {{"module": {{"minLength": 1}}}}}})",
      schema_of_names(ops), choices("op", ops));
}

}  // namespace

std::string model_schema() {
  Definitions definitions = basic_definitions();
  for (auto& part : model_spec_reader::schemas_of_parts()) definitions.push_back(std::move(part));
  std::vector<FieldSchema> entry, op_entry;
  share(model_spec_reader::schemas_of_entry(), "entry_", definitions, entry);
  share(model_spec_reader::schemas_of_op_entry(), "op_entry_", definitions, op_entry);
  std::vector<std::string_view> blocks, ops, sources;
  for (const BlockKind& kind : block_kinds()) blocks.push_back(kind.name);
  for (int i = 0; i < kNumOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (op_row(kind).is_plain) ops.push_back(name_of(kind));
    if (op_row(kind).is_plain && op_row(kind).arity.min_inputs == 0) sources.push_back(name_of(kind));
  }
  definitions.emplace_back("module", schema_of_module(blocks));
  definitions.emplace_back("plain_ops", schema_of_plain_ops(entry, sources));
  definitions.emplace_back("op", schema_of_any_op(ops));
  for (const BlockKind& kind : block_kinds()) {
    definitions.emplace_back(fmt::format("block_{}", kind.name), schema_of_block(kind, entry));
  }
  for (int i = 0; i < kNumOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (op_row(kind).is_plain)
      definitions.emplace_back(fmt::format("op_{}", name_of(kind)), schema_of_op(kind, op_entry));
  }
  std::vector<FieldSchema> defined;
  for (const auto& [name, schema] : definitions) defined.push_back({name, schema});
  return schema_of_file("model", "Model specs of fsdp-plan",
                        "The work of one training step, at the level of blocks such as decoder layers: dimensions, "
                        "inputs, modules in forward order, tied parameters and recipes to train it.",
                        model_spec_reader::schema_of_spec(), defined);
}

}  // namespace fsdp
