// Reads the entries of "modules": a block with its options, or plain ops.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/expression.h"
#include "core/base/nearest.h"
#include "core/model/op_table.h"
#include "core/spec/model_spec_reader.h"

namespace fsdp::model_spec_reader {
namespace {

constexpr std::int64_t kMostRepetitions = 10'000;

/// The two numbers of "{0..27}"; `nullopt` for other text.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_range(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (text.size() < 6 || text.front() != '{' || text.back() != '}' || dots == std::string_view::npos) {
    return std::nullopt;
  }
  const auto parse = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.front() == '-') return std::nullopt;
    return number;
  };
  const std::string_view first = text.substr(1, dots - 1);
  const std::string_view last = text.substr(dots + 2, text.size() - dots - 3);
  if (first.empty() || last.empty()) return std::nullopt;
  const auto a = parse(first);
  const auto b = parse(last);
  if (!a || !b) return std::nullopt;
  return std::pair(*a, *b);
}

/// The names that `read_name` accepts, except for the numbers of the range.
constexpr std::string_view kNameSchema =
    R"x("type": "string", "pattern": "^(?![.{])(?!.*\\.\\.\\.)(?!.*\\.$)[^ \\t\\n\"*?/{}]*(\\{[0-9]+\\.\\.[0-9]+\\})?$")x";

/// Splits "model.layers.{0..27}" into a name and a range.
void read_name(const JsonValue& value, SpecModule& out, JsonErrors& errors) {
  std::string name;
  if (!read_json(value, name, errors)) return;
  const bool is_path = name.empty() || (name.front() != '.' && name.back() != '.' && name.find("...") == name.npos &&
                                        name.find_first_of(" \t\n\"*?/") == name.npos);
  if (!is_path) {
    errors.add(value, fmt::format("\"{}\" is not the name of a module.", name),
               "Write names with dots between them, such as \"model.embed_tokens\"; \"\" is the root.");
    return;
  }
  out.name = name;
  if (name.find_first_of("{}") == std::string::npos) return;
  const std::size_t brace = name.find('{');
  const auto range = parse_range(std::string_view(name).substr(std::min(brace, name.size())));
  if (!range || brace == 0) {
    errors.add(value, fmt::format("\"{}\" is not a repetition.", name),
               "Write it at the end, as in \"model.layers.{0..27}\".");
    return;
  }
  if (range->second < range->first || range->second - range->first >= kMostRepetitions) {
    errors.add(value, fmt::format("\"{}\" repeats from {} to {}.", name, range->first, range->second),
               fmt::format("The last number is at least the first; up to {} repetitions are read.", kMostRepetitions));
    return;
  }
  out.name = name.substr(0, brace);
  out.repeated = true;
  out.first = range->first;
  out.last = range->second;
}

constexpr const char* kNoName = "A value has a name.";
constexpr const char* kNameIt = "Write one such as \"hidden\".";

constexpr std::string_view kRenamesSchema = R"("allOf": [{"$ref": "#/definitions/renames"}])";

/// {"inside": "outside"}, or ["name", ...] if both are the same.
void read_renames(const JsonValue& value, std::vector<SpecRename>& out, JsonErrors& errors) {
  if (value.type == JsonType::Array) {
    std::vector<std::string> names;
    read_json(value, names, errors);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) errors.add(value.elements[i], kNoName, kNameIt);
      out.push_back({.inside = names[i], .outside = names[i]});
    }
    return;
  }
  if (!expect_type(value, JsonType::Object, "an object such as {\"hidden\": \"encoder_hidden\"} or a list of names",
                   errors)) {
    return;
  }
  for (const JsonMember& member : value.members) {
    SpecRename rename{.inside = member.key, .outside = {}};
    if (read_json(member.value, rename.outside, errors) && rename.outside.empty()) {
      errors.add(member.value, kNoName, kNameIt);
    }
    if (rename.inside.empty()) errors.add(member.key_offset, kNoName, kNameIt);
    out.push_back(std::move(rename));
  }
}

/// Names of values, none empty.
void read_value_names(const JsonValue& value, std::vector<std::string>& out, JsonErrors& errors) {
  read_json(value, out, errors);
  for (const JsonValue& name : value.elements) {
    if (name.type == JsonType::String && name.text.empty()) errors.add(name, kNoName, kNameIt);
  }
}

constexpr std::string_view kValueNamesSchema = R"("type": "array", "items": {"type": "string", "minLength": 1})";

