// BERT, T5, Whisper and vision transformers of Hugging Face as specs.
//
// Sources: transformers 4.57.3, models/{bert,t5,whisper,vit}/configuration_*.py for defaults, modeling_*.py for the
// keys that are read.
//
// Not modeled: LayerDrop and dropout of Whisper, its augmentation of spectrograms, gates of T5 other than GELU, pooled
// and other heads than those of pre-training, masked tokens and image classes.

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/formats/hf_bert.h"
#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

namespace {

constexpr double kSmallWeightDecay = 0.01;

// ---- BERT.

void write_bert_modules(HfSpecText& spec, const BertSizes& model, bool has_sentences) {
  write_bert_encoder(spec, "bert", "bert_embeddings", model);
  const auto head = [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    json.member("norm_eps", model.eps);
  };
  if (has_sentences) {
    spec.module("bert.pooler", "bert_pooler");
    spec.module("cls", "bert_pretraining_heads", head);
    spec.module("", "bert_pretraining_loss");
  } else {
    spec.module("cls", "bert_mlm_head", head);
    spec.module("", "cross_entropy");
  }
}

std::string bert(HfConfigReader& config, Target& target) {
  const BertSizes model = read_bert_sizes(config, 30522, 0);
  const bool is_tied = config.flag("tie_word_embeddings", true);
  // Keys of other heads, and of the program that made the first checkpoints.
  config.pass_over({"classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
                    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});
  const bool has_sentences = target.architecture == "BertForPreTraining";
  HfSpecText spec(target.name, target.source, target.dtype,
                  {{"batch", 8}, {"seq", std::min<std::int64_t>(model.positions, 512)}});
  const std::vector<std::string> tokens = {"batch", "seq"};
  if (has_sentences) {
    spec.inputs(
        {{"input_ids", tokens}, {"token_type_ids", tokens}, {"labels", tokens}, {"next_sentence_label", {"batch"}}});
  } else {
    spec.inputs({{"input_ids", tokens}, {"token_type_ids", tokens}, {"labels", tokens}});
  }
  spec.classes({{"", target.architecture}, {"bert", "BertModel"}, {"bert.encoder", "BertEncoder"}});
  write_bert_modules(spec, model, has_sentences);
  spec.end_modules();
  constexpr std::string_view kBias = "cls.predictions.decoder.bias";
  if (is_tied) {
    spec.tied({{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
               {kBias, "cls.predictions.bias"}});
  } else {
    spec.tied({{kBias, "cls.predictions.bias"}});
  }
  spec.initial_values("initializer_range of config.json; BertPreTrainedModel._init_weights", model.initial_std);
  spec.recipes(kSmallWeightDecay, false);
  return std::move(spec).finish(target.notes);
}

// ---- T5.

struct T5 {
  std::int64_t vocab_size = 1, width = 1, head_dim = 1, intermediate_size = 1, heads = 1, layers = 1;
  std::int64_t decoder_layers = 1, buckets = 1, distance = 1;
  double dropout = 0, eps = 0, initial_factor = 1;
  bool gated = false, tied = true;
};

T5 read_t5(HfConfigReader& config) {
  config.aliases({{"d_model", "hidden_size"},
                  {"num_heads", "num_attention_heads"},
                  {"num_layers", "num_hidden_layers"},
                  {"d_kv", "head_dim"}});
  T5 model;
  model.vocab_size = config.size("vocab_size", 32128);
  model.width = config.size("d_model", 512);
  model.head_dim = config.size("d_kv", 64);
  model.intermediate_size = config.size("d_ff", 2048);
  model.heads = config.size("num_heads", 8);
  model.layers = config.size("num_layers", 6, kMostConfigLayers);
  model.decoder_layers =
      config.size_or_null("num_decoder_layers", model.layers, kMostConfigLayers).value_or(model.layers);
  model.buckets = config.size("relative_attention_num_buckets", 32);
  model.distance = config.size("relative_attention_max_distance", 128);
  model.dropout = config.probability("dropout_rate", 0.1);
  model.eps = config.positive("layer_norm_epsilon", 1e-6);
  model.initial_factor = config.positive("initializer_factor", 1.0);
  model.gated = config.text("feed_forward_proj", "relu", {"relu", "gated-gelu"}) == "gated-gelu";
  model.tied = config.flag("tie_word_embeddings", true);
  config.only("is_encoder_decoder", true);
  // Positions are relative; the last three follow from feed_forward_proj and the class.
  config.pass_over({"n_positions", "output_past", "pad_token_id", "classifier_dropout", "dense_act_fn", "is_gated_act",
                    "is_decoder"});
  return model;
}

void write_t5_stack(HfSpecText& spec, const T5& model, std::string_view stack, std::int64_t layers, bool decoder) {
  spec.module(repeated_name(fmt::format("{}.block", stack), 0, layers - 1), "t5_block", [&](JsonWriter& json) {
    json.member("num_attention_heads", model.heads);
    json.member("head_dim", model.head_dim);
    json.member("intermediate_size", model.intermediate_size);
    if (model.gated) json.member("gated", true);
    if (decoder) json.member("decoder", true);
    json.member("relative_attention_max_distance", model.distance);
    json.member("norm_eps", model.eps);
    json.member("dropout", model.dropout);
    std::vector<std::int64_t> buckets(static_cast<std::size_t>(layers), 0);
    buckets.front() = model.buckets;
    nested_member(json, "per_layer", "relative_attention_buckets", buckets);
  });
}

/// A T5Stack's own dropout, which renames the value after the encoder.
void write_t5_dropout(HfSpecText& spec, const T5& model, std::string_view stack, std::string_view output) {
  if (model.dropout == 0) return;
  spec.op(fmt::format("{}.dropout", stack), "Dropout", [&](JsonWriter& json) {
    json.member("op", "dropout");
    json.member("inputs", std::vector<std::string>{"hidden"});
    json.member("probability", model.dropout);
    json.member("outputs", std::vector<std::string>{std::string(output)});
  });
}

void write_t5_norm(HfSpecText& spec, const T5& model, std::string_view stack, bool decoder) {
  const auto options = [&](JsonWriter& json) {
    json.member("eps", model.eps);
    if (decoder || model.dropout > 0) return;
    // Nothing after it names the encoder's output.
    nested_member(json, "outputs", "hidden", "encoder_hidden");
  };
  spec.module(fmt::format("{}.final_layer_norm", stack), "rms_norm", options, "T5LayerNorm");
}

void write_t5_modules(HfSpecText& spec, const T5& model) {
  const auto table = [&](std::string_view renamed) {
    spec.module("shared", "token_embedding", [&](JsonWriter& json) {
      json.member("vocab_size", model.vocab_size);
      json.member("hidden_size", model.width);
      if (renamed.empty()) return;
      nested_member(json, "inputs", "input_ids", renamed);
    });
  };
  table("");
  write_t5_dropout(spec, model, "encoder", "hidden");
  write_t5_stack(spec, model, "encoder", model.layers, false);
  write_t5_norm(spec, model, "encoder", false);
  write_t5_dropout(spec, model, "encoder", "encoder_hidden");
  table("decoder_input_ids");
  write_t5_dropout(spec, model, "decoder", "hidden");
  write_t5_stack(spec, model, "decoder", model.decoder_layers, true);
  write_t5_norm(spec, model, "decoder", true);
  write_t5_dropout(spec, model, "decoder", "hidden");
  if (model.tied) {
    spec.op("", {}, [&](JsonWriter& json) {
      json.member("op", "scale");
      json.member("inputs", std::vector<std::string>{"hidden"});
      json.member("scale", 1 / std::sqrt(static_cast<double>(model.width)));
      json.member("outputs", std::vector<std::string>{"hidden"});
    });
  }
  spec.module("lm_head", "lm_head", [&](JsonWriter& json) { json.member("vocab_size", model.vocab_size); });
  spec.module("", "cross_entropy");
}

/// As in Mesh TensorFlow: queries are not scaled later, so their initial values are small.
void write_t5_initial_values(HfSpecText& spec, const T5& model) {
  const double factor = model.initial_factor;
  const auto over_root = [factor](std::int64_t of) { return factor * std::pow(static_cast<double>(of), -0.5); };
  spec.initial_values("initializer_factor of config.json; T5PreTrainedModel._init_weights", factor,
                      {{"*Attention.q.weight", "normal", over_root(model.width * model.head_dim)},
                       {"*Attention.k.weight", "normal", over_root(model.width)},
                       {"*Attention.v.weight", "normal", over_root(model.width)},
                       {"*Attention.o.weight", "normal", over_root(model.heads * model.head_dim)},
                       {"*.relative_attention_bias.weight", "normal", over_root(model.width)},
                       {"*.DenseReluDense.wi*", "normal", over_root(model.width)},
                       {"*.DenseReluDense.wo.weight", "normal", over_root(model.intermediate_size)},
                       {"*layer_norm.weight", "constant", factor}});
}

std::string t5(HfConfigReader& config, Target& target) {
  const T5 model = read_t5(config);
  if (target.dtype == Dtype::Float16) {
    config.fail("dtype", "In a float16 T5, transformers keeps a part in float32.", "Take \"float32\" or \"bfloat16\".");
  }
  target.architecture = "T5ForConditionalGeneration";
  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 1}, {"seq", 512}, {"target_seq", 128}});
  spec.inputs({{"input_ids", {"batch", "seq"}},
               {"decoder_input_ids", {"batch", "target_seq"}},
               {"labels", {"batch", "target_seq"}}});
  spec.classes({{"", target.architecture}, {"encoder", "T5Stack"}, {"decoder", "T5Stack"}});
  write_t5_modules(spec, model);
  spec.end_modules();
  if (model.tied) spec.tied({{"lm_head.weight", "shared.weight"}});
  write_t5_initial_values(spec, model);
  spec.tokens_per_step("batch * (seq + target_seq)");
  spec.recipes(kSmallWeightDecay, false);
  target.notes.insert(target.notes.begin(),
                      "T5 writes its attention out: it never calls scaled_dot_product_attention, so its score matrices "
                      "stay in memory. Plan it with the eager attention backend.");
  return std::move(spec).finish(target.notes);
}

