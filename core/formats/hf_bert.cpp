#include "core/formats/hf_bert.h"

#include <fmt/format.h>

#include <string>

namespace fsdp::hf_models {

BertSizes read_bert_sizes(HfConfigReader& config, std::int64_t vocab_size, std::int64_t padding) {
  BertSizes sizes;
  sizes.vocab_size = config.size("vocab_size", vocab_size);
  sizes.hidden_size = config.size("hidden_size", 768);
  sizes.intermediate_size = config.size("intermediate_size", 3072);
  sizes.layers = config.size("num_hidden_layers", 12, kMostConfigLayers);
  sizes.heads = config.size("num_attention_heads", 12);
  check_heads(config, "hidden_size", sizes.hidden_size, "num_attention_heads", sizes.heads);
  sizes.positions = config.size("max_position_embeddings", 512);
  sizes.types = config.size("type_vocab_size", 2);
  sizes.padding = config.padding_index("pad_token_id", padding, sizes.vocab_size);
  sizes.dropout = config.probability("hidden_dropout_prob", 0.1);
  sizes.attention_dropout = config.probability("attention_probs_dropout_prob", 0.1);
  sizes.eps = config.positive("layer_norm_eps", 1e-12);
  sizes.initial_std = config.positive("initializer_range", kUsualInitialStd);
  config.text("hidden_act", "gelu", {"gelu"});
  config.text("position_embedding_type", "absolute", {"absolute"});
  config.only("is_decoder", false);
  config.only("add_cross_attention", false);
  return sizes;
}

void write_bert_encoder(HfSpecText& spec, std::string_view at, std::string_view embeddings, const BertSizes& sizes,
                        std::string_view family) {
  spec.module(fmt::format("{}.embeddings", at), embeddings, [&](JsonWriter& json) {
    json.member("vocab_size", sizes.vocab_size);
    json.member("hidden_size", sizes.hidden_size);
    json.member("max_positions", sizes.positions);
    json.member("type_vocab_size", sizes.types);
    if (sizes.padding) json.member("padding_idx", *sizes.padding);
    if (!family.empty()) json.member("family", family);
    json.member("dropout", sizes.dropout);
    json.member("norm_eps", sizes.eps);
  });
  const std::string layers = repeated_name(fmt::format("{}.encoder.layer", at), 0, sizes.layers - 1);
  spec.module(layers, "bert_layer", [&](JsonWriter& json) {
    json.member("num_attention_heads", sizes.heads);
    json.member("intermediate_size", sizes.intermediate_size);
    if (!family.empty()) json.member("family", family);
    json.member("dropout", sizes.dropout);
    json.member("attention_dropout", sizes.attention_dropout);
    json.member("norm_eps", sizes.eps);
  });
}

std::int64_t read_classes(HfConfigReader& config) {
  const std::int64_t stated = config.size("num_labels", 2);
  const JsonValue* names = config.find("id2label");
  const bool has_names = names != nullptr && names->type == JsonType::Object;
  const std::int64_t classes = has_names ? static_cast<std::int64_t>(names->members.size()) : stated;
  if (classes < 2) {
    config.fail("id2label", "There is one class, of which transformers makes a regression.",
                "Take two at least, or " + std::string(kCaptureInstead));
  }
  if (const JsonValue* problem = config.find("problem_type"); problem != nullptr && problem->type != JsonType::Null) {
    config.text("problem_type", "single_label_classification", {"single_label_classification"});
  }
  return classes;
}

}  // namespace fsdp::hf_models