void op_fields(Fields& fields, SpecOp& op) {
  fields.optional("module", "Module that runs the op, below the entry's own; \"\" is the entry's own.", op.module);
  fields.optional_as(
      "class", "Python class of that module.", kClassNameSchema,
      [&](const JsonValue& value, JsonErrors& errors) { read_class_name(value, op.class_name, errors); });
  fields.optional_as("inputs",
                     "Names of the values that it reads: outputs of ops before it, or values of the model. Defaults to "
                     "the outputs of the op before.",
                     kValueNamesSchema,
                     [&](const JsonValue& value, JsonErrors& errors) { read_value_names(value, op.inputs, errors); });
  fields.optional_as("outputs", "Names for its outputs.", kValueNamesSchema,
                     [&](const JsonValue& value, JsonErrors& errors) { read_value_names(value, op.outputs, errors); });
  fields.optional(
      "variables",
      "Variables of a forward that hold its outputs, in order; \"\" for none. \"q\" is a variable of the entry's own "
      "forward, \"attn.q\" one of its module attn's. A variable keeps its value alive until that forward returns or "
      "the variable gets another value: in frozen layers, and when checkpointed ones run forward, nothing else does.",
      op.variables);
}

void read_op(const JsonValue& value, SpecOp& op, const std::vector<SpecDimension>& dimensions, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  op.where = errors.document().where(value.offset);
  const JsonValue* kind = object.required_value("op");
  op_fields(fields, op);
  if (op.module.empty() && !op.class_name.empty()) {
    object.fail("class", "The op runs in the entry's own module, whose class is given next to the entry's name.",
                "Write it there, or name a submodule with \"module\".");
  }
  if (kind == nullptr) {
    object.finish();
    return;
  }
  std::vector<std::string_view> names;
  std::vector<OpKind> kinds;
  for (int i = 0; i < kNumOpKinds; ++i) {
    const auto candidate = static_cast<OpKind>(i);
    if (!op_row(candidate).is_plain) continue;
    kinds.push_back(candidate);
    names.push_back(name_of(candidate));
  }
  const auto found = fsdp::read_name(*kind, "op", names, errors);
  // An unknown kind says nothing about the object's keys.
  if (!found) return;
  op.kind = kinds[*found];
  read_options(object, op_row(op.kind).attributes, op.attributes, dimensions);
  object.finish();
}

void read_ops(const JsonValue& value, SpecModule& out, const std::vector<SpecDimension>& dimensions,
              JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list of ops", errors)) return;
  if (value.elements.empty()) errors.add(value, "There is no op.", "Write at least one.");
  for (const JsonValue& element : value.elements) {
    read_op(element, out.ops.emplace_back(), dimensions, errors);
  }
  if (!out.ops.empty() && out.ops.front().inputs.empty() && op_row(out.ops.front().kind).arity.min_inputs > 0) {
    const bool is_complete = !value.elements.front().members.empty();
    if (is_complete && value.elements.front().find("inputs") == nullptr) {
      errors.add(value.elements.front(), "The first op does not name its inputs.",
                 "Add \"inputs\": later ops read the outputs of the op before.");
    }
  }
}

void read_variations(const JsonValue& value, const BlockKind& kind, SpecModule& out,
                     const std::vector<SpecDimension>& dimensions, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object such as {\"sliding_window\": [4096, 0]}", errors)) return;
  std::vector<std::string_view> names;
  for (const OptionRule& rule : kind.options) names.push_back(rule.name);
  std::size_t num_unknown = 0;
  for (const JsonMember& member : value.members) {
    const auto rule = std::find_if(kind.options.begin(), kind.options.end(),
                                   [&](const OptionRule& candidate) { return candidate.name == member.key; });
    if (rule == kind.options.end()) {
      const bool is_listed = ++num_unknown <= kMostErrors;
      errors.add(member.key_offset, fmt::format("The block {} has no option \"{}\".", kind.name, member.key),
                 is_listed ? suggest_name(member.key, names) : std::string());
      continue;
    }
    SpecVariation variation{.name = member.key, .values = {}};
    if (!expect_type(member.value, JsonType::Array, "a list of values, taken in turn", errors)) continue;
    if (member.value.elements.empty())
      errors.add(member.value, "The list is empty.", "Give one value per layer in turn.");
    for (const JsonValue& element : member.value.elements) {
      read_option(element, *rule, variation.values.emplace_back(), dimensions, errors);
    }
    out.variations.push_back(std::move(variation));
  }
}