// ---- Whisper.

struct Whisper {
  std::int64_t vocab_size = 1, mels = 1, width = 1, source_positions = 1, target_positions = 1;
  std::int64_t encoder_layers = 1, encoder_heads = 1, encoder_size = 1;
  std::int64_t decoder_layers = 1, decoder_heads = 1, decoder_size = 1;
  std::optional<std::int64_t> padding;
  double initial_std = kUsualInitialStd;
  bool tied = true;
};

Whisper read_whisper(HfConfigReader& config) {
  config.alias("d_model", "hidden_size");
  config.alias("encoder_attention_heads", "num_attention_heads");
  Whisper model;
  model.vocab_size = config.size("vocab_size", 51865);
  model.mels = config.size("num_mel_bins", 80);
  model.width = config.size("d_model", 384);
  model.encoder_layers = config.size("encoder_layers", 4, kMostConfigLayers);
  model.encoder_heads = config.size("encoder_attention_heads", 6);
  model.encoder_size = config.size("encoder_ffn_dim", 1536);
  model.decoder_layers = config.size("decoder_layers", 4, kMostConfigLayers);
  model.decoder_heads = config.size("decoder_attention_heads", 6);
  model.decoder_size = config.size("decoder_ffn_dim", 1536);
  check_heads(config, "d_model", model.width, "encoder_attention_heads", model.encoder_heads);
  check_heads(config, "d_model", model.width, "decoder_attention_heads", model.decoder_heads);
  model.source_positions = config.size("max_source_positions", 1500);
  model.target_positions = config.size("max_target_positions", 448);
  model.padding = config.padding_index("pad_token_id", 50256, model.vocab_size);
  model.initial_std = config.positive("init_std", kUsualInitialStd);
  model.tied = config.flag("tie_word_embeddings", true);
  config.text("activation_function", "gelu", {"gelu"});
  for (const std::string_view key :
       {"dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"}) {
    config.only(key, 0.0);
  }
  config.only("scale_embedding", false);
  config.only("apply_spec_augment", false);
  config.only("is_encoder_decoder", true);
  // The encoder's number of layers again; masks of an augmentation that is off; heads for classes; keys of generation.
  config.pass_over({"num_hidden_layers", "num_key_value_heads", "mask_time_prob", "mask_time_length",
                    "mask_time_min_masks", "mask_feature_prob", "mask_feature_length", "mask_feature_min_masks",
                    "use_weighted_layer_sum", "classifier_proj_size", "median_filter_width", "forced_decoder_ids",
                    "alignment_heads", "lang_to_id", "task_to_id", "no_timestamps_token_id", "is_multilingual"});
  return model;
}

