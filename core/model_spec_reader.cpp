// Reads a model spec: the top level, dimensions, inputs, ties and recipes. Entries of "modules" are read in
// core/model_spec_modules.cpp. Numbers stay as they were written: their values depend on the workload.

#include "core/model_spec_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/expression.h"
#include "core/foreign_files.h"
#include "core/limits.h"
#include "core/nearest.h"
#include "core/plan_names.h"

namespace fsdp::model_spec_reader {
namespace {

constexpr std::string_view kSpecFormat = "1.0";
constexpr std::array<std::string_view, 10> kDtypes = {"float64", "float32", "bfloat16", "float16", "int64",
                                                      "int32",   "int16",   "int8",     "uint8",   "bool"};

void read_version(ObjectReader& object) {
  std::string version;
  if (object.required("format_version", version) && version != kSpecFormat) {
    object.fail("format_version", fmt::format("This program reads format \"{}\", not \"{}\".", kSpecFormat, version),
                "Write \"1.0\", or take the program that the file was written for.");
  }
}

void read_dimensions(const JsonValue& value, std::vector<SpecDimension>& out, JsonErrors& errors,
                     std::vector<SpecDimension> known) {
  if (!expect_type(value, JsonType::Object, "an object such as {\"batch\": 1, \"seq\": 4096}", errors)) return;
  for (const JsonMember& member : value.members) {
    if (!is_dimension_name(member.key)) {
      errors.add(member.key_offset, fmt::format("\"{}\" cannot be the name of a dimension.", member.key),
                 "A name is a letter, then letters, digits and \"_\", and no function's name.");
      continue;
    }
    known.push_back(SpecDimension{.name = member.key, .value = {}});
  }
  for (const JsonMember& member : value.members) {
    if (!is_dimension_name(member.key)) continue;
    SpecDimension& dimension = out.emplace_back();
    dimension.name = member.key;
    read_number(member.value, dimension.value, known, errors);
  }
}

void read_inputs(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object that names each input", errors)) return;
  for (const JsonMember& member : value.members) {
    SpecInput& input = spec.inputs.emplace_back();
    input.name = member.key;
    input.where = errors.document().where(member.value.offset);
    ObjectReader object(member.value, errors);
    if (const JsonValue* shape = object.required_value("shape");
        shape != nullptr && expect_type(*shape, JsonType::Array, "a list of sizes", errors)) {
      for (const JsonValue& size : shape->elements) {
        read_number(size, input.shape.emplace_back(), spec.dimensions, errors);
      }
    }
    if (const JsonValue* dtype = object.optional_value("dtype")) read_dtype(*dtype, input.dtype.emplace(), errors);
    object.optional("root_argument", input.root_argument);
    object.finish();
  }
}

void read_classes(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object such as {\"model\": \"LlamaModel\"}", errors)) return;
  for (const JsonMember& member : value.members) {
    SpecClass& entry = spec.classes.emplace_back();
    entry.module = member.key;
    entry.where = errors.document().where(member.key_offset);
    if (member.value.type == JsonType::String) {
      entry.class_name = member.value.text;
      if (entry.class_name.empty())
        errors.add(member.value, "A class has a name.", "Write one such as \"LlamaModel\".");
      continue;
    }
    ObjectReader object(member.value, errors);
    read_class_name(object, entry.class_name, true);
    object.optional("called", entry.called);
    object.finish();
  }
}

void read_ties(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object such as {\"lm_head.weight\": \"model.embed_tokens.weight\"}",
                   errors)) {
    return;
  }
  for (const JsonMember& member : value.members) {
    SpecTie& tie = spec.tied.emplace_back();
    tie.alias = member.key;
    tie.where = errors.document().where(member.value.offset);
    read_json(member.value, tie.kept, errors);
  }
}

void read_precision(const JsonValue& value, MixedPrecision& precision, JsonErrors& errors) {
  ObjectReader object(value, errors);
  if (const JsonValue* dtype = object.optional_value("param_dtype")) {
    read_dtype(*dtype, precision.param_dtype.emplace(), errors);
  }
  if (const JsonValue* dtype = object.optional_value("reduce_dtype")) {
    read_dtype(*dtype, precision.reduce_dtype.emplace(), errors);
  }
  if (const JsonValue* dtype = object.optional_value("output_dtype")) {
    read_dtype(*dtype, precision.output_dtype.emplace(), errors);
  }
  object.optional("cast_forward_inputs", precision.cast_forward_inputs);
  object.finish();
}

