// Models with a tower for images, trained on batches of text: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and its mixtures, Gemma 3,
// Mistral Small 3 and Llama 4. The decoder has the keys of "text_config"; in the first files of Qwen2.5-VL they are
// those of the file itself.
//
// The tower's parameters are sharded, and its forward does not run: a unit of them is never gathered, and they have
// neither gradients nor states of an optimizer.
//
// Sources: transformers 5.24.0,
// models/{qwen2_vl,qwen2_5_vl,qwen3_vl,qwen3_vl_moe,gemma3,mistral3,llama4}/configuration_*.py and modeling_*.py.
//
// Not modeled: batches with images; a capture of the script has them.

#include <fmt/format.h>

#include <numeric>

#include "core/formats/hf_config.h"
#include "core/formats/hf_vision.h"

namespace fsdp::hf_models {

namespace {

constexpr Defaults kQwen2Vl = {.family = "Qwen2VL",
                               .vocab_size = 152064,
                               .hidden_size = 8192,
                               .intermediate_size = 29568,
                               .layers = 80,
                               .heads = 64,
                               .kv_heads = 8,
                               .head_dim = {},
                               .norm_eps = 1e-5,
                               .rope_theta = 1e6,
                               .has_sections = true};
constexpr Defaults kQwen25Vl = [] {
  Defaults defaults = kQwen2Vl;
  defaults.family = "Qwen2_5_VL";
  return defaults;
}();
constexpr Defaults kQwen3Vl = {.family = "Qwen3VLText",
                               .vocab_size = 151936,
                               .intermediate_size = 22016,
                               .kv_heads = 32,
                               .head_dim = 128,
                               .positions = 128000,
                               .rope_theta = 5e5,
                               .has_sections = true};
constexpr Defaults kQwen3VlMoe = {.family = "Qwen3VLMoeText",
                                  .vocab_size = 151936,
                                  .hidden_size = 2048,
                                  .intermediate_size = 5632,
                                  .layers = 24,
                                  .heads = 16,
                                  .kv_heads = 16,
                                  .head_dim = {},
                                  .positions = 128000,
                                  .rope_theta = 5e5,
                                  .has_sections = true};
constexpr Defaults kMistralOf3 = {.family = "Mistral",
                                  .vocab_size = 131072,
                                  .hidden_size = 5120,
                                  .intermediate_size = 32768,
                                  .layers = 40,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .positions = 131072,
                                  .norm_eps = 1e-5,
                                  .rope_theta = 1e9};

/// An object of the file. If it is absent, all its keys are.
class Section {
 public:
  Section(HfConfigReader& config, std::string_view key, Target& target)
      : key_(key), target_(target), reader_(object_of(config, key), config.whose(), config.errors()) {
    pass_over_common_keys(reader_);
    for (const std::string_view flag : {"output_attentions", "output_hidden_states", "torchscript"}) {
      reader_.only(flag, false);
    }
    reader_.only("chunk_size_feed_forward", 0.0);
    reader_.only_empty({"pruned_heads", "quantization_config"});
    for (const std::string_view dtype : {"dtype", "torch_dtype"}) check_dtype(dtype);
    reader_.pass_over({"_attn_implementation_autoset", "attn_implementation", "add_cross_attention"});
  }
  ~Section() {
    for (const std::string& key : reader_.unread()) target_.unread.push_back(fmt::format("{}/{}", key_, key));
  }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  HfConfigReader& reader() { return reader_; }

 private:
  static const JsonValue& object_of(HfConfigReader& config, std::string_view key) {
    static const JsonValue kEmpty = [] {
      JsonValue value;
      value.type = JsonType::Object;
      return value;
    }();
    const JsonValue* found = config.find(key);
    if (found == nullptr || found->type == JsonType::Null) return kEmpty;
    if (found->type == JsonType::Object) return *found;
    config.refuse(*found, key, "It is an object.");
    return kEmpty;
  }

  /// from_pretrained takes the file's own dtype.
  void check_dtype(std::string_view key) {
    const JsonValue* value = reader_.find(key);
    if (value == nullptr || value->type != JsonType::String || value->text == name_of(target_.dtype)) return;
    reader_.fail(
        key, fmt::format("The dtype of \"{}\" is {}, and the model's {}.", key_, value->text, name_of(target_.dtype)),
        "They are equal.");
  }

