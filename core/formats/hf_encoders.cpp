// RoBERTa and XLM-RoBERTa of Hugging Face as specs, for classes.
//
// Sources: transformers 5.24.0, models/{roberta,xlm_roberta}/configuration_*.py for defaults, modeling_*.py for the
// keys that are read.
//
// Not modeled: other heads (the loss of masked tokens does not turn logits into fp32, as plans of transformers do),
// regression, several labels at once, decoders.

#include <fmt/format.h>

#include <algorithm>

#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

namespace {

constexpr double kEncoderWeightDecay = 0.01;

struct Roberta {
  std::string family;  ///< First word of its classes.
  std::int64_t vocab_size = 1, hidden_size = 1, intermediate_size = 1, layers = 1, heads = 1, positions = 1, types = 1;
  std::int64_t classes = 2;
  std::optional<std::int64_t> padding;
  double dropout = 0, attention_dropout = 0, classifier_dropout = 0, eps = 0, initial_std = kUsualInitialStd;
};

Roberta read_roberta(HfConfigReader& config, std::string family) {
  Roberta model{.family = std::move(family), .padding = {}};
  model.vocab_size = config.size("vocab_size", model.family == "Roberta" ? 50265 : 30522);
  model.hidden_size = config.size("hidden_size", 768);
  model.intermediate_size = config.size("intermediate_size", 3072);
  model.layers = config.size("num_hidden_layers", 12, kMostConfigLayers);
  model.heads = config.size("num_attention_heads", 12);
  check_heads(config, "hidden_size", model.hidden_size, "num_attention_heads", model.heads);
  model.positions = config.size("max_position_embeddings", 512);
  model.types = config.size("type_vocab_size", 2);
  model.padding = config.padding_index("pad_token_id", 1, model.vocab_size);
  model.dropout = config.probability("hidden_dropout_prob", 0.1);
  model.attention_dropout = config.probability("attention_probs_dropout_prob", 0.1);
  const JsonValue* classifier = config.find("classifier_dropout");
  const bool is_given = classifier != nullptr && classifier->type != JsonType::Null;
  model.classifier_dropout = is_given ? config.probability("classifier_dropout", 0) : model.dropout;
  model.eps = config.positive("layer_norm_eps", 1e-12);
  model.initial_std = config.positive("initializer_range", kUsualInitialStd);
  config.text("hidden_act", "gelu", {"gelu"});
  config.text("position_embedding_type", "absolute", {"absolute"});
  config.only("is_decoder", false);
  config.only("add_cross_attention", false);
  return model;
}

/// The number of classes, by their names.
std::int64_t read_num_classes(HfConfigReader& config) {
  const std::int64_t stated = config.size("num_labels", 2);
  const JsonValue* names = config.find("id2label");
  const bool has_names = names != nullptr && names->type == JsonType::Object && !names->members.empty();
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

void write_roberta_modules(HfSpecText& spec, const Roberta& model) {
  spec.module("roberta.embeddings", "roberta_embeddings", [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    json.member("hidden_size", model.hidden_size);
    json.member("max_positions", model.positions);
    json.member("type_vocab_size", model.types);
    if (model.padding) json.member("padding_idx", *model.padding);
    json.member("family", model.family);
    json.member("dropout", model.dropout);
    json.member("norm_eps", model.eps);
  });
  spec.module(repeated_name("roberta.encoder.layer", 0, model.layers - 1), "bert_layer", [&](JsonWriter& json) {
    json.member("num_attention_heads", model.heads);
    json.member("intermediate_size", model.intermediate_size);
    json.member("family", model.family);
    json.member("dropout", model.dropout);
    json.member("attention_dropout", model.attention_dropout);
    json.member("norm_eps", model.eps);
  });
  spec.module("classifier", "roberta_classification_head", [&](JsonWriter& json) {
    json.member("num_classes", model.classes);
    json.member("family", model.family);
    json.member("dropout", model.classifier_dropout);
  });
  spec.module("", "cross_entropy");
}

std::string roberta_of(HfConfigReader& config, Target& target, const std::string& family) {
  Roberta model = read_roberta(config, family);
  model.classes = read_num_classes(config);
  config.pass_over({"tie_word_embeddings"});
  const std::int64_t longest = std::max<std::int64_t>(model.positions - model.padding.value_or(-1) - 1, 1);
  HfSpecText spec(target.name, target.source, target.dtype,
                  {{"batch", 8}, {"seq", std::min<std::int64_t>(longest, 512)}});
  spec.inputs({{"input_ids", {"batch", "seq"}}, {"labels", {"batch"}}});
  spec.classes({{"", target.architecture}, {"roberta", family + "Model"}, {"roberta.encoder", family + "Encoder"}});
  write_roberta_modules(spec, model);
  spec.end_modules();
  if (family == "XLMRoberta") spec.registration({"classifier", "roberta"});
  spec.initial_values("initializer_range of config.json; PreTrainedModel._init_weights", model.initial_std);
  spec.recipes(kEncoderWeightDecay, false);
  return std::move(spec).finish(target.notes);
}

std::string roberta(HfConfigReader& config, Target& target) {
  return roberta_of(config, target, "Roberta");
}

std::string xlm_roberta(HfConfigReader& config, Target& target) {
  return roberta_of(config, target, "XLMRoberta");
}

}  // namespace

std::span<const Kind> encoder_kinds() {
  static const std::vector<Kind> kKinds = {
      {"roberta", {"RobertaForSequenceClassification"}, roberta, true, true},
      {"xlm-roberta", {"XLMRobertaForSequenceClassification"}, xlm_roberta, true, true},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
