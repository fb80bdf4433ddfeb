#include "core/plan/plan_json_model.h"

#include <string>
#include <utility>

#include "core/plan/plan_names.h"

namespace fsdp {

namespace {

void read_dimensions(const JsonValue& value, std::vector<Dimension>& dimensions, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object", errors)) return;
  for (const JsonMember& member : value.members) {
    Dimension dimension{.name = member.key};
    read_json(member.value, dimension.value, errors, RealRange{0, std::numeric_limits<double>::max()});
    dimensions.push_back(std::move(dimension));
  }
}

void lora_fields(Fields& fields, LoraOptions& lora) {
  fields.optional("r", "Rank of the adapters.", lora.r, IntegerRange{1, kLargestRank});
  fields.optional("alpha", "lora_alpha: their output is multiplied by alpha / r.", lora.alpha, RealRange{0, 1e9});
  fields.optional("dropout", "lora_dropout: dropout on the input of the adapters.", lora.dropout, RealRange{0, 1});
  fields.optional("targets",
                  "target_modules: linear layers, by the ends of their names; all-linear alone: all but the "
                  "output head.",
                  lora.targets);
  fields.optional("modules_to_save",
                  "Linear layers and embeddings that are trained whole: a trained copy beside the frozen original.",
                  lora.modules_to_save);
  fields.optional("input_grads",
                  "enable_input_require_grads(): the output of the embedding requires a gradient, as the inputs of "
                  "reentrant checkpoints must.",
                  lora.input_grads);
  fields.optional("float32_base", "The frozen base is in float32, whatever the checkpoint has.", lora.float32_base);
  ObjectReader* object = fields.object();
  if (object == nullptr) return;
  for (const Error& error : check_lora(lora, {})) object->fail("targets", error.what, error.hint);
}

constexpr std::string_view kPackedSentences[] = {"flash_attn.flash_attn_varlen_func (flash_attention_2).",
                                                 "torch.nn.attention.varlen.varlen_attn.",
                                                 "scaled_dot_product_attention with a mask of the row's square.",
                                                 "torch.nn.attention.flex_attention, compiled; takes several rows."};

void packing_fields(Fields& fields, Packing& packing) {
  fields.optional_as("document_length",
                     {"Tokens of a document: their mean, the mean and its standard deviation, lengths that the row "
                      "has, or row for one.",
                      R"(["900", "900:300", "9x900,92", "row"])"},
                     R"("type": "string", "pattern": "^([0-9:x,]+|row)$", "default": "512")",
                     [&](const JsonValue& value, JsonErrors& errors) {
                       if (!read_json(value, packing.lengths, errors)) return false;
                       const Result<void> checked = check_lengths(packing.lengths, {});
                       return checked ||
                              errors.add(value, checked.error()[0].what, "Write them as \"900\" or \"900:300\".");
                     });
  fields.optional("attention", "Keeps the documents apart.", packing.attention,
                  DescribedNames{kPackedAttentionTable, kPackedSentences});
}

/// A member in the words of its option.
template <class T>
void read_words(const JsonValue& value, Result<T> (*parse)(std::string_view text, std::string_view where),
                std::optional<T>& member, JsonErrors& errors) {
  if (!expect_type(value, JsonType::String, "a string", errors)) return;
  Result<T> read = parse(value.text, {});
  if (read) {
    member = *std::move(read);
    return;
  }
  for (const Error& error : read.error()) errors.add(value, error.what, error.hint);
}

void read_also(const JsonValue& value, std::vector<OtherModel>& also, JsonErrors& errors) {
  std::vector<std::string> texts;
  if (!read_json(value, texts, errors)) return;
  for (const std::string& text : texts) {
    Result<OtherModel> other = parse_other_model(text, {});
    if (other) {
      also.push_back(*std::move(other));
      continue;
    }
    for (const Error& error : other.error()) errors.add(value, error.what, error.hint);
  }
}

}  // namespace

void model_fields(Fields& fields, Plan& plan) {
  fields.required("name", "Name of the model.", plan.model);
  fields.required(
      "file",
      {"Its spec: a path, relative to this file or to the working directory, or the name of a shipped model.",
       R"(["qwen3_tts", "models/mine.json"])"},
      plan.model_file);
  fields.optional_as(
      "fingerprint",
      "Hash of the parameters' names, shapes and ties. A plan for another model is refused. Empty: not "
      "checked.",
      R"("type": "string", "pattern": "^([0-9a-f]{16})?$", "default": "")",
      [&](const JsonValue& value, JsonErrors& errors) { return read_json(value, plan.model_fingerprint, errors); });
  fields.optional("recipe", "Recipe of the spec; empty: its first.", plan.recipe);
  fields.optional("trainable", "Patterns of parameter names; when given, everything else is frozen.", plan.trainable);
  fields.optional("frozen", "Patterns of parameter names that are frozen.", plan.frozen);
  LoraOptions lora;
  bool has_lora = false;
  fields.optional_object("lora",
                         "Adapters of PEFT, peft.LoraConfig: everything else is frozen before the patterns above.",
                         [&](Fields& inner) {
                           has_lora = true;
                           lora_fields(inner, lora);
                         });
  if (has_lora && fields.object() != nullptr) plan.lora = std::move(lora);
  Packing packing;
  bool has_packing = false;
  fields.optional_object("packing", "A micro-batch is one row of several documents, which attend to themselves alone.",
                         [&](Fields& inner) {
                           has_packing = true;
                           packing_fields(inner, packing);
                         });
  if (has_packing && fields.object() != nullptr) plan.packing = std::move(packing);
  fields.optional_as(
      "quantization",
      "The frozen base below the adapters in four bits, transformers.BitsAndBytesConfig: nf4 or fp4, then ,double for "
      "double quantization and ,uint8 for that storage.",
      R"("type": "string", "pattern": "^(nf4|fp4)(,double)?(,uint8)?$")",
      [&](const JsonValue& value, JsonErrors& errors) {
        read_words(value, parse_quantization, plan.quantization, errors);
      });
  fields.optional_as(
      "liger_kernels",
      "Kernels of liger-kernel in place of parts of the model: all that the library has for its family, or names of "
      "rope, rms_norm and glu. Its loss is a loss.",
      R"("type": "string", "pattern": "^(all|(rope|rms_norm|glu)(,(rope|rms_norm|glu))*)$")",
      [&](const JsonValue& value, JsonErrors& errors) { read_words(value, parse_liger, plan.liger, errors); });
  fields.optional_as(
      "float8",
      {"Linear layers are Float8Linear of torchao: tensorwise, rowwise or rowwise_with_gw_hp, then ,all_gather for "
       "weights that FSDP2 gathers in 8 bits, ,precompute for their scales after the optimizer's step, and ,skip= with "
       "parts of names.",
       R"(["tensorwise,all_gather,precompute", "rowwise,skip=output+auto_filter_small_kn"])"},
      R"("type": "string")",
      [&](const JsonValue& value, JsonErrors& errors) { read_words(value, parse_float8, plan.float8, errors); });
  fields.optional_as(
      "also",
      {"Models beside the trained one, which are not trained: MODEL, or with ,wrap=root|blocks|none ,offload=yes "
       ",dtype=bf16 ,turn=before.",
       R"([["qwen3_1_7b,wrap=blocks,offload=yes"]])"},
      R"("type": "array", "items": {"type": "string"}, "maxItems": 3)",
      [&](const JsonValue& value, JsonErrors& errors) { read_also(value, plan.also, errors); });
  fields.optional_as(
      "dimensions",
      "Sizes of the workload, by the name that the spec gives them: batch (per rank and micro-batch), seq "
      "and others.",
      R"("type": "object", "additionalProperties": {"type": "number", "minimum": 0})",
      [&](const JsonValue& value, JsonErrors& errors) { read_dimensions(value, plan.dimensions, errors); });
}

void write_model_members(JsonWriter& writer, const Plan& plan) {
  writer.member("name", plan.model);
  writer.member("file", plan.model_file);
  writer.member("fingerprint", plan.model_fingerprint);
  writer.member("recipe", plan.recipe);
  writer.key("dimensions");
  writer.begin_object();
  for (const Dimension& dimension : plan.dimensions) writer.member(dimension.name, dimension.value);
  writer.end_object();
  writer.member("trainable", plan.trainable);
  writer.member("frozen", plan.frozen);
  if (plan.packing) {
    writer.key("packing");
    writer.begin_object();
    writer.member("document_length", plan.packing->lengths);
    writer.member("attention", name_of(kPackedAttentionTable, plan.packing->attention));
    writer.end_object();
  }
  if (plan.quantization) writer.member("quantization", to_text(*plan.quantization));
  if (plan.liger) writer.member("liger_kernels", to_text(*plan.liger));
  if (plan.float8) writer.member("float8", to_text(*plan.float8));
  if (!plan.also.empty()) {
    std::vector<std::string> also;
    for (const OtherModel& other : plan.also) also.push_back(to_text(other));
    writer.member("also", also);
  }
  if (!plan.lora) return;
  writer.key("lora");
  writer.begin_object();
  writer.member("r", plan.lora->r);
  writer.member("alpha", plan.lora->alpha);
  writer.member("dropout", plan.lora->dropout);
  writer.member("targets", plan.lora->targets);
  writer.member("modules_to_save", plan.lora->modules_to_save);
  if (plan.lora->input_grads) writer.member("input_grads", true);
  if (plan.lora->float32_base) writer.member("float32_base", true);
  writer.end_object();
}

}  // namespace fsdp