void read_optimizer(const JsonValue& value, Optimizer& optimizer, JsonErrors& errors) {
  constexpr RealRange kNotNegative{0, 1e9};
  ObjectReader object(value, errors);
  object.optional("kind", optimizer.kind, kOptimizerKindTable);
  object.optional("implementation", optimizer.implementation, kOptimizerImplementationTable);
  object.optional("states", optimizer.states, kOptimizerStatesTable);
  object.optional("weight_decay", optimizer.weight_decay, kNotNegative);
  object.optional("momentum", optimizer.momentum, kNotNegative);
  if (const JsonValue* clip = object.optional_value("clip_grad_norm")) {
    read_json(*clip, optimizer.clip_grad_norm.emplace(), errors, kNotNegative);
  }
  if (optimizer.momentum != 0 && optimizer.kind != OptimizerKind::Sgd) {
    object.fail("momentum", fmt::format("{} has no momentum.", name_of(kOptimizerKindTable, optimizer.kind)),
                "Leave it out, or take sgd.");
  }
  object.finish();
}

void read_recipe(const JsonMember& member, const ModelSpec& spec, Recipe& recipe, JsonErrors& errors) {
  recipe.name = member.key;
  ObjectReader object(member.value, errors);
  object.optional("description", recipe.description);
  if (const JsonValue* dtype = object.optional_value("parameter_dtype")) {
    read_dtype(*dtype, recipe.parameter_dtype.emplace(), errors);
  }
  if (const JsonValue* precision = object.optional_value("mixed_precision")) {
    read_precision(*precision, recipe.mixed_precision, errors);
  }
  if (const JsonValue* optimizer = object.optional_value("optimizer")) {
    read_optimizer(*optimizer, recipe.optimizer, errors);
  }
  object.optional("accumulation", recipe.accumulation, IntegerRange{1, kMostMicroBatches});
  if (const JsonValue* dimensions = object.optional_value("dimensions")) {
    read_dimensions(*dimensions, recipe.dimensions, errors, spec.dimensions);
    std::vector<std::string_view> known;
    for (const SpecDimension& dimension : spec.dimensions) known.push_back(dimension.name);
    for (const JsonMember& given : dimensions->members) {
      if (std::find(known.begin(), known.end(), given.key) != known.end()) continue;
      errors.add(given.key_offset, fmt::format("The model has no dimension \"{}\".", given.key),
                 suggest_name(given.key, known));
    }
  }
  read_patterns(object, "trainable", recipe.trainable);
  read_patterns(object, "frozen", recipe.frozen);
  object.optional("notes", recipe.notes);
  object.finish();
}

void read_recipes(ObjectReader& object, ModelSpec& spec, JsonErrors& errors) {
  const JsonValue* value = object.optional_value("recipes");
  if (value != nullptr && expect_type(*value, JsonType::Object, "an object that names each recipe", errors)) {
    for (const JsonMember& member : value->members) read_recipe(member, spec, spec.recipes.emplace_back(), errors);
  }
  if (spec.recipes.empty()) spec.recipes.emplace_back().name = "default";
}

/// Entries that belong to recipes name recipes that exist.
void check_recipe_names(const JsonValue& modules, const ModelSpec& spec, JsonErrors& errors) {
  std::vector<std::string_view> known;
  for (const Recipe& recipe : spec.recipes) known.push_back(recipe.name);
  for (const JsonValue& entry : modules.elements) {
    const JsonValue* recipes = entry.find("recipes");
    if (recipes == nullptr) continue;
    for (const JsonValue& name : recipes->elements) {
      if (name.type == JsonType::String) read_name(name, "recipe", known, errors);
    }
  }
}

/// A module that is listed twice cannot be registered at both places.
void check_registration(const std::vector<SpecPattern>& registration, JsonErrors& errors, const JsonValue& spec) {
  const JsonValue* list = spec.find("registration");
  for (std::size_t i = 0; i < registration.size() && registration.size() == list->elements.size(); ++i) {
    for (std::size_t before = 0; before < i; ++before) {
      if (registration[i].text != registration[before].text) continue;
      errors.add(list->elements[i], fmt::format("\"{}\" is listed twice.", registration[i].text),
                 "A module is registered once: leave one of the two out.");
      break;
    }
  }
}

