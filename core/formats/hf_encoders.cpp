// RoBERTa and XLM-RoBERTa of Hugging Face as specs, for classes.
//
// Sources: transformers 5.24.0, models/{roberta,xlm_roberta}/configuration_*.py for defaults, modeling_*.py for the
// keys that are read.
//
// Not modeled: other heads (the loss of masked tokens does not turn logits into fp32, as plans of transformers do),
// regression, several labels at once, decoders.

#include <algorithm>

#include "core/formats/hf_bert.h"
#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

namespace {

constexpr double kEncoderWeightDecay = 0.01;

double read_classifier_dropout(HfConfigReader& config, double otherwise) {
  const JsonValue* classifier = config.find("classifier_dropout");
  const bool is_given = classifier != nullptr && classifier->type != JsonType::Null;
  return is_given ? config.probability("classifier_dropout", 0) : otherwise;
}

std::string roberta_of(HfConfigReader& config, Target& target, const std::string& family) {
  const BertSizes model = read_bert_sizes(config, family == "Roberta" ? 50265 : 30522, 1);
  const double classifier_dropout = read_classifier_dropout(config, model.dropout);
  const std::int64_t classes = read_classes(config);
  config.pass_over({"tie_word_embeddings"});
  const std::int64_t longest = std::max<std::int64_t>(model.positions - model.padding.value_or(-1) - 1, 1);
  HfSpecText spec(target.name, target.source, target.dtype,
                  {{"batch", 8}, {"seq", std::min<std::int64_t>(longest, 512)}});
  spec.inputs({{"input_ids", {"batch", "seq"}}, {"labels", {"batch"}}});
  spec.classes({{"", target.architecture}, {"roberta", family + "Model"}, {"roberta.encoder", family + "Encoder"}});
  write_bert_encoder(spec, "roberta", "roberta_embeddings", model, family);
  spec.module("classifier", "roberta_classification_head", [&](JsonWriter& json) {
    json.member("num_classes", classes);
    json.member("family", family);
    json.member("dropout", classifier_dropout);
  });
  spec.module("", "cross_entropy");
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