  std::string key_;
  Target& target_;
  HfConfigReader reader_;
};

void add_notes(Target& target, const Decoder& text) {
  note_older_release(target);
  target.transformers_version = "5";
  target.notes.push_back(fmt::format(
      "Batches are of text: the modules beside \"{}\" are sharded, and their forward does not run. For batches with "
      "images, {}",
      text.around.at, kCaptureInstead));
}

/// The sections of "mrope_section" divide half a head.
void check_sections(HfConfigReader& text, const Decoder& model) {
  const auto& sections = model.rotary.sections;
  const std::int64_t sum = std::accumulate(sections.begin(), sections.end(), std::int64_t{0});
  if (sections.empty() || (sections.size() == 3 && sum == model.head_dim / 2)) return;
  text.fail("rope_scaling",
            fmt::format("\"mrope_section\" has {} sections of {} angles, and a head has {}.", sections.size(), sum,
                        model.head_dim / 2),
            "Time, height and width have a section each, and these divide half a head.");
}

/// The file's own key wins if it is true, as in the classes of Qwen.
bool read_tied(HfConfigReader& config, bool of_text) {
  return config.flag("tie_word_embeddings", false) || of_text;
}

void pass_over_tokens(HfConfigReader& config) {
  config.pass_over({"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
                    "vision_token_id", "image_token_index", "boi_token_index", "eoi_token_index", "boi_token_id",
                    "eoi_token_id", "pad_token_id", "use_cache"});
}

Decoder read_qwen2_vl(HfConfigReader& text, const Defaults& defaults) {
  Decoder model = read_decoder(text, defaults);
  text.text("hidden_act", "silu", {"silu", "swish"});
  model.qkv_bias = model.tables_by_sample = true;
  // With a window, transformers warns that its layers ignore it.
  const bool slides = text.flag("use_sliding_window", false);
  if (slides) {
    text.fail("use_sliding_window", "A sliding window of a Qwen-VL is not planned.",
              "Take false, or " + std::string(kCaptureInstead));
  }
  text.pass_over({"sliding_window", "max_window_layers", "layer_types", "head_dim"});
  check_sections(text, model);
  return model;
}

/// Qwen2-VL and Qwen2.5-VL, whose first files have the keys of the decoder at their top.
std::string older_qwen(HfConfigReader& config, Target& target, const Defaults& defaults,
                       Around (*tower)(HfConfigReader&, HfConfigReader&, const Decoder&)) {
  pass_over_tokens(config);
  const JsonValue* nested = config.find("text_config");
  const bool is_nested = nested != nullptr && nested->type == JsonType::Object;
  Section vision(config, "vision_config", target);
  Decoder model;
  if (is_nested) {
    Section text(config, "text_config", target);
    model = read_qwen2_vl(text.reader(), defaults);
    model.tied = read_tied(config, model.tied);
    // These are the decoder's alone.
    config.pass_over({"attention_dropout", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings",
                      "max_window_layers", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
                      "rms_norm_eps", "rope_theta", "sliding_window", "use_sliding_window", "vocab_size",
                      "rope_scaling"});
  } else {
    model = read_qwen2_vl(config, defaults);
  }
  model.around = tower(config, vision.reader(), model);
  add_notes(target, model);
  return spec_of_decoder(model, target);
}

std::string qwen2_5_vl(HfConfigReader& config, Target& target) {
  return older_qwen(config, target, kQwen25Vl, qwen2_5_vl_tower);
}

std::string qwen2_vl(HfConfigReader& config, Target& target) {
  return older_qwen(config, target, kQwen2Vl, qwen2_vl_tower);
}

std::string newer_qwen(HfConfigReader& config, Target& target, const Defaults& defaults, const std::string& family,
                       bool has_experts) {
  pass_over_tokens(config);
  Section text_section(config, "text_config", target);
  Section vision(config, "vision_config", target);
  HfConfigReader& text = text_section.reader();
  if (has_experts) text.alias("num_experts", "num_local_experts");
  Decoder model = read_decoder(text, defaults);
  model.qk_norm = model.tables_by_sample = true;
  model.qkv_bias = model.output_bias = text.flag("attention_bias", false);
  if (has_experts) {
    read_experts(text, "num_experts", 60, 4, model);
    model.stacked = true;
    model.expert_size = text.size("moe_intermediate_size", 1408);
    read_sparse_layers(text, model);
    text.only("norm_topk_prob", true);
  } else {
    text.text("hidden_act", "silu", {"silu", "swish"});
  }
  check_sections(text, model);
  model.tied = config.flag("tie_word_embeddings", false);
  text.pass_over({"tie_word_embeddings"});
  model.around = qwen3_vl_tower(config, vision.reader(), model, family);
  add_notes(target, model);
  return spec_of_decoder(model, target);
}

std::string qwen3_vl(HfConfigReader& config, Target& target) {
  return newer_qwen(config, target, kQwen3Vl, "Qwen3VL", false);
}

std::string qwen3_vl_moe(HfConfigReader& config, Target& target) {
  return newer_qwen(config, target, kQwen3VlMoe, "Qwen3VLMoe", true);
}

/// Qwen3.5: a decoder with linear attention.
std::string hybrid_qwen(HfConfigReader& config, Target& target, Decoder (*read)(HfConfigReader&),
                        const std::string& family) {
  pass_over_tokens(config);
  Section text(config, "text_config", target);
  Section vision(config, "vision_config", target);
  Decoder model = read(text.reader());
  model.tied = read_tied(config, model.tied);
  vision.reader().only_empty({"deepstack_visual_indexes"});
  model.around = qwen3_5_tower(config, vision.reader(), model, family);
  add_notes(target, model);
  return spec_of_decoder(model, target);
}

std::string qwen3_5(HfConfigReader& config, Target& target) {
  return hybrid_qwen(config, target, read_qwen3_5, "Qwen3_5");
}

std::string qwen3_5_moe(HfConfigReader& config, Target& target) {
  return hybrid_qwen(config, target, read_qwen3_5_moe, "Qwen3_5Moe");
}

std::string gemma3(HfConfigReader& config, Target& target) {
  pass_over_tokens(config);
  Section text(config, "text_config", target);
  Section vision(config, "vision_config", target);
  Decoder model = read_gemma3(text.reader());
  model.tied = config.flag("tie_word_embeddings", true);
  model.around = gemma3_tower(config, vision.reader(), model);
  add_notes(target, model);
  return spec_of_decoder(model, target);
}

Decoder read_mistral_of_3(HfConfigReader& text) {
  Decoder model = read_decoder(text, kMistralOf3);
  read_activation(text, "hidden_act", "silu", model);
  slide_everywhere(text.size_or_null("sliding_window"), model);
  return model;
}

std::string mistral3(HfConfigReader& config, Target& target) {
  pass_over_tokens(config);
  Section text(config, "text_config", target);
  Section vision(config, "vision_config", target);
  HfConfigReader& reader = text.reader();
  const std::string type = reader.text("model_type", "mistral", {"mistral", "ministral3"});
  if (const JsonValue* type = vision.reader().find("model_type"); type != nullptr && type->text != "pixtral") {
    vision.reader().fail("model_type", fmt::format("The tower is a {}.", describe(*type)),
                         fmt::format("\"pixtral\" is planned; for another, {}", kCaptureInstead));
  }
  Decoder model = type == "mistral" ? read_mistral_of_3(reader) : read_ministral3(reader);
  model.tied = config.flag("tie_word_embeddings", true);
  model.around = mistral3_tower(config, vision.reader(), model);
  add_notes(target, model);
  return spec_of_decoder(model, target);
}

std::string llama4(HfConfigReader& config, Target& target) {
  pass_over_tokens(config);
  Section text(config, "text_config", target);
  Section vision(config, "vision_config", target);
  Decoder model = read_llama4(text.reader());
  // The head belongs to the model of "text_config".
  config.pass_over({"tie_word_embeddings"});
  model.around = llama4_tower(config, vision.reader(), model);
  target.notes.push_back(
      "The forward of transformers 5.24.0's Llama4ForConditionalGeneration ends in an AttributeError (image_outputs); "
      "train with a release that runs it.");
  add_notes(target, model);
  return spec_of_decoder(model, target);
}

}  // namespace

std::span<const Kind> vision_kinds() {
  static const std::vector<Kind> kKinds = {
      {"gemma3", {"Gemma3ForConditionalGeneration"}, gemma3, false, true},
      {"llama4", {"Llama4ForConditionalGeneration"}, llama4, false, true},
      {"mistral3", {"Mistral3ForConditionalGeneration"}, mistral3, false, true, "fp8"},
      {"qwen2_5_vl", {"Qwen2_5_VLForConditionalGeneration"}, qwen2_5_vl, false, true},
      {"qwen2_vl", {"Qwen2VLForConditionalGeneration"}, qwen2_vl, false, true},
      {"qwen3_5", {"Qwen3_5ForConditionalGeneration"}, qwen3_5, false, true},
      {"qwen3_5_moe", {"Qwen3_5MoeForConditionalGeneration"}, qwen3_5_moe, false, true},
      {"qwen3_vl", {"Qwen3VLForConditionalGeneration"}, qwen3_vl, false, true},
      {"qwen3_vl_moe", {"Qwen3VLMoeForConditionalGeneration"}, qwen3_vl_moe, false, true},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