std::string whisper(HfConfigReader& config, Target& target) {
  const Whisper model = read_whisper(config);
  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 4}, {"target_seq", model.target_positions}});
  spec.inputs({{"input_features",
                {"batch", fmt::format("{}", model.mels), fmt::format("{}", 2 * model.source_positions)},
                false},
               {"decoder_input_ids", {"batch", "target_seq"}},
               {"labels", {"batch", "target_seq"}}});
  spec.classes({{"", target.architecture}, {"model", "WhisperModel"}});
  spec.module("model.encoder", "whisper_encoder_stem", [&](JsonWriter& json) {
    json.member("hidden_size", model.width);
    json.member("max_positions", model.source_positions);
  });
  const auto layers = [&](std::string_view stack, std::string_view block, std::int64_t count, std::int64_t heads,
                          std::int64_t inner) {
    spec.module(repeated_name(stack, 0, count - 1), block, [&](JsonWriter& json) {
      json.member("num_attention_heads", heads);
      json.member("intermediate_size", inner);
      json.member("norm_eps", 1e-5);
    });
  };
  layers("model.encoder.layers", "whisper_encoder_layer", model.encoder_layers, model.encoder_heads,
         model.encoder_size);
  spec.module("model.encoder.layer_norm", "layer_norm", [](JsonWriter& json) {
    json.member("eps", 1e-5);
    nested_member(json, "outputs", "hidden", "encoder_hidden");
  });
  spec.module("model.decoder", "whisper_decoder_embedding", [&](JsonWriter& json) {
    json.member("vocab_size", model.vocab_size);
    json.member("hidden_size", model.width);
    json.member("max_positions", model.target_positions);
    if (model.padding) json.member("padding_idx", *model.padding);
  });
  layers("model.decoder.layers", "whisper_decoder_layer", model.decoder_layers, model.decoder_heads,
         model.decoder_size);
  spec.module("model.decoder.layer_norm", "layer_norm", [](JsonWriter& json) { json.member("eps", 1e-5); });
  spec.module("proj_out", "lm_head", [&](JsonWriter& json) { json.member("vocab_size", model.vocab_size); });
  spec.module("", "cross_entropy");
  spec.end_modules();
  if (model.tied) spec.tied({{"proj_out.weight", "model.decoder.embed_tokens.weight"}});
  spec.initial_values("init_std of config.json; WhisperPreTrainedModel._init_weights", model.initial_std,
                      {{"model.encoder.embed_positions.weight", "sinusoid"}});
  spec.tokens_per_step(fmt::format("batch * ({} + target_seq)", model.source_positions));
  spec.recipes(kSmallWeightDecay, false);
  return std::move(spec).finish(target.notes);
}

