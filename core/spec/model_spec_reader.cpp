// Reads a model spec: the top level, dimensions, inputs, ties and recipes. core/spec/model_spec_modules.cpp reads the
// entries of "modules". Numbers stay as written: their values depend on the workload.

#include "core/spec/model_spec_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/expression.h"
#include "core/base/foreign_files.h"
#include "core/base/limits.h"
#include "core/base/nearest.h"
#include "core/plan/optimizer_states_json.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"
#include "core/spec/captured_model.h"

namespace fsdp::model_spec_reader {
namespace {

constexpr std::string_view kSpecFormat = "1.0";
constexpr std::array<std::string_view, 10> kDtypes = {"float64", "float32", "bfloat16", "float16", "int64",
                                                      "int32",   "int16",   "int8",     "uint8",   "bool"};

constexpr std::string_view kDimensionsSchema =
    R"("type": "object", "additionalProperties": {"$ref": "#/definitions/number"})";
constexpr std::string_view kPatternsSchema = R"("allOf": [{"$ref": "#/definitions/patterns"}])";
constexpr std::string_view kNumberSchema = R"("allOf": [{"$ref": "#/definitions/number"}])";

void read_version(const JsonValue& value, JsonErrors& errors) {
  std::string version;
  if (read_json(value, version, errors) && version != kSpecFormat) {
    errors.add(value, fmt::format("This program reads format \"{}\", not \"{}\".", kSpecFormat, version),
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

void input_fields(Fields& fields, SpecInput& input, const std::vector<SpecDimension>& dimensions) {
  fields.required_as("shape", "Sizes, in dimensions or numbers.", R"("allOf": [{"$ref": "#/definitions/sizes"}])",
                     [&](const JsonValue& shape, JsonErrors& errors) {
                       if (!expect_type(shape, JsonType::Array, "a list of sizes", errors)) return;
                       for (const JsonValue& size : shape.elements) {
                         read_number(size, input.shape.emplace_back(), dimensions, errors);
                       }
                     });
  fields.optional("dtype", "Element type. Defaults to the precision of the activations.", input.dtype, kSpecDtype);
  fields.optional(
      "root_argument",
      "False: it reaches a module inside without going through the arguments of the root's forward, so that "
      "FSDP2 does not cast it (cast_forward_inputs).",
      input.root_argument);
}

void read_inputs(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object that names each input", errors)) return;
  for (const JsonMember& member : value.members) {
    SpecInput& input = spec.inputs.emplace_back();
    input.name = member.key;
    input.where = errors.document().where(member.value.offset);
    ObjectReader object(member.value, errors);
    Fields fields(object);
    input_fields(fields, input, spec.dimensions);
    object.finish();
  }
}

void class_fields(Fields& fields, SpecClass& entry) {
  fields.required_as("class", "Python class.", kClassNameSchema, [&](const JsonValue& value, JsonErrors& errors) {
    read_class_name(value, entry.class_name, errors);
  });
  fields.optional("called", "False: its parts are called one by one, so that it cannot be an FSDP unit of its own.",
                  entry.called);
}

void read_classes(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object such as {\"model\": \"LlamaModel\"}", errors)) return;
  for (const JsonMember& member : value.members) {
    SpecClass& entry = spec.classes.emplace_back();
    entry.module = member.key;
    entry.where = errors.document().where(member.key_offset);
    if (member.value.type == JsonType::String) {
      read_class_name(member.value, entry.class_name, errors);
      continue;
    }
    ObjectReader object(member.value, errors);
    Fields fields(object);
    class_fields(fields, entry);
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

void read_patterns(const JsonValue& value, std::vector<SpecPattern>& out, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list of name patterns", errors)) return;
  for (const JsonValue& element : value.elements) {
    SpecPattern pattern{.text = {}, .where = errors.document().where(element.offset)};
    if (read_json(element, pattern.text, errors)) out.push_back(std::move(pattern));
  }
}

void precision_fields(Fields& fields, MixedPrecision& precision) {
  fields.optional("param_dtype", "The dtype of unsharded parameters and of compute.", precision.param_dtype,
                  kSpecDtype);
  fields.optional("reduce_dtype", "The dtype of the gradient reduction.", precision.reduce_dtype, kSpecDtype);
  fields.optional("output_dtype", "The dtype of the forward's outputs.", precision.output_dtype, kSpecDtype);
  fields.optional("cast_forward_inputs", "Casts the inputs of each unit to param_dtype.",
                  precision.cast_forward_inputs);
  fields.optional("autocast", "The forward and the loss run under torch.autocast in this dtype: bfloat16.",
                  precision.autocast, kSpecDtype);
  fields.optional("float_outputs", "Under autocast: the logits that the model returns are copied to fp32 (accelerate).",
                  precision.float_outputs);
}

void read_precision(const JsonValue& value, MixedPrecision& precision, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  precision_fields(fields, precision);
  object.finish();
}

void optimizer_fields(Fields& fields, Optimizer& optimizer) {
  constexpr RealRange kNotNegative{0, 1e9};
  fields.optional("kind", "The optimizer's name.", optimizer.kind, kOptimizerKindTable);
  fields.optional("implementation", "PyTorch's implementation.", optimizer.implementation,
                  kOptimizerImplementationTable);
  optimizer_states_field(fields, optimizer);
  fields.optional("weight_decay", "Weight decay.", optimizer.weight_decay, kNotNegative);
  fields.optional("momentum", "SGD's momentum.", optimizer.momentum, kNotNegative);
  fields.optional("clip_grad_norm", "Largest norm of the gradient. Defaults to no clipping.", optimizer.clip_grad_norm,
                  kNotNegative);
}

void read_optimizer(const JsonValue& value, Optimizer& optimizer, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  optimizer_fields(fields, optimizer);
  if (optimizer.momentum != 0 && !optimizer_row(optimizer).moments_need_momentum) {
    object.fail("momentum", fmt::format("{} has no momentum.", name_of(kOptimizerKindTable, optimizer.kind)),
                "Leave it out, or take sgd.");
  }
  object.finish();
}

/// Other values of the model's dimensions.
void read_recipe_dimensions(const JsonValue& value, const ModelSpec& spec, Recipe& recipe, JsonErrors& errors) {
  read_dimensions(value, recipe.dimensions, errors, spec.dimensions);
  std::vector<std::string_view> known;
  for (const SpecDimension& dimension : spec.dimensions) known.push_back(dimension.name);
  std::size_t num_unknown = 0;
  for (const JsonMember& given : value.members) {
    if (std::find(known.begin(), known.end(), given.key) != known.end()) continue;
    const bool is_listed = ++num_unknown <= kMostErrors;
    errors.add(given.key_offset, fmt::format("The model has no dimension \"{}\".", given.key),
               is_listed ? suggest_name(given.key, known) : std::string());
  }
}

void recipe_fields(Fields& fields, const ModelSpec& spec, Recipe& recipe) {
  fields.optional("description", "One sentence for people who choose.", recipe.description);
  fields.optional("parameter_dtype",
                  "The dtype of the trained parameters. Defaults to the checkpoint's. float32 gives master weights.",
                  recipe.parameter_dtype, kSpecDtype);
  fields.optional_as(
      "mixed_precision", "MixedPrecisionPolicy of FSDP2.", R"("allOf": [{"$ref": "#/definitions/mixed_precision"}])",
      [&](const JsonValue& value, JsonErrors& errors) { read_precision(value, recipe.mixed_precision, errors); });
  fields.optional_as(
      "optimizer", "The optimizer and its settings.", R"("allOf": [{"$ref": "#/definitions/optimizer"}])",
      [&](const JsonValue& value, JsonErrors& errors) { read_optimizer(value, recipe.optimizer, errors); });
  fields.optional("accumulation", "Micro-batches per optimizer step.", recipe.accumulation,
                  IntegerRange{1, kMostMicroBatches});
  fields.optional_as(
      "dimensions", "Other default values of dimensions.", kDimensionsSchema,
      [&](const JsonValue& value, JsonErrors& errors) { read_recipe_dimensions(value, spec, recipe, errors); });
  fields.optional_as(
      "trainable", "Patterns that are trained; all others are frozen.", kPatternsSchema,
      [&](const JsonValue& value, JsonErrors& errors) { read_patterns(value, recipe.trainable, errors); });
  fields.optional_as("frozen", "Patterns that are frozen.", kPatternsSchema,
                     [&](const JsonValue& value, JsonErrors& errors) { read_patterns(value, recipe.frozen, errors); });
  fields.optional("notes", "Notes that a user of this recipe needs.", recipe.notes);
}

void read_recipe(const JsonMember& member, const ModelSpec& spec, Recipe& recipe, JsonErrors& errors) {
  recipe.name = member.key;
  ObjectReader object(member.value, errors);
  Fields fields(object);
  recipe_fields(fields, spec, recipe);
  object.finish();
}

void read_recipes(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object that names each recipe", errors)) return;
  for (const JsonMember& member : value.members) read_recipe(member, spec, spec.recipes.emplace_back(), errors);
}

/// Checks that the recipes of entries exist.
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

/// Checks that no module is listed twice.
void check_registration(const std::vector<SpecPattern>& registration, JsonErrors& errors, const JsonValue& list) {
  for (std::size_t i = 0; i < registration.size() && registration.size() == list.elements.size(); ++i) {
    for (std::size_t before = 0; before < i; ++before) {
      if (registration[i].text != registration[before].text) continue;
      errors.add(list.elements[i], fmt::format("\"{}\" is listed twice.", registration[i].text),
                 "A module is registered once: leave one of the two out.");
      break;
    }
  }
}

void read_modules(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Array, "a list of modules", errors)) return;
  if (value.elements.empty()) errors.add(value, "There is no module.", "Write at least one.");
  spec.modules.reserve(value.elements.size());
  for (const JsonValue& element : value.elements) {
    read_module(element, spec.modules.emplace_back(), spec.dimensions, errors);
  }
}

}  // namespace

bool read_json(const JsonValue& value, Dtype& out, JsonErrors& errors, SpecDtype /*unused*/) {
  const auto index = read_name(value, "dtype", kDtypes, errors);
  if (index) out = *parse_dtype(kDtypes[*index]);
  return index.has_value();
}

std::string schema_of(Dtype /*value*/, SpecDtype /*unused*/) {
  return schema_reference("dtype");
}

namespace {

void read_parameter_dtype(const JsonValue& value, Dtype& out, JsonErrors& errors) {
  if (read_json(value, out, errors, kSpecDtype) && !is_floating_point(out)) {
    errors.add(value, "Parameters have a floating point dtype.", "Write \"bfloat16\", \"float16\" or \"float32\".");
  }
}

/// Everything else may use the dimensions.
void read_spec_dimensions(const JsonValue& value, std::vector<SpecDimension>& out, JsonErrors& errors) {
  read_dimensions(value, out, errors, {});
  if (find_dimension(out, "batch") == nullptr && value.type == JsonType::Object) {
    errors.add(value, "There is no dimension \"batch\".", "It is the size of one micro-batch on one GPU.");
  }
}

std::string schema_of_parameter_dtype() {
  std::vector<std::string_view> names;
  for (const std::string_view name : kDtypes) {
    if (is_floating_point(*parse_dtype(name))) names.push_back(name);
  }
  return schema_of_names(names);
}

/// Keys about the file itself and the model's data.
void head_fields(Fields& fields, ModelSpec& spec) {
  static const std::string version = fmt::format(R"("const": "{}")", kSpecFormat);
  static const std::string dtypes = schema_of_parameter_dtype();
  fields.ignore("$schema", "The location of this schema, for editors.");
  fields.required_as("format_version", "Version of this format. A reader refuses one that it does not know.", version,
                     read_version);
  fields.required("name", {"The model's usual name.", R"(["Llama-3.1-8B"])"}, spec.name);
  fields.optional("description", "A description in a sentence or two.", spec.description);
  fields.required(
      "source",
      {"The source of the figures.", R"(["https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json"])"},
      spec.source);
  fields.required_as(
      "dtype", "The dtype of the parameters in the checkpoint.", dtypes,
      [&](const JsonValue& value, JsonErrors& errors) { read_parameter_dtype(value, spec.dtype, errors); });
  fields.required_as(
      "dimensions",
      {"Names with default values, for sizes that a workload may change; values may use other dimensions. \"batch\" is "
       "the micro-batch of one GPU; language models have \"seq\" too.",
       R"x([{"batch": 2, "seconds": 10, "frames": "ceil(12.5 * seconds)"}])x"},
      R"("type": "object", "required": ["batch"], "propertyNames": {"$ref": "#/definitions/dimension_name"},
         "additionalProperties": {"$ref": "#/definitions/number"})",
      [&](const JsonValue& value, JsonErrors& errors) { read_spec_dimensions(value, spec.dimensions, errors); });
  fields.required_as("inputs",
                     {"The tensors that the data loader puts on the GPU, by name.",
                      R"([{"input_ids": {"shape": ["batch", "seq"], "dtype": "int64"}}])"},
                     R"("type": "object", "additionalProperties": {"$ref": "#/definitions/input"})",
                     [&](const JsonValue& value, JsonErrors& errors) { read_inputs(value, spec, errors); });
}

/// Keys of the modules, and of the training.
void body_fields(Fields& fields, ModelSpec& spec) {
  fields.optional_as("classes",
                     {"Python classes of modules that hold the entries of \"modules\".",
                      R"([{"": "LlamaForCausalLM", "model": "LlamaModel"}])"},
                     R"("type": "object", "additionalProperties": {"oneOf": [{"type": "string", "minLength": 1},
                                                              {"$ref": "#/definitions/class"}]})",
                     [&](const JsonValue& value, JsonErrors& errors) { read_classes(value, spec, errors); });
  fields.required_as("modules", "The calls of one step in forward order.",
                     R"("type": "array", "minItems": 1, "items": {"$ref": "#/definitions/module"})",
                     [&](const JsonValue& value, JsonErrors& errors) { read_modules(value, spec, errors); });
  fields.optional_as("registration",
                     {"Modules in the order in which PyTorch registers them, if it is not forward order. Siblings not "
                      "named follow in forward order.",
                      R"([["model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb"]])"},
                     R"("type": "array", "uniqueItems": true, "items": {"type": "string"})",
                     [&](const JsonValue& value, JsonErrors& errors) {
                       read_patterns(value, spec.registration, errors);
                       check_registration(spec.registration, errors, value);
                     });
  fields.optional_as("tied",
                     {"Names of parameters that are the same tensor: the other name, and the one that is kept.",
                      R"([{"lm_head.weight": "model.embed_tokens.weight"}])"},
                     R"("type": "object", "additionalProperties": {"type": "string"})",
                     [&](const JsonValue& value, JsonErrors& errors) { read_ties(value, spec, errors); });
  fields.optional_as(
      "initial_values",
      {"The initial values of parameters that no file gives: weights with a standard deviation, norms' scales as ones, "
       "biases as zeros, and exceptions. By default weights are uniform with 0.02.",
       R"([{"source": "initializer_range of config.json", "distribution": "normal", "std": 0.02}])"},
      R"("allOf": [{"$ref": "#/definitions/initial_values"}])",
      [&](const JsonValue& value, JsonErrors& errors) { read_initial_values(value, spec.initial_values, errors); });
  fields.optional("loss", "The value that is backpropagated.", spec.loss);
  fields.optional_as("tokens_per_step",
                     "Tokens of one micro-batch, for throughput. Defaults to batch * seq, or to batch without a seq.",
                     kNumberSchema, [&](const JsonValue& value, JsonErrors& errors) {
                       read_number(value, spec.tokens_per_step.emplace(), spec.dimensions, errors);
                     });
  fields.optional_as(
      "trainable",
      "Patterns of modules or parameters that are trained, in every recipe; all others are frozen. Defaults to all.",
      kPatternsSchema,
      [&](const JsonValue& value, JsonErrors& errors) { read_patterns(value, spec.trainable, errors); });
  fields.optional_as("frozen", "Patterns of modules or parameters that are frozen, in every recipe.", kPatternsSchema,
                     [&](const JsonValue& value, JsonErrors& errors) { read_patterns(value, spec.frozen, errors); });
  fields.optional_as("recipes", "Ways to train the model, by name; the first is the default.",
                     R"("type": "object", "additionalProperties": {"$ref": "#/definitions/recipe"})",
                     [&](const JsonValue& value, JsonErrors& errors) { read_recipes(value, spec, errors); });
  fields.optional("notes", "Notes that a user of this model needs; printed with the plan.", spec.notes);
}

