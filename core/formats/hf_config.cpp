// Translates config.json of Hugging Face transformers into a model spec.
//
// A configuration has the sizes and switches of a class in transformers; blocks of this program express some of those
// classes. So each key of a kind of model is in one of three lists: it is read, and becomes an option of a block; the
// blocks have one value for it, and any other is an error; or it changes neither memory, nor work, nor the result. The
// class does not read any other key, and the answer names it.
//
// Sources: transformers 4.57.3, configuration_utils.py (PretrainedConfig: keys of all models, torch_dtype beside dtype,
// defaults of generation) and modeling_utils.py (from_pretrained).
//
// Not modeled: quantized weights, adapters. Code that a model brings along (auto_map) is noted: transformers runs its
// own class of a type that it has, unless trust_remote_code is set (dynamic_module_utils.py,
// resolve_trust_remote_code).

#include "core/formats/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "core/base/nearest.h"
#include "core/formats/hf_config_reader.h"
#include "core/formats/hf_models.h"

namespace fsdp {

void hf_models::pass_over_common_keys(HfConfigReader& config) {
  // The kind of the file, and its author.
  config.pass_over({"architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path",
                    "_commit_hash", "unsloth_version", "unsloth_fixed"});
  // Keys of initial weights, of tokens, of classes that have their own lists, of outputs.
  config.pass_over({"initializer_range",
                    "use_cache",
                    "bos_token_id",
                    "eos_token_id",
                    "sep_token_id",
                    "decoder_start_token_id",
                    "is_encoder_decoder",
                    "is_decoder",
                    "cross_attention_hidden_size",
                    "id2label",
                    "label2id",
                    "num_labels",
                    "_num_labels",
                    "finetuning_task",
                    "problem_type",
                    "task_specific_params",
                    "tokenizer_class",
                    "prefix",
                    "return_dict",
                    "use_return_dict",
                    "use_bfloat16",
                    "tf_legacy_loss"});
  // Keys of generation.
  config.pass_over({"max_length",
                    "min_length",
                    "max_new_tokens",
                    "do_sample",
                    "early_stopping",
                    "num_beams",
                    "temperature",
                    "top_k",
                    "top_p",
                    "typical_p",
                    "repetition_penalty",
                    "length_penalty",
                    "no_repeat_ngram_size",
                    "encoder_no_repeat_ngram_size",
                    "bad_words_ids",
                    "num_return_sequences",
                    "output_scores",
                    "return_dict_in_generate",
                    "forced_bos_token_id",
                    "forced_eos_token_id",
                    "remove_invalid_values",
                    "exponential_decay_length_penalty",
                    "suppress_tokens",
                    "begin_suppress_tokens",
                    "num_beam_groups",
                    "diversity_penalty"});
}

namespace {

using hf_models::Kind;
using hf_models::Target;

constexpr int kFirstOtherVersion = 5;

std::array<std::span<const Kind>, 9> all_kinds() {
  return {hf_models::decoder_kinds(), hf_models::newer_decoder_kinds(), hf_models::layer_norm_decoder_kinds(),
          hf_models::mixture_kinds(), hf_models::hybrid_kinds(),        hf_models::mamba_kinds(),
          hf_models::other_kinds(),   hf_models::vision_kinds(),        hf_models::encoder_kinds()};
}

const Kind* find_kind(std::string_view model_type) {
  for (const auto kinds : all_kinds()) {
    for (const Kind& kind : kinds) {
      if (kind.model_type == model_type) return &kind;
    }
  }
  return nullptr;
}

const Kind* kind_of_architecture(std::string_view architecture) {
  for (const auto kinds : all_kinds()) {
    for (const Kind& kind : kinds) {
      const auto& names = kind.architectures;
      if (std::find(names.begin(), names.end(), architecture) != names.end()) return &kind;
    }
  }
  return nullptr;
}

std::string text_of(const JsonValue* value) {
  return value != nullptr && value->type == JsonType::String ? value->text : std::string();
}

/// The first of "architectures"; empty if it names none.
std::string architecture_of(const JsonValue& root) {
  const JsonValue* list = root.find("architectures");
  const bool has_one = list != nullptr && list->type == JsonType::Array && !list->elements.empty();
  return has_one ? text_of(&list->elements.front()) : std::string();
}

/// "Qwen3-8B" for "models/Qwen3-8B/config.json" and for the hub's cache; otherwise the file's own name for itself.
std::string model_name(const std::string& path, const JsonValue& root, const std::string& architecture) {
  const std::filesystem::path folder = std::filesystem::path(path).lexically_normal().parent_path();
  constexpr std::string_view kCached = "models--";
  const std::string repository = folder.parent_path().parent_path().filename().string();
  if (folder.parent_path().filename() == "snapshots" && repository.starts_with(kCached)) {
    return repository.substr(repository.rfind("--") + 2);
  }
  const std::string name = folder.filename().string();
  if (!name.empty() && name != "." && name != "..") return name;
  std::string given = text_of(root.find("_name_or_path"));
  while (given.ends_with('/')) given.pop_back();
  given = given.substr(given.rfind('/') + 1);
  return given.empty() ? architecture : given;
}

/// A model with towers for images or sound beside a language model, which may be known; empty for others.
std::string tower_of(const JsonValue& root) {
  for (const std::string_view key : {"vision_config", "audio_config"}) {
    const JsonValue* tower = root.find(key);
    if (tower != nullptr && tower->type == JsonType::Object) return std::string(key);
  }
  return {};
}

/// The advice for such a model.
std::string tower_hint(const JsonValue& root, const std::string& tower) {
  const JsonValue* text = root.find("text_config");
  const bool is_object = text != nullptr && text->type == JsonType::Object;
  const std::string type = is_object ? text_of(text->find("model_type")) : std::string();
  if (find_kind(type) == nullptr) return fmt::format("To plan it, {}", kCaptureInstead);
  return fmt::format(
      "Its text part is a {}: write \"text_config\" into a config.json of its own to plan that alone, and keep the "
      "memory of "
      "\"{}\" free with --reserve; for all of it, {}",
      type, tower, kCaptureInstead);
}

/// One sentence about a model without blocks here.
Error no_blocks(const JsonDocument& document, const std::string& architecture, const std::string& model_type) {
  std::string name = architecture.empty() ? model_type : architecture;
  if (!architecture.empty() && !model_type.empty()) name += fmt::format(" ({})", model_type);
  if (const std::string tower = tower_of(document.root); !tower.empty()) {
    return {document.where(document.root.find(tower)->offset),
            fmt::format("This is the configuration of a {}, whose \"{}\" is a tower without blocks here.", name, tower),
            tower_hint(document.root, tower)};
  }
  std::string known;
  for (const std::string& each : hf_model_types()) known += (known.empty() ? "" : ", ") + each;
  return {document.name, fmt::format("This is the configuration of a {}, whose blocks are not built in.", name),
          fmt::format("There are some for {}; for another, {}", known, kCaptureInstead)};
}

/// The kind to plan. Error: the one sentence why there is none.
Result<const Kind*> kind_of(const JsonDocument& document, std::string& architecture) {
  architecture = architecture_of(document.root);
  const std::string model_type = text_of(document.root.find("model_type"));
  const Kind* kind = model_type.empty() ? kind_of_architecture(architecture) : find_kind(model_type);
  if (kind == nullptr) return tl::unexpected(Errors{no_blocks(document, architecture, model_type)});
  const auto& names = kind->architectures;
  if (architecture.empty() && !kind->needs_architecture) architecture = names.front();
  if (std::find(names.begin(), names.end(), architecture) != names.end()) return kind;
  std::string allowed;
  for (const std::string_view name : names) allowed += fmt::format("{}\"{}\"", allowed.empty() ? "" : " or ", name);
  const JsonValue* list = document.root.find("architectures");
  const std::string where = list == nullptr ? document.name : document.where(list->offset);
  if (architecture.empty()) {
    return failure(where, fmt::format("A {} without a class in \"architectures\".", model_type),
                   fmt::format("It is {}.", allowed));
  }
  return failure(
      where, fmt::format("There are no blocks for {}.", architecture),
      fmt::format("For a {} there are those of {}; for another class, {}", kind->model_type, allowed, kCaptureInstead));
}

/// The dtype in the file, or that of the weights, or `otherwise`.
Dtype read_dtype(HfConfigReader& config, std::optional<Dtype> weights_dtype, Dtype otherwise) {
  Dtype dtype = weights_dtype.value_or(otherwise);
  // If both are given, "dtype" wins.
  for (const std::string_view key : {"torch_dtype", "dtype"}) {
    const JsonValue* value = config.find(key);
    if (value == nullptr || value->type == JsonType::Null) continue;
    dtype = *parse_dtype(config.text(key, name_of(dtype), {"float32", "bfloat16", "float16", "float64"}));
  }
  return dtype;
}

/// Weights that were published in few bits, and that from_pretrained can turn into floating point.
void read_quantization(HfConfigReader& config, const Kind& kind, Target& target) {
  const JsonValue* given = config.find("quantization_config");
  const bool is_object = given != nullptr && given->type == JsonType::Object;
  const std::string method = is_object ? text_of(given->find("quant_method")) : std::string();
  if (!method.empty() && method == kind.published_as) {
    target.notes.push_back(
        fmt::format("{} has weights in {}; the plan trains them in floating point, as from_pretrained loads them with "
                    "quantization_config={}(dequantize=True).",
                    kHfNote, method, method == "mxfp4" ? "Mxfp4Config" : "FineGrainedFP8Config"));
    target.dtype = Dtype::BFloat16;
    return;
  }
  config.only_empty({"quantization_config"},
                    "Weights are trained in floating point here; plan the model that was quantized.");
}

/// Keys that every configuration may have.
void read_common_keys(HfConfigReader& config, const Kind& kind, Target& target) {
  read_quantization(config, kind, target);
  config.only_empty({"compression_config"},
                    "Weights are trained in floating point here; plan the model that was quantized.");
  config.only_empty({"gradient_checkpointing"}, "Remove it: a plan sets which blocks are recomputed.");
  for (const std::string_view key : {"attn_implementation", "_attn_implementation"}) {
    const JsonValue* value = config.find(key);
    if (value == nullptr || value->type == JsonType::Null || text_of(value) == "sdpa") continue;
    config.fail(key, fmt::format("\"{}\" is {}.", key, describe(*value)),
                "Remove it: a plan sets which attention runs (runtime/implementations).");
  }
  for (const std::string_view key :
       {"output_attentions", "output_hidden_states", "torchscript", "tie_encoder_decoder"}) {
    config.only(key, false);
  }
  config.only("chunk_size_feed_forward", 0.0);
  config.only_empty({"pruned_heads"});
  hf_models::pass_over_common_keys(config);
}

/// The newer major version that wrote the file has other classes, with one tensor for all experts.
std::optional<std::string> version_note(const JsonValue& root) {
  const std::string version = text_of(root.find("transformers_version"));
  int major = 0;
  for (const char c : version) {
    if (c < '0' || c > '9' || major > 99) break;
    major = major * 10 + (c - '0');
  }
  if (major < kFirstOtherVersion) return std::nullopt;
  return fmt::format("{} was written by transformers {}; the model is planned as transformers 4.57 builds it.", kHfNote,
                     version);
}

/// A model that brings code of its own, beside transformers' class of the same type.
std::optional<std::string> own_code_note(HfConfigReader& config) {
  const JsonValue* map = config.find("auto_map");
  const bool is_empty =
      map == nullptr || map->type == JsonType::Null || (map->type == JsonType::Object && map->members.empty());
  if (is_empty) return std::nullopt;
  return fmt::format(
      "{} names code of the model's own (auto_map), which runs only with trust_remote_code=True; transformers' own "
      "class "
      "is planned. For the other, {}",
      kHfNote, kCaptureInstead);
}

std::string unread_note(const std::vector<std::string>& keys, std::string_view whose) {
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "" : ", ") + key;
  return fmt::format(
      "{} has keys that the {} of transformers 4.57 does not read; they are taken to change nothing: {}.", kHfNote,
      whose, names);
}

}  // namespace