// ---- Vision transformers.

struct Vit {
  std::int64_t hidden_size = 1, intermediate_size = 1, layers = 1, heads = 1, image = 1, patch = 1, channels = 1;
  std::int64_t classes = 2;
  double dropout = 0, attention_dropout = 0, eps = 0, initial_std = kUsualInitialStd;
};

Vit read_vit(HfConfigReader& config) {
  Vit model;
  model.hidden_size = config.size("hidden_size", 768);
  model.intermediate_size = config.size("intermediate_size", 3072);
  model.layers = config.size("num_hidden_layers", 12, kMostConfigLayers);
  model.heads = config.size("num_attention_heads", 12);
  check_heads(config, "hidden_size", model.hidden_size, "num_attention_heads", model.heads);
  model.image = config.size("image_size", 224);
  model.patch = config.size("patch_size", 16);
  if (model.image % model.patch != 0) {
    config.fail("image_size",
                fmt::format("The patch size {1} does not divide the image size {0}.", model.image, model.patch),
                "It is a multiple of \"patch_size\".");
  }
  model.channels = config.size("num_channels", 3);
  model.dropout = config.probability("hidden_dropout_prob", 0);
  model.attention_dropout = config.probability("attention_probs_dropout_prob", 0);
  model.eps = config.positive("layer_norm_eps", 1e-12);
  model.initial_std = config.positive("initializer_range", kUsualInitialStd);
  model.classes = read_classes(config);
  config.text("hidden_act", "gelu", {"gelu"});
  config.only("qkv_bias", true);
  config.pass_over(
      {"encoder_stride", "pooler_output_size", "pooler_act", "label2id", "pad_token_id", "tie_word_embeddings"});
  return model;
}

