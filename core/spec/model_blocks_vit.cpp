// Vision transformers with the names of torchvision or of Hugging Face transformers 4.57.
//
//   pixel_values [batch, channels, image, image] -> patches [batch, (image / patch)^2, hidden] -> class token in front,
//   positions added -> pre-norm encoder layers -> norm -> the class token -> classes
//
// torchvision packs q, k and v into one `in_proj_weight` (nn.MultiheadAttention), then copies them apart and copies the
// output back; it reads the output projection's weight, but never calls the module. Hugging Face has three Linears.
//
// Sources: torchvision/models/vision_transformer.py 0.21, torch/nn/functional.py multi_head_attention_forward,
// models/vit/modeling_vit.py of transformers 4.57.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

bool is_torchvision(const BlockOptions& options) {
  return options.text("naming", "torchvision") == "torchvision";
}

BlockValue patches(BlockBuilder& b, std::string_view module, const BlockOptions& options) {
  const BlockValue pixels = b.input("pixel_values");
  const std::int64_t patch = options.integer("patch_size");
  const std::int64_t hidden = options.integer("hidden_size");
  if (b.size(pixels, 2) % patch != 0 || b.size(pixels, 3) % patch != 0) {
    b.fail(fmt::format("The patch size {2} does not divide an image of {0} x {1}.", b.size(pixels, 2),
                       b.size(pixels, 3), patch));
  }
  const BlockValue grid = b.conv2d(module, pixels, hidden, {.kernel = patch, .stride = patch});
  const BlockValue flat = b.reshape(grid, {b.size(grid, 0), hidden, b.size(grid, 2) * b.size(grid, 3)});
  return b.transpose(flat, 1, 2);
}

/// The class token before the patches.
BlockValue with_class_token(BlockBuilder& b, std::string_view name, BlockValue x) {
  const std::int64_t hidden = b.size(x, 2);
  const BlockValue token = b.parameter(name, {1, 1, hidden});
  return b.cat({b.expand(token, {b.size(x, 0), 1, hidden}), x}, 1);
}

void vit_embeddings(BlockBuilder& b, const BlockOptions& options) {
  const double dropout = options.number("dropout");
  if (is_torchvision(options)) {
    const BlockValue tokens = with_class_token(b, "class_token", patches(b, "conv_proj", options));
    b.output("tokens", tokens);  // The encoder's argument, which later calls read too.
    const auto scope = b.enter("encoder", "Encoder");
    const BlockValue positions = b.parameter("pos_embedding", {1, b.size(tokens, 1), b.size(tokens, 2)});
    const BlockValue input = b.add(tokens, positions);
    if (dropout > 0) b.named_output("input", input);
    b.named_output("hidden", b.dropout("dropout", input, dropout));
    return;
  }
  const auto scope = b.enter("embeddings", "ViTEmbeddings");
  BlockValue embedded;
  {
    const auto patch_scope = b.enter("patch_embeddings", "ViTPatchEmbeddings");
    embedded = patches(b, "projection", options);
  }
  const BlockValue tokens = with_class_token(b, "cls_token", embedded);
  const BlockValue positions = b.parameter("position_embeddings", {1, b.size(tokens, 1), b.size(tokens, 2)});
  b.output("hidden", b.dropout("dropout", b.add(tokens, positions), dropout));
}

/// nn.MultiheadAttention below "self_attention".
BlockValue packed_attention(BlockBuilder& b, BlockValue x, std::int64_t heads, double dropout) {
  const auto scope = b.enter("self_attention", "MultiheadAttention");
  const std::int64_t width = b.size(x, -1);
  const BlockValue packed =
      b.linear("", x, 3 * width, {.bias = true, .weight_name = "in_proj_weight", .bias_name = "in_proj_bias"});
  const auto qkv = b.split(b.contiguous(packed), 3, -1);
  b.local("q", qkv[0]);
  b.local("k", qkv[1]);
  b.local("v", qkv[2]);
  const BlockValue mixed = b.attention(split_heads(b, qkv[0], heads), split_heads(b, qkv[1], heads),
                                       split_heads(b, qkv[2], heads), {.causal = false, .dropout = dropout});
  b.declare("out_proj", "NonDynamicallyQuantizableLinear", false);
  return b.linear("out_proj", b.contiguous(mixed), width, {.bias = true});
}

void torchvision_layer(BlockBuilder& b, const BlockOptions& options) {
  const double dropout = options.number("dropout");
  const BlockValue hidden = b.input("hidden");
  const std::int64_t width = b.size(hidden, -1);
  const NormOptions norm = {.eps = norm_eps(b, options)};
  const BlockValue normed = b.layer_norm("ln_1", hidden, norm);
  const BlockValue attention =
      packed_attention(b, normed, options.integer("num_attention_heads"), options.number("attention_dropout"));
  const BlockValue middle = b.add(b.dropout("dropout", attention, dropout), hidden);
  const BlockValue normed_middle = b.layer_norm("ln_2", middle, norm);
  BlockValue mlp;
  {
    const auto scope = b.enter("mlp", "MLPBlock");
    const BlockValue inner = b.linear("0", normed_middle, options.integer("intermediate_size"), {.bias = true});
    const BlockValue active = b.dropout("2", b.activation("1", OpKind::Gelu, inner, "GELU"), dropout);
    mlp = b.dropout("4", b.linear("3", active, width, {.bias = true}), dropout);
  }
  b.output("hidden", b.add(middle, mlp));
}