/// The options of a block. Those in "per_layer" are optional beside it.
void read_block(ObjectReader& object, const JsonValue& block, SpecModule& out,
                const std::vector<SpecDimension>& dimensions) {
  std::vector<std::string_view> names;
  for (const BlockKind& kind : block_kinds()) names.push_back(kind.name);
  const auto found = fsdp::read_name(block, "block", names, object.errors());
  if (!found) return;
  const BlockKind& kind = block_kinds()[*found];
  out.block = kind.name;
  if (const JsonValue* per_layer = object.optional_value("per_layer")) {
    read_variations(*per_layer, kind, out, dimensions, object.errors());
  }
  std::vector<OptionRule> rules = kind.options;
  for (OptionRule& rule : rules) {
    for (const SpecVariation& variation : out.variations) {
      if (variation.name == rule.name) rule.required = false;
    }
  }
  read_options(object, rules, out.options, dimensions);
  object.finish();
}

}  // namespace

void read_class_name(const JsonValue& value, std::string& out, JsonErrors& errors) {
  if (read_json(value, out, errors) && out.empty()) {
    errors.add(value, "A class has a name.", "Write one such as \"LlamaModel\".");
  }
}

bool read_number(const JsonValue& value, SpecNumber& out, const std::vector<SpecDimension>& dimensions,
                 JsonErrors& errors) {
  out.where = errors.document().where(value.offset);
  out.text = value.text;
  if (value.type == JsonType::Number) return true;
  if (value.type != JsonType::String) {
    return expect_type(value, JsonType::Number, "a number or an expression such as \"16 * frames\"", errors);
  }
  std::vector<std::string_view> known;
  for (const SpecDimension& dimension : dimensions) known.push_back(dimension.name);
  for (const std::string& name : names_in(value.text)) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return errors.add(value,
                      value.text == name
                          ? fmt::format("There is no dimension \"{}\".", name)
                          : fmt::format("\"{}\" uses \"{}\", which is not a dimension.", value.text, name),
                      suggest_name(name, known));
  }
  // Building the model checks values; this only checks that it is an expression.
  const auto parsed = evaluate(
      value.text, [](std::string_view) -> Result<double> { return 1.5; }, out.where);
  if (!parsed && parsed.error().front().what.find("divides by zero") == std::string::npos) {
    return errors.add(value, parsed.error().front().what, parsed.error().front().hint);
  }
  return true;
}

bool read_option(const JsonValue& value, const OptionRule& rule, SpecOption& out,
                 const std::vector<SpecDimension>& dimensions, JsonErrors& errors) {
  out.name = rule.name;
  out.where = errors.document().where(value.offset);
  switch (rule.type) {
    case OptionType::Flag: {
      bool flag = false;
      const bool good = read_json(value, flag, errors);
      out.value = flag;
      return good;
    }
    case OptionType::Text: {
      std::string text;
      if (!rule.allowed.empty()) {
        const auto index = fsdp::read_name(value, rule.name, rule.allowed, errors);
        if (index) out.value = std::string(rule.allowed[*index]);
        return index.has_value();
      }
      const bool good = read_json(value, text, errors);
      out.value = std::move(text);
      return good;
    }
    case OptionType::Sizes: {
      std::vector<SpecNumber> sizes;
      if (!expect_type(value, JsonType::Array, "a list of sizes", errors)) return false;
      bool good = true;
      for (const JsonValue& element : value.elements) {
        good = read_number(element, sizes.emplace_back(), dimensions, errors) && good;
      }
      out.value = std::move(sizes);
      return good;
    }
    default: {
      SpecNumber number;
      const bool good = read_number(value, number, dimensions, errors);
      out.value = std::move(number);
      return good;
    }
  }
}

void read_options(ObjectReader& object, std::span<const OptionRule> rules, std::vector<SpecOption>& out,
                  const std::vector<SpecDimension>& dimensions) {
  for (const OptionRule& rule : rules) {
    const JsonValue* value = rule.required ? object.required_value(rule.name) : object.optional_value(rule.name);
    if (value == nullptr) continue;
    SpecOption option;
    if (read_option(*value, rule, option, dimensions, object.errors())) out.push_back(std::move(option));
  }
}