bool is_hf_config(const JsonDocument& document) {
  const JsonValue& root = document.root;
  if (root.type != JsonType::Object || root.find("format_version") != nullptr || root.find("modules") != nullptr) {
    return false;
  }
  const JsonValue* names = root.find("architectures");
  return !text_of(root.find("model_type")).empty() || (names != nullptr && names->type == JsonType::Array);
}

Result<ModelSpec> read_hf_config(const JsonDocument& document, std::optional<Dtype> weights_dtype) {
  Target target;
  FSDP_TRY(const Kind* kind, kind_of(document, target.architecture));
  JsonErrors errors(document);
  HfConfigReader config(document.root, std::string(kind->model_type), errors);
  read_common_keys(config, *kind, target);
  target.dtype = read_dtype(config, weights_dtype, target.dtype);
  target.name = model_name(document.name, document.root, target.architecture);
  target.source = document.name;
  if (auto note = own_code_note(config)) target.notes.push_back(*std::move(note));
  target.transformers_version = text_of(document.root.find("transformers_version"));
  if (auto note = kind->follows_version ? std::nullopt : version_note(document.root)) {
    target.notes.push_back(*std::move(note));
  }
  std::string text = kind->translate(config, target);
  if (!errors.empty()) return tl::unexpected(std::move(errors).take());
  FSDP_TRY(JsonDocument spec, parse_json(std::move(text), document.name));
  spec.is_translated = true;
  FSDP_TRY(ModelSpec result, read_model_spec(spec));
  // Complete only after every key was requested.
  std::vector<std::string> unread = config.unread();
  unread.insert(unread.end(), target.unread.begin(), target.unread.end());
  if (!unread.empty()) {
    result.notes.push_back(unread_note(unread, kind->model_type));
  }
  return result;
}

std::vector<std::string> hf_model_types() {
  std::vector<std::string> names;
  for (const auto kinds : all_kinds()) {
    for (const Kind& kind : kinds) names.emplace_back(kind.model_type);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace fsdp