void huggingface_layer(BlockBuilder& b, const BlockOptions& options) {
  const double dropout = options.number("dropout");
  const std::int64_t heads = options.integer("num_attention_heads");
  const LinearOptions biased = {.bias = true};
  const BlockValue hidden = b.input("hidden");
  const std::int64_t width = b.size(hidden, -1);
  const NormOptions norm = {.eps = norm_eps(b, options)};
  b.declare("attention", "ViTAttention");
  b.declare("intermediate", "ViTIntermediate");
  b.declare("output", "ViTOutput");
  b.declare("layernorm_before", "LayerNorm");
  b.declare("layernorm_after", "LayerNorm");
  const BlockValue normed = b.local("hidden_states_norm", b.layer_norm("layernorm_before", hidden, norm));
  BlockValue attention;
  {
    const auto outer = b.enter("attention", "ViTAttention");
    {
      const auto inner = b.enter("attention", "ViTSelfAttention");
      for (const char* name : {"query", "key", "value"}) b.declare(name, "Linear");
      const BlockValue k = b.local("key_layer", split_heads(b, b.linear("key", normed, width, biased), heads));
      const BlockValue v = b.local("value_layer", split_heads(b, b.linear("value", normed, width, biased), heads));
      const BlockValue q = b.local("query_layer", split_heads(b, b.linear("query", normed, width, biased), heads));
      attention = b.attention(q, k, v, {.causal = false, .dropout = options.number("attention_dropout")});
    }
    const auto output = b.enter("output", "ViTSelfOutput");
    attention = b.dropout("dropout", b.linear("dense", attention, width, biased), dropout);
  }
  b.local("attention_output", attention);
  const BlockValue middle = b.add(attention, hidden);
  BlockValue mlp = b.layer_norm("layernorm_after", middle, norm);
  {
    const auto scope = b.enter("intermediate", "ViTIntermediate");
    mlp = b.linear("dense", mlp, options.integer("intermediate_size"), biased);
    mlp = b.activation("intermediate_act_fn", OpKind::Gelu, mlp, "GELUActivation");
  }
  const auto scope = b.enter("output", "ViTOutput");
  mlp = b.dropout("dropout", b.linear("dense", mlp, width, biased), dropout);
  b.output("hidden", b.add(mlp, middle));
}

void vit_layer(BlockBuilder& b, const BlockOptions& options) {
  is_torchvision(options) ? torchvision_layer(b, options) : huggingface_layer(b, options);
}

// torchvision: the class token through `heads.head`. Hugging Face: the class token through `classifier`.
void vit_head(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue token = b.select(b.input("hidden"), 1, 0);
  const std::int64_t num_classes = options.integer("num_classes");
  if (!is_torchvision(options)) {
    b.output("logits", b.linear("classifier", token, num_classes, {.bias = true}));
    return;
  }
  const auto scope = b.enter("heads", "Sequential");
  b.output("logits", b.linear("head", token, num_classes, {.bias = true}));
}

void vit_pooler(BlockBuilder& b, const BlockOptions& /*options*/) {
  const BlockValue first = b.select(b.input("hidden"), 1, 0);
  const BlockValue dense = b.linear("dense", first, b.size(first, -1), {.bias = true});
  b.output("pooled", b.activation("activation", OpKind::Tanh, dense, "Tanh"));
}

std::string model_class(const BlockOptions& options) {
  return is_torchvision(options) ? "VisionTransformer" : "ViTModel";
}
std::string vit_layer_class(const BlockOptions& options) {
  return is_torchvision(options) ? "EncoderBlock" : "ViTLayer";
}
std::string vit_pooler_class(const BlockOptions& /*options*/) {
  return "ViTPooler";
}

}  // namespace

std::vector<BlockKind> vit_blocks() {
  const OptionRule naming = {"naming",
                             OptionType::Text,
                             false,
                             "The library whose names the modules have. Defaults to torchvision.",
                             {"torchvision", "huggingface"}};
  const OptionRule dropout = {"dropout", OptionType::Number, false, "Dropout. Defaults to 0."};
  return {
      {.name = "vit_embeddings",
       .doc = "pixel_values to hidden [batch, patches + 1, hidden_size].",
       .options = {{"patch_size", OptionType::Size, true, "Height and width of a patch."},
                   {"hidden_size", OptionType::Size, true, "Width of a token."},
                   naming,
                   dropout},
       .build = vit_embeddings,
       .class_name = model_class},
      {.name = "vit_head",
       .doc = "hidden to logits [batch, num_classes]: the class token through a linear layer.",
       .options = {{"num_classes", OptionType::Size, true, "Number of logits."}, naming},
       .build = vit_head},
      {.name = "vit_layer",
       .doc = "hidden to hidden: one encoder layer of a vision transformer.",
       .options = {{"num_attention_heads", OptionType::Size, true, "Heads."},
                   {"intermediate_size", OptionType::Size, true, "Width inside the MLP."},
                   naming,
                   dropout,
                   {"attention_dropout", OptionType::Number, false, "Dropout on attention weights. Defaults to 0."},
                   norm_eps_rule(kNormEpsDoc)},
       .build = vit_layer,
       .class_name = vit_layer_class},
      {.name = "vit_pooler",
       .doc = "hidden to pooled: the class token through a dense layer and tanh (Hugging Face).",
       .options = {},
       .build = vit_pooler,
       .class_name = vit_pooler_class},
  };
}

}  // namespace fsdp
