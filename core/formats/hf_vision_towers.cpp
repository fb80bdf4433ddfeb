// The towers for images of Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Gemma 3, Mistral 3 and Llama 4: which modules and parameters
// they register, for batches of text, on which they do not run.
//
// Sources: transformers 5.24.0,
// models/{qwen2_vl,qwen2_5_vl,qwen3_vl,siglip,gemma3,pixtral,mistral3,llama4}/modeling_*.py for names, shapes and
// order, configuration_*.py for defaults.
//
// Not modeled: their forwards. Keys that only a forward reads are passed over.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/formats/hf_vision.h"

namespace fsdp::hf_models {

namespace {

/// Layers of a block "idle".
class Layers {
 public:
  Layers& add(std::string_view name, std::string_view class_name, std::initializer_list<std::int64_t> sizes = {},
              bool bias = false) {
    text_ += fmt::format("{}{} {}", text_.empty() ? "" : "; ", name, class_name);
    for (const std::int64_t size : sizes) text_ += fmt::format(" {}", size);
    if (bias) text_ += " bias";
    return *this;
  }
  Layers& linear(std::string_view name, std::int64_t in, std::int64_t out, bool bias = true) {
    return add(name, "Linear", {out, in}, bias);
  }
  Layers& layer_norm(std::string_view name, std::int64_t width) { return add(name, "LayerNorm", {width}, true); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void write_idle(HfSpecText& spec, std::string_view name, std::string_view class_name, const Layers& layers) {
  const auto options = [&](JsonWriter& json) {
    json.member("layers", layers.text());
    json.member("called", false);
  };
  spec.module(name, "idle", options, class_name);
}

/// A size, or a list of equal ones.
std::int64_t read_square(HfConfigReader& config, std::string_view key, std::int64_t otherwise) {
  const JsonValue* value = config.find(key);
  if (value == nullptr || value->type != JsonType::Array) return config.size(key, otherwise);
  std::vector<std::int64_t> sizes;
  read_json(*value, sizes, config.errors(), IntegerRange{1, kLargestConfigSize});
  if (sizes.empty() || sizes.front() != sizes.back()) {
    config.refuse(*value, key, "It is one size, or a list of equal ones.");
    return otherwise;
  }
  return sizes.front();
}

/// What the three generations of Qwen share.
struct QwenTower {
  std::int64_t depth = 1, width = 1, heads = 1, inner = 1, channels = 3, patch = 1, frames = 2, merge = 2, out = 1;
};

QwenTower read_qwen_tower(HfConfigReader& vision, const QwenTower& usual) {
  QwenTower tower;
  vision.alias("depth", "num_hidden_layers");
  vision.alias("num_heads", "num_attention_heads");
  tower.depth = vision.size("depth", usual.depth, kMostConfigLayers);
  tower.heads = vision.size("num_heads", usual.heads);
  tower.channels = vision.size("in_channels", usual.channels);
  tower.patch = read_square(vision, "patch_size", usual.patch);
  tower.frames = read_square(vision, "temporal_patch_size", usual.frames);
  tower.merge = vision.size("spatial_merge_size", usual.merge);
  // "in_chans" and "spatial_patch_size" are of the models' first code; the rest is read by a forward.
  vision.pass_over(
      {"hidden_act", "in_chans", "spatial_patch_size", "rope_parameters", "initializer_range", "tokens_per_second"});
  return tower;
}

void check_out_size(HfConfigReader& vision, std::string_view key, std::int64_t out, const Decoder& text) {
  if (out == text.hidden_size) return;
  vision.fail(key, fmt::format("The tower's output is {} wide, and the decoder {}.", out, text.hidden_size),
              "They are equal.");
}

/// The parts of the tower's own module, but for its blocks and mergers.
Layers embeddings_of(const QwenTower& tower, std::string_view embedding_class, std::string_view rotary_class, bool bias,
                     std::int64_t positions) {
  Layers layers;
  layers.add("patch_embed", embedding_class);
  layers.add("patch_embed.proj", "Conv3d", {tower.width, tower.channels, tower.frames, tower.patch, tower.patch}, bias);
  if (positions > 0) layers.add("pos_embed", "Embedding", {positions, tower.width});
  layers.add("rotary_pos_emb", rotary_class);
  return layers.add("rotary_pos_emb.inv_freq", "Buffer", {std::max<std::int64_t>(tower.width / tower.heads / 4, 1)});
}

void write_blocks(HfSpecText& spec, const QwenTower& tower, const std::string& class_name, const Layers& block) {
  write_idle(spec, repeated_name("model.visual.blocks", 0, tower.depth - 1), class_name, block);
}

Around around_qwen(const std::string& family, const std::string& tower_class, const std::string& decoder_class) {
  return {.at = "model.language_model",
          .decoder_class = decoder_class,
          .classes = {{"model", family + "Model"}, {"model.visual", tower_class}},
          .registered = {"model", "model.visual"}};
}

}  // namespace

Around qwen2_5_vl_tower(HfConfigReader& /*config*/, HfConfigReader& vision, const Decoder& text) {
  QwenTower tower = read_qwen_tower(vision, {.depth = 32, .heads = 16, .patch = 14});
  tower.width = vision.size("hidden_size", 3584);
  tower.inner = vision.size("intermediate_size", 3420);
  tower.out = vision.size("out_hidden_size", 3584);
  check_out_size(vision, "out_hidden_size", tower.out, text);
  check_heads(vision, "hidden_size", tower.width, "num_heads", tower.heads);
  vision.pass_over({"window_size", "fullatt_block_indexes"});
  const std::string tower_class = "Qwen2_5_VisionTransformerPretrainedModel";
  Around around = around_qwen("Qwen2_5_VL", tower_class, "Qwen2_5_VLTextModel");
  around.write = [tower, tower_class](HfSpecText& spec) {
    const std::int64_t width = tower.width, merged = width * tower.merge * tower.merge;
    const std::string norm = "Qwen2_5_VLRMSNorm";
    write_idle(spec, "model.visual", tower_class,
               embeddings_of(tower, "Qwen2_5_VisionPatchEmbed", "Qwen2_5_VLVisionRotaryEmbedding", false, 0));
    Layers block;
    block.add("norm1", norm, {width}).add("norm2", norm, {width}).add("attn", "Qwen2_5_VLVisionAttention");
    block.linear("attn.qkv", width, 3 * width).linear("attn.proj", width, width).add("mlp", "Qwen2_5_VLMLP");
    block.linear("mlp.gate_proj", width, tower.inner).linear("mlp.up_proj", width, tower.inner);
    block.linear("mlp.down_proj", tower.inner, width).add("mlp.act_fn", "SiLU");
    write_blocks(spec, tower, "Qwen2_5_VLVisionBlock", block);
    Layers merger;
    merger.add("ln_q", norm, {width}).add("mlp", "Sequential");
    merger.linear("mlp.0", merged, merged).add("mlp.1", "GELU").linear("mlp.2", merged, tower.out);
    write_idle(spec, "model.visual.merger", "Qwen2_5_VLPatchMerger", merger);
  };
  return around;
}

Around qwen2_vl_tower(HfConfigReader& /*config*/, HfConfigReader& vision, const Decoder& text) {
  QwenTower tower = read_qwen_tower(vision, {.depth = 32, .heads = 16, .patch = 14});
  tower.width = vision.size("embed_dim", 1280);
  tower.out = vision.size("hidden_size", 3584);
  check_out_size(vision, "hidden_size", tower.out, text);
  vision.pass_over({"window_size", "fullatt_block_indexes"});
  const double ratio = vision.positive("mlp_ratio", 4);
  tower.inner = static_cast<std::int64_t>(std::floor(static_cast<double>(tower.width) * ratio));
  Around around = around_qwen("Qwen2VL", "Qwen2VisionTransformerPretrainedModel", "Qwen2VLTextModel");
  around.write = [tower](HfSpecText& spec) {
    const std::int64_t width = tower.width, merged = width * tower.merge * tower.merge;
    write_idle(spec, "model.visual", "Qwen2VisionTransformerPretrainedModel",
               embeddings_of(tower, "PatchEmbed", "VisionRotaryEmbedding", false, 0));
    Layers block;
    block.layer_norm("norm1", width).layer_norm("norm2", width).add("attn", "VisionAttention");
    block.linear("attn.qkv", width, 3 * width).linear("attn.proj", width, width).add("mlp", "VisionMlp");
    block.linear("mlp.fc1", width, tower.inner).linear("mlp.fc2", tower.inner, width);
    write_blocks(spec, tower, "Qwen2VLVisionBlock", block);
    Layers merger;
    merger.layer_norm("ln_q", width).add("mlp", "Sequential");
    merger.linear("mlp.0", merged, merged).add("mlp.1", "GELU").linear("mlp.2", merged, tower.out);
    write_idle(spec, "model.visual.merger", "PatchMerger", merger);
  };
  return around;
}

namespace {

/// `normed`: the width of its norm, of a patch or of a group of patches.
void write_qwen3_merger(HfSpecText& spec, const QwenTower& tower, const std::string& name, const std::string& family,
                        std::int64_t normed) {
  const std::int64_t merged = tower.width * tower.merge * tower.merge;
  Layers merger;
  merger.layer_norm("norm", normed).linear("linear_fc1", merged, merged).add("act_fn", "GELU");
  write_idle(spec, name, family + "VisionPatchMerger", merger.linear("linear_fc2", merged, tower.out));
}

/// The number of layers whose tokens the decoder takes.
std::int64_t read_deep_layers(HfConfigReader& vision) {
  std::vector<std::int64_t> deep = {8, 16, 24};
  if (const JsonValue* given = vision.find("deepstack_visual_indexes"); given != nullptr) {
    deep.clear();
    read_json(*given, deep, vision.errors(), IntegerRange{0, kMostConfigLayers});
  }
  return std::ssize(deep);
}

Around newer_qwen_tower(HfConfigReader& vision, const Decoder& text, const std::string& family, std::int64_t deep) {
  QwenTower tower = read_qwen_tower(vision, {.depth = 27, .heads = 16, .patch = 16});
  tower.width = vision.size("hidden_size", 1152);
  tower.inner = vision.size("intermediate_size", 4304);
  tower.out = vision.size("out_hidden_size", 3584);
  check_out_size(vision, "out_hidden_size", tower.out, text);
  check_heads(vision, "hidden_size", tower.width, "num_heads", tower.heads);
  const std::int64_t positions = vision.size("num_position_embeddings", 2304);
  Around around = around_qwen(family, family + "VisionModel", family + "TextModel");
  around.write = [tower, positions, family, deep](HfSpecText& spec) {
    const std::int64_t width = tower.width, merged = width * tower.merge * tower.merge;
    write_idle(spec, "model.visual", family + "VisionModel",
               embeddings_of(tower, family + "VisionPatchEmbed", family + "VisionRotaryEmbedding", true, positions));
    Layers block;
    block.layer_norm("norm1", width).layer_norm("norm2", width).add("attn", family + "VisionAttention");
    block.linear("attn.qkv", width, 3 * width).linear("attn.proj", width, width).add("mlp", family + "VisionMLP");
    block.linear("mlp.linear_fc1", width, tower.inner).linear("mlp.linear_fc2", tower.inner, width);
    write_blocks(spec, tower, family + "VisionBlock", block.add("mlp.act_fn", "GELUTanh"));
    write_qwen3_merger(spec, tower, "model.visual.merger", family, width);
    for (std::int64_t i = 0; i < deep; ++i) {
      write_qwen3_merger(spec, tower, fmt::format("model.visual.deepstack_merger_list.{}", i), family, merged);
    }
  };
  return around;
}

}  // namespace

Around qwen3_vl_tower(HfConfigReader& /*config*/, HfConfigReader& vision, const Decoder& text,
                      const std::string& family) {
  return newer_qwen_tower(vision, text, family, read_deep_layers(vision));
}

Around qwen3_5_tower(HfConfigReader& /*config*/, HfConfigReader& vision, const Decoder& text,
                     const std::string& family) {
  return newer_qwen_tower(vision, text, family, 0);
}

namespace {

/// A tower and a projector after one another.
Around around_projector(const std::string& family, const std::string& tower_class, const std::string& decoder_class) {
  return {.at = "model.language_model",
          .decoder_class = decoder_class,
          .classes = {{"model", family + "Model"}, {"model.vision_tower", tower_class}},
          .registered = {"model", "model.vision_tower", "model.multi_modal_projector"}};
}

struct ImageTower {
  std::int64_t width = 1, inner = 1, layers = 1, heads = 1, channels = 3, image = 1, patch = 1;
};

ImageTower read_image_tower(HfConfigReader& vision, const ImageTower& usual) {
  ImageTower tower;
  tower.width = vision.size("hidden_size", usual.width);
  tower.inner = vision.size("intermediate_size", usual.inner);
  tower.layers = vision.size("num_hidden_layers", usual.layers, kMostConfigLayers);
  tower.heads = vision.size("num_attention_heads", usual.heads);
  check_heads(vision, "hidden_size", tower.width, "num_attention_heads", tower.heads);
  tower.channels = vision.size("num_channels", usual.channels);
  tower.image = read_square(vision, "image_size", usual.image);
  tower.patch = read_square(vision, "patch_size", usual.patch);
  vision.pass_over({"hidden_act", "attention_dropout", "initializer_range", "layer_norm_eps"});
  return tower;
}

Layers siglip_layer(const ImageTower& tower) {
  Layers layer;
  layer.layer_norm("layer_norm1", tower.width).add("self_attn", "SiglipAttention");
  for (const std::string_view name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
    layer.linear(fmt::format("self_attn.{}", name), tower.width, tower.width);
  }
  layer.layer_norm("layer_norm2", tower.width).add("mlp", "SiglipMLP");
  layer.linear("mlp.fc1", tower.width, tower.inner).linear("mlp.fc2", tower.inner, tower.width);
  return layer;
}

/// Pools by attention to one learned query.
Layers siglip_head(const ImageTower& tower) {
  Layers head;
  head.add("probe", "Parameter", {1, 1, tower.width}).add("attention", "MultiheadAttention");
  head.add("attention.in_proj_weight", "Parameter", {3 * tower.width, tower.width});
  head.add("attention.in_proj_bias", "Parameter", {3 * tower.width});
  head.add("attention.out_proj", "NonDynamicallyQuantizableLinear", {tower.width, tower.width}, true);
  head.layer_norm("layernorm", tower.width).add("mlp", "SiglipMLP");
  head.linear("mlp.fc1", tower.width, tower.inner).linear("mlp.fc2", tower.inner, tower.width);
  return head;
}

}  // namespace

Around gemma3_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text) {
  const ImageTower tower =
      read_image_tower(vision, {.width = 768, .inner = 3072, .layers = 12, .heads = 12, .image = 224, .patch = 16});
  const bool has_head = vision.flag("vision_use_head", true);
  config.pass_over({"mm_tokens_per_image"});
  Around around = around_projector("Gemma3", "SiglipVisionModel", "Gemma3TextModel");
  around.write = [tower, has_head, out = text.hidden_size](HfSpecText& spec) {
    const std::int64_t side = tower.image / tower.patch;
    Layers embeddings;
    embeddings.add("patch_embedding", "Conv2d", {tower.width, tower.channels, tower.patch, tower.patch}, true);
    embeddings.add("position_embedding", "Embedding", {side * side, tower.width});
    write_idle(spec, "model.vision_tower.embeddings", "SiglipVisionEmbeddings", embeddings);
    write_idle(spec, repeated_name("model.vision_tower.encoder.layers", 0, tower.layers - 1), "SiglipEncoderLayer",
               siglip_layer(tower));
    Layers norm;
    norm.layer_norm("post_layernorm", tower.width);
    write_idle(spec, "model.vision_tower", "SiglipVisionModel", norm);
    if (has_head)
      write_idle(spec, "model.vision_tower.head", "SiglipMultiheadAttentionPoolingHead", siglip_head(tower));
    Layers projector;
    projector.add("mm_input_projection_weight", "Parameter", {tower.width, out});
    projector.add("mm_soft_emb_norm", "Gemma3RMSNorm", {tower.width}).add("avg_pool", "AvgPool2d");
    write_idle(spec, "model.multi_modal_projector", "Gemma3MultiModalProjector", projector);
  };
  return around;
}

Around mistral3_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text) {
  const ImageTower tower =
      read_image_tower(vision, {.width = 1024, .inner = 4096, .layers = 24, .heads = 16, .image = 1540, .patch = 14});
  vision.pass_over({"head_dim", "rope_theta", "rope_parameters", "vocab_size"});
  const std::int64_t merge = config.size("spatial_merge_size", 2);
  const bool bias = config.flag("multimodal_projector_bias", false);
  std::int64_t num_features = 1;
  const JsonValue* features = config.find("vision_feature_layer");
  if (features != nullptr && features->type == JsonType::Array) {
    num_features = static_cast<std::int64_t>(features->elements.size());
  }
  config.pass_over({"projector_hidden_act"});
  Around around = around_projector("Mistral3", "PixtralVisionModel", text.family + "Model");
  around.write = [tower, merge, bias, num_features, out = text.hidden_size](HfSpecText& spec) {
    const std::string norm = "PixtralRMSNorm";
    Layers stem;
    stem.add("patch_conv", "Conv2d", {tower.width, tower.channels, tower.patch, tower.patch});
    write_idle(spec, "model.vision_tower", "PixtralVisionModel", stem.add("ln_pre", norm, {tower.width}));
    Layers layer;
    layer.add("attention_norm", norm, {tower.width}).add("feed_forward", "PixtralMLP");
    layer.linear("feed_forward.gate_proj", tower.width, tower.inner, false);
    layer.linear("feed_forward.up_proj", tower.width, tower.inner, false);
    layer.linear("feed_forward.down_proj", tower.inner, tower.width, false).add("attention", "PixtralAttention");
    for (const std::string_view name : {"k_proj", "v_proj", "q_proj", "o_proj"}) {
      layer.linear(fmt::format("attention.{}", name), tower.width, tower.width, false);
    }
    layer.add("ffn_norm", norm, {tower.width});
    write_idle(spec, repeated_name("model.vision_tower.transformer.layers", 0, tower.layers - 1),
               "PixtralAttentionLayer", layer);
    Layers projector;
    projector.add("norm", "Mistral3RMSNorm", {tower.width}).add("patch_merger", "Mistral3PatchMerger");
    projector.linear("patch_merger.merging_layer", tower.width * merge * merge, tower.width, false);
    projector.linear("linear_1", tower.width * num_features, out, bias).linear("linear_2", out, out, bias);
    write_idle(spec, "model.multi_modal_projector", "Mistral3MultiModalProjector", projector);
  };
  return around;
}

Around llama4_tower(HfConfigReader& /*config*/, HfConfigReader& vision, const Decoder& text) {
  const ImageTower tower =
      read_image_tower(vision, {.width = 768, .inner = 5632, .layers = 34, .heads = 16, .image = 448, .patch = 14});
  const std::int64_t projector_in = vision.size("projector_input_dim", 4096);
  const std::int64_t projector_out = vision.size("projector_output_dim", 4096);
  const std::int64_t out = vision.size("vision_output_dim", 7680);
  vision.pass_over({"norm_eps", "vision_feature_select_strategy", "vision_feature_layer", "pixel_shuffle_ratio",
                    "multi_modal_projector_bias", "projector_dropout", "rope_parameters", "rope_theta"});
  Around around = {.at = "language_model.model",
                   .head = "language_model.lm_head",
                   .decoder_class = "Llama4TextModel",
                   .classes = {{"vision_model", "Llama4VisionModel"}, {"language_model", "Llama4ForCausalLM"}},
                   .registered = {"vision_model", "multi_modal_projector", "language_model"}};
  around.write = [=, width = text.hidden_size](HfSpecText& spec) {
    const std::int64_t patches = tower.image / tower.patch * (tower.image / tower.patch) + 1;
    Layers model;
    model.add("class_embedding", "Parameter", {tower.width});
    model.add("positional_embedding_vlm", "Parameter", {patches, tower.width});
    model.add("patch_embedding", "Llama4UnfoldConvolution");
    model.linear("patch_embedding.linear", tower.channels * tower.patch * tower.patch, tower.width, false);
    // Complex numbers, two of fp32 each.
    model.add("rotary_embedding", "Llama4VisionRotaryEmbedding");
    model.add("rotary_embedding.freqs_ci", "Buffer",
              {patches, 1, std::max<std::int64_t>(2 * (tower.width / tower.heads / 2), 1)});
    model.layer_norm("layernorm_pre", tower.width).layer_norm("layernorm_post", tower.width);
    write_idle(spec, "vision_model", "Llama4VisionModel", model);
    Layers layer;
    layer.add("self_attn", "Llama4VisionAttention");
    for (const std::string_view name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      layer.linear(fmt::format("self_attn.{}", name), tower.width, tower.width);
    }
    layer.add("mlp", "Llama4VisionMLP").add("mlp.activation_fn", "GELU");
    layer.linear("mlp.fc1", tower.width, tower.inner).linear("mlp.fc2", tower.inner, tower.width);
    layer.layer_norm("input_layernorm", tower.width).layer_norm("post_attention_layernorm", tower.width);
    write_idle(spec, repeated_name("vision_model.model.layers", 0, tower.layers - 1), "Llama4VisionEncoderLayer",
               layer);
    Layers adapter;
    adapter.add("mlp", "Llama4VisionMLP2").linear("mlp.fc1", tower.inner, projector_in, false);
    adapter.linear("mlp.fc2", projector_out, projector_out, false).add("mlp.activation_fn", "GELU");
    write_idle(spec, "vision_model.vision_adapter", "Llama4VisionPixelShuffleMLP", adapter);
    Layers projector;
    write_idle(spec, "multi_modal_projector", "Llama4MultiModalProjector",
               projector.linear("linear_1", out, width, false));
  };
  return around;
}

}  // namespace fsdp::hf_models