void read_modules(ObjectReader& object, ModelSpec& spec, JsonErrors& errors) {
  const JsonValue* value = object.required_value("modules");
  if (value == nullptr || !expect_type(*value, JsonType::Array, "a list of modules", errors)) return;
  if (value->elements.empty()) errors.add(*value, "There is no module.", "Write at least one.");
  spec.modules.reserve(value->elements.size());
  for (const JsonValue& element : value->elements) {
    read_module(element, spec.modules.emplace_back(), spec.dimensions, errors);
  }
}

}  // namespace

bool read_dtype(const JsonValue& value, Dtype& out, JsonErrors& errors) {
  const auto index = read_name(value, "dtype", kDtypes, errors);
  if (index) out = *parse_dtype(kDtypes[*index]);
  return index.has_value();
}

void read_patterns(ObjectReader& object, std::string_view key, std::vector<SpecPattern>& out) {
  const JsonValue* value = object.optional_value(key);
  if (value == nullptr || !expect_type(*value, JsonType::Array, "a list of name patterns", object.errors())) return;
  for (const JsonValue& element : value->elements) {
    SpecPattern pattern{.text = {}, .where = object.errors().document().where(element.offset)};
    if (read_json(element, pattern.text, object.errors())) out.push_back(std::move(pattern));
  }
}

namespace {

void read_spec(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.ignore("$schema");
  read_version(object);
  object.required("name", spec.name);
  object.optional("description", spec.description);
  object.required("source", spec.source);
  if (const JsonValue* dtype = object.required_value("dtype")) {
    if (read_dtype(*dtype, spec.dtype, errors) && !is_floating_point(spec.dtype)) {
      errors.add(*dtype, "Parameters have a floating point dtype.", "Write \"bfloat16\", \"float16\" or \"float32\".");
    }
  }
  // Dimensions come first, wherever they stand: everything else may use them.
  if (const JsonValue* dimensions = object.required_value("dimensions")) {
    read_dimensions(*dimensions, spec.dimensions, errors, {});
    const bool has_batch = std::any_of(spec.dimensions.begin(), spec.dimensions.end(),
                                       [](const SpecDimension& dimension) { return dimension.name == "batch"; });
    if (!has_batch && dimensions->type == JsonType::Object) {
      errors.add(*dimensions, "There is no dimension \"batch\".", "It is the size of one micro-batch on one GPU.");
    }
  }
  if (const JsonValue* inputs = object.required_value("inputs")) read_inputs(*inputs, spec, errors);
  if (const JsonValue* classes = object.optional_value("classes")) read_classes(*classes, spec, errors);
  read_modules(object, spec, errors);
  read_patterns(object, "registration", spec.registration);
  check_registration(spec.registration, errors, value);
  if (const JsonValue* tied = object.optional_value("tied")) read_ties(*tied, spec, errors);
  object.optional("loss", spec.loss);
  if (const JsonValue* tokens = object.optional_value("tokens_per_step")) {
    read_number(*tokens, spec.tokens_per_step.emplace(), spec.dimensions, errors);
  }
  read_patterns(object, "trainable", spec.trainable);
  read_patterns(object, "frozen", spec.frozen);
  read_recipes(object, spec, errors);
  if (const JsonValue* modules = value.find("modules")) check_recipe_names(*modules, spec, errors);
  object.optional("notes", spec.notes);
  object.finish();
}

}  // namespace
}  // namespace fsdp::model_spec_reader

namespace fsdp {
namespace {

Result<ModelSpec> from_document(const JsonDocument& document) {
  JsonErrors errors(document);
  ModelSpec spec;
  spec.file_name = document.name;
  model_spec_reader::read_spec(document.root, spec, errors);
  return std::move(errors).result(std::move(spec));
}

}  // namespace

Result<ModelSpec> read_model_spec(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  if (auto foreign = recognize_json(document, WantedFile::ModelSpec))
    return tl::unexpected(Errors{*std::move(foreign)});
  return from_document(document);
}

Result<ModelSpec> parse_model_spec(std::string text, std::string file_name) {
  FSDP_TRY(const JsonDocument document, parse_json(std::move(text), std::move(file_name)));
  return from_document(document);
}

Result<Recipe> find_recipe(const ModelSpec& spec, std::string_view name) {
  if (name.empty() && !spec.recipes.empty()) return spec.recipes.front();
  std::vector<std::string_view> names;
  for (const Recipe& recipe : spec.recipes) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  return failure("--recipe", fmt::format("The model {} has no recipe \"{}\".", spec.name, name),
                 suggest_name(name, names));
}

}  // namespace fsdp