void read_spec(const JsonValue& value, ModelSpec& spec, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  head_fields(fields, spec);
  body_fields(fields, spec);
  if (spec.recipes.empty()) spec.recipes.emplace_back().name = "default";
  if (const JsonValue* modules = value.find("modules")) check_recipe_names(*modules, spec, errors);
  object.finish();
}

}  // namespace

std::string schema_of_spec() {
  return schema_of_fields([](Fields& fields) {
    ModelSpec spec;
    head_fields(fields, spec);
    body_fields(fields, spec);
  });
}

std::vector<std::pair<std::string, std::string>> schemas_of_parts() {
  const std::vector<std::string_view> dtypes(kDtypes.begin(), kDtypes.end());
  std::vector<std::pair<std::string, std::string>> parts = {
      {"dtype", schema_of_names(dtypes)},
      {"input", schema_of_fields([](Fields& fields) {
         SpecInput input;
         input_fields(fields, input, {});
       })},
      {"class", schema_of_fields([](Fields& fields) {
         SpecClass entry;
         class_fields(fields, entry);
       })},
      {"recipe",
       "\"description\": \"Defaults that a command line may override.\", " + schema_of_fields([](Fields& fields) {
         Recipe recipe;
         recipe_fields(fields, {}, recipe);
       })},
      {"mixed_precision", schema_of_fields([](Fields& fields) {
         MixedPrecision precision;
         precision_fields(fields, precision);
       })},
      {"optimizer", schema_of_fields([](Fields& fields) {
                      Optimizer optimizer;
                      optimizer_fields(fields, optimizer);
                    }).append(kOnlySgdHasMomentum)}};
  for (auto& part : schemas_of_initial_values()) parts.push_back(std::move(part));
  return parts;
}

}  // namespace fsdp::model_spec_reader

namespace fsdp {
namespace {

Result<ModelSpec> from_document(const JsonDocument& document) {
  JsonErrors errors(document);
  ModelSpec spec;
  spec.file_name = document.name;
  if (is_captured_model(document)) {
    read_captured_model(document, spec, errors);
  } else {
    model_spec_reader::read_spec(document.root, spec, errors);
  }
  return std::move(errors).result(std::move(spec));
}

}  // namespace

Result<ModelSpec> read_model_spec(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  return read_model_spec(document);
}

Result<ModelSpec> read_model_spec(const JsonDocument& document) {
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