namespace {

/// Checks that an entry after the root's forward has no module.
void check_after_root(ObjectReader& object, const SpecModule& out) {
  if (!out.after_root) return;
  const auto refuse = [&](bool is_wrong, std::string_view key, std::string what, std::string hint) {
    if (is_wrong) object.fail(key, std::move(what), std::move(hint));
  };
  refuse(!out.name.empty() || out.repeated, "name",
         fmt::format("\"{}\" is a module inside the root, and the entry runs after the root's forward.", out.name),
         "Write \"\", or leave \"after_root\" out.");
  refuse(!out.class_name.empty(), "class", "An entry after the root's forward is not a module and has no class.",
         "Leave it out.");
  refuse(!out.called, "called", "An entry after the root's forward must be called.",
         "Leave \"called\" or \"after_root\" out.");
  refuse(out.keep_outputs, "keep_outputs",
         "Kept outputs live until the root's forward returns, and this runs after it.",
         "Leave \"keep_outputs\" or \"after_root\" out.");
}

/// The common keys of entries. Excludes "block" and "ops", of which an entry has one.
void entry_fields(Fields& fields, SpecModule& out) {
  fields.required_as(
      "name",
      {"Fully qualified name of the module that is called; \"\" is the root. A range at its end repeats the call: "
       "\"model.layers.{0..27}\".",
       R"(["model.layers.{0..27}", "lm_head", ""])"},
      kNameSchema, [&](const JsonValue& value, JsonErrors& errors) { read_name(value, out, errors); });
  fields.optional_as("class", {"Python class of the module. Defaults to the block's own.", R"(["Qwen3DecoderLayer"])"},
                     kClassNameSchema, [&](const JsonValue& value, JsonErrors& errors) {
                       read_class_name(value, out.class_name, errors);
                     });
  fields.optional_as("inputs",
                     {"The values of the model that the block reads: its own name for each, and the model's. A list if "
                      "both are the same. Defaults to the same names.",
                      R"([{"hidden": "encoder_hidden"}])"},
                     kRenamesSchema,
                     [&](const JsonValue& value, JsonErrors& errors) { read_renames(value, out.inputs, errors); });
  fields.optional_as("outputs",
                     {"The model's names for the block's outputs. For plain ops, the outputs that others may read. "
                      "Defaults to the last op's.",
                      R"([{"hidden": "decoder_hidden"}, ["logits"]])"},
                     kRenamesSchema,
                     [&](const JsonValue& value, JsonErrors& errors) { read_renames(value, out.outputs, errors); });
  fields.optional("recipes", "The recipes that have the entry. Defaults to all.", out.recipes);
  fields.optional("called", "False: the modules and parameters are registered, but their forward never runs.",
                  out.called);
  fields.optional(
      "keep_outputs",
      "True: its outputs live until the forward of the root returns, like the hidden states that a model returns.",
      out.keep_outputs);
  fields.optional("after_root",
                  "True: it runs after the root's forward has returned, like the loss of a training loop (torchtitan, "
                  "torchvision). Only for entries at the end with the name \"\", without modules or parameters.",
                  out.after_root);
}

}  // namespace

std::vector<FieldSchema> schemas_of_entry() {
  return schemas_of_fields([](Fields& fields) {
    SpecModule module;
    entry_fields(fields, module);
  });
}

std::vector<FieldSchema> schemas_of_op_entry() {
  return schemas_of_fields([](Fields& fields) {
    SpecOp op;
    op_fields(fields, op);
  });
}

void read_module(const JsonValue& value, SpecModule& out, const std::vector<SpecDimension>& dimensions,
                 JsonErrors& errors) {
  out.where = errors.document().where(value.offset);
  ObjectReader object(value, errors);
  Fields fields(object);
  const JsonValue* block = object.optional_value("block");
  const JsonValue* ops = object.optional_value("ops");
  entry_fields(fields, out);
  if (!object.is_object()) return;
  check_after_root(object, out);
  if ((block == nullptr) == (ops == nullptr)) {
    object.fail("",
                block == nullptr ? "The module has neither \"block\" nor \"ops\"."
                                 : "The module has both \"block\" and \"ops\".",
                "Name a block, or write the ops of its forward.");
    return;
  }
  if (block != nullptr) {
    read_block(object, *block, out, dimensions);
    return;
  }
  read_ops(*ops, out, dimensions, errors);
  object.finish();
}

}  // namespace fsdp::model_spec_reader