std::string vit(HfConfigReader& config, Target& target) {
  const Vit model = read_vit(config);
  const std::int64_t patches = (model.image / model.patch) * (model.image / model.patch);
  const std::string side = fmt::format("{}", model.image);
  HfSpecText spec(target.name, target.source, target.dtype, {{"batch", 32}});
  spec.inputs(
      {{"pixel_values", {"batch", fmt::format("{}", model.channels), side, side}, false}, {"labels", {"batch"}}});
  spec.classes({{"", target.architecture}, {"vit.encoder", "ViTEncoder"}});
  spec.module("vit", "vit_embeddings", [&](JsonWriter& json) {
    json.member("naming", "huggingface");
    json.member("patch_size", model.patch);
    json.member("hidden_size", model.hidden_size);
    json.member("dropout", model.dropout);
  });
  spec.module(repeated_name("vit.encoder.layer", 0, model.layers - 1), "vit_layer", [&](JsonWriter& json) {
    json.member("naming", "huggingface");
    json.member("num_attention_heads", model.heads);
    json.member("intermediate_size", model.intermediate_size);
    json.member("dropout", model.dropout);
    json.member("attention_dropout", model.attention_dropout);
    json.member("norm_eps", model.eps);
  });
  spec.module("vit.layernorm", "layer_norm", [&](JsonWriter& json) { json.member("eps", model.eps); });
  spec.module("", "vit_head", [&](JsonWriter& json) {
    json.member("naming", "huggingface");
    json.member("num_classes", model.classes);
  });
  spec.module("", "cross_entropy");
  spec.end_modules();
  spec.initial_values("initializer_range of config.json; ViTPreTrainedModel._init_weights", model.initial_std);
  spec.tokens_per_step(fmt::format("batch * {}", patches + 1));
  spec.recipes(kSmallWeightDecay, false);
  return std::move(spec).finish(target.notes);
}

}  // namespace

std::span<const Kind> other_kinds() {
  static const std::vector<Kind> kKinds = {
      {"bert", {"BertForMaskedLM", "BertForPreTraining"}, bert, true},
      {"t5", {"T5ForConditionalGeneration", "T5WithLMHeadModel"}, t5},
      {"vit", {"ViTForImageClassification"}, vit},
      {"whisper", {"WhisperForConditionalGeneration"}, whisper},
  };
  return kKinds;
}

}  // namespace fsdp::hf_models
