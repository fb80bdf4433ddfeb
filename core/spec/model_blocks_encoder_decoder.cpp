// The blocks of two encoder-decoder transformers, with the names of Hugging Face transformers: T5 and Whisper.
//
//   encoder: embeddings -> N layers -> norm ---------------------------+  read by the cross-attention
//   decoder: embeddings -> N layers (self-attention, cross-attention, MLP) -> norm -> head, tied to the embedding
//
// T5 adds a bias of the relative position to all attention scores. Only the first block of a stack owns its table
// [buckets, heads]; it adds the mask, and the later blocks of the stack read the sum [batch, heads, seq, key_seq],
// which thus collects one gradient from each of them. The decoder's cross-attention has no table, but adds the mask in
// the same way. Whisper's encoder reads mel frames through two convolutions, the second of stride 2, and adds fixed
// sinusoids, a parameter with requires_grad = False. Its k_proj has no bias.
//
// Sources: transformers 4.57.3, models/t5/modeling_t5.py and models/whisper/modeling_whisper.py; Raffel et al.,
// "Exploring the Limits of Transfer Learning", JMLR 2020; Radford et al., "Robust Speech Recognition via Large-Scale
// Weak Supervision", 2022.
//
// T5 does not scale its scores; Whisper scales the queries before it splits them into heads.
//
// Not modeled: the few integer tensors from which T5 computes its buckets, except one of [seq, key_seq]; the copies of
// K and V that a cache makes; LayerDrop; T5LayerNorm in bf16 has its input and the fp32 copy at the same time. T5
// writes its attention out and never calls scaled_dot_product_attention, so plan it with the "eager" attention backend.

#include <fmt/format.h>

#include <cmath>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

// ---- T5

struct T5Options {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  double dropout = 0;
  NormOptions norm = {};
  std::int64_t max_distance = 0;  ///< From this distance on all positions share a bucket.
};

/// [batch, seq, width] to [batch, seq, heads, head_dim].
BlockValue t5_heads(BlockBuilder& b, std::string_view module, BlockValue x, const T5Options& t5) {
  const BlockValue projected = b.linear(module, x, t5.heads * t5.head_dim);
  return b.reshape(projected, {b.size(x, 0), b.size(x, 1), t5.heads, t5.head_dim});
}

/// Attention of x over `keys`, with the given position bias.
BlockValue t5_attention(BlockBuilder& b, BlockValue x, BlockValue keys, BlockValue bias, const T5Options& t5) {
  const BlockValue q = b.local("query_states", t5_heads(b, "q", x, t5));
  const BlockValue k = b.local("key_states", t5_heads(b, "k", keys, t5));
  const BlockValue v = b.local("value_states", t5_heads(b, "v", keys, t5));
  const BlockValue mixed = b.attention(q, k, v, {.causal = false, .dropout = t5.dropout, .bias = bias, .scale = 1});
  return b.linear("o", mixed, b.size(x, -1));
}

/// The mask, without or with the bias of relative positions: [batch, heads, seq, key_seq].
BlockValue t5_position_bias(BlockBuilder& b, BlockValue x, BlockValue keys, bool causal, std::int64_t buckets,
                            const T5Options& t5) {
  const std::int64_t batch = b.size(x, 0), seq = b.size(x, 1), key_seq = b.size(keys, 1);
  const Shape scores = {batch, t5.heads, seq, key_seq};
  const BlockValue mask = causal ? b.filled({batch, 1, seq, key_seq}, {}, {.fill = ConstantFill::CausalMask})
                                 : b.constant({batch, 1, 1, key_seq});
  if (buckets == 0) return b.add(b.expand(b.constant({1, t5.heads, seq, key_seq}), scores), mask);
  const BlockValue bucket = b.filled({seq, key_seq}, Dtype::Int64,
                                     {.fill = ConstantFill::RelativeBuckets,
                                      .num_buckets = buckets,
                                      .max_distance = t5.max_distance,
                                      .bidirectional = !causal});
  const BlockValue table = b.embedding("relative_attention_bias", bucket, buckets, t5.heads);
  const BlockValue by_head = b.transpose(b.transpose(table, 1, 2), 0, 1);
  return b.add(b.expand(b.reshape(by_head, {1, t5.heads, seq, key_seq}), scores), mask);
}

/// One of the two attentions of a block. The first block of a stack makes the bias for the others.
BlockValue t5_attention_layer(BlockBuilder& b, BlockValue hidden, std::optional<BlockValue> keys, bool causal,
                              std::int64_t buckets, const T5Options& t5) {
  const bool crosses = keys.has_value();
  const std::string_view bias_name = crosses ? "encoder_decoder_position_bias" : "position_bias";
  const std::string_view attention = crosses ? "EncDecAttention" : "SelfAttention";
  const auto scope =
      b.enter(crosses ? "layer.1" : "layer.0", crosses ? "T5LayerCrossAttention" : "T5LayerSelfAttention");
  b.declare(attention, "T5Attention");
  const BlockValue normed = b.local("normed_hidden_states", b.rms_norm("layer_norm", hidden, t5.norm));
  BlockValue mixed;
  {
    const auto inner = b.enter(attention, "T5Attention");
    for (const std::string_view name : {"q", "k", "v", "o"}) b.declare(name, "Linear");
    BlockValue bias;
    if (buckets > 0) {
      bias = t5_position_bias(b, normed, keys.value_or(normed), causal, crosses ? 0 : buckets, t5);
      b.output(bias_name, bias);
    } else {
      bias = b.input(bias_name);
    }
    mixed = t5_attention(b, normed, keys.value_or(normed), bias, t5);
  }
  b.local("attention_output", mixed);
  return b.add(hidden, b.dropout("dropout", mixed, t5.dropout));
}

BlockValue t5_feed_forward(BlockBuilder& b, BlockValue x, std::int64_t intermediate, bool gated, double dropout) {
  const auto scope = b.enter("DenseReluDense", gated ? "T5DenseGatedActDense" : "T5DenseActDense");
  if (gated) {
    b.declare("wi_0", "Linear");
    b.declare("wi_1", "Linear");
  } else {
    b.declare("wi", "Linear");
  }
  b.declare("wo", "Linear");
  b.declare("dropout", "Dropout");
  BlockValue inner;
  if (gated) {
    BlockValue gate = b.linear("wi_0", x, intermediate);
    {
      const auto act = b.enter("act", "NewGELUActivation");
      gate = b.op({.kind = OpKind::Gelu, .inputs = {gate}, .attributes = {.approximate = true, .written_out = true}})
                 .front();
    }
    b.local("hidden_gelu", gate);
    inner = b.mul(gate, b.local("hidden_linear", b.linear("wi_1", x, intermediate)));
  } else {
    inner = b.activation("act", OpKind::Relu, b.linear("wi", x, intermediate), "ReLU");
  }
  // hidden_states.to(wo.weight.dtype), which is another dtype only under autocast.
  const BlockValue dropped = b.dropout("dropout", inner, dropout);
  return b.linear("wo", b.op({.kind = OpKind::Cast, .inputs = {dropped}}).front(), b.size(x, -1));
}

void build_t5_block(BlockBuilder& b, const BlockOptions& options) {
  if (b.is_quantized()) {
    b.fail("transformers keeps T5's layers \"wo\" in float32, and a quantized base around them is not predicted.",
           "Capture the script: fsdp-plan capture.");
  }
  const T5Options t5 = {.heads = options.integer("num_attention_heads"),
                        .head_dim = options.integer("head_dim"),
                        .dropout = options.number("dropout", 0.1),
                        .norm = {.class_name = "T5LayerNorm", .eps = norm_eps(b, options)},
                        .max_distance = options.integer("relative_attention_max_distance", 128)};
  const bool decoder = options.flag("decoder");
  const std::int64_t buckets = options.integer("relative_attention_buckets");
  b.declare("layer", "ModuleList", false);
  // Half of the buckets of a direction have one distance each, the others share all distances up to the largest.
  const std::int64_t exact = buckets / (decoder ? 2 : 4);
  if (buckets > 0 && (exact < 1 || t5.max_distance <= exact)) {
    b.fail(fmt::format("{} buckets do not spread over distances up to {}.", buckets, t5.max_distance),
           fmt::format("Take {} buckets at least, and a relative_attention_max_distance above {}.", decoder ? 2 : 4,
                       exact));
  }

  BlockValue hidden = t5_attention_layer(b, b.input("hidden"), {}, decoder, buckets, t5);
  b.local("self_attention_outputs", hidden);
  if (decoder) {
    hidden = t5_attention_layer(b, hidden, b.input("encoder_hidden"), false, buckets, t5);
    b.local("cross_attention_outputs", hidden);
  }
  {
    const auto scope = b.enter(decoder ? "layer.2" : "layer.1", "T5LayerFF");
    const bool gated = options.flag("gated");
    b.declare("DenseReluDense", gated ? "T5DenseGatedActDense" : "T5DenseActDense");
    const BlockValue normed = b.rms_norm("layer_norm", hidden, t5.norm);
    const BlockValue mlp = t5_feed_forward(b, normed, options.integer("intermediate_size"), gated, t5.dropout);
    b.local("forwarded_states", mlp);
    hidden = b.add(hidden, b.dropout("dropout", mlp, t5.dropout));
  }
  b.output("hidden", hidden);
}

// ---- Whisper

/// [batch, seq, heads, head_dim] in a memory order of [batch, heads, seq, head_dim], like the published code's copy.
BlockValue heads_first(BlockBuilder& b, BlockValue x, std::int64_t heads) {
  const std::int64_t head_dim = b.size(x, -1) / heads;
  const BlockValue split = b.reshape(x, {b.size(x, 0), b.size(x, 1), heads, head_dim});
  return b.transpose(b.contiguous(b.transpose(split, 1, 2)), 1, 2);
}

BlockValue whisper_attention(BlockBuilder& b, std::string_view name, BlockValue x, BlockValue keys, std::int64_t heads,
                             bool causal) {
  const auto scope = b.enter(name, "WhisperAttention");
  for (const std::string_view projection : {"k_proj", "v_proj", "q_proj", "out_proj"}) b.declare(projection, "Linear");
  const std::int64_t width = b.size(x, -1);
  if (width % heads != 0) b.fail(fmt::format("The number of heads, {1}, does not divide the width {0}.", width, heads));
  const double scaling = 1 / std::sqrt(static_cast<double>(width / heads));
  const BlockValue scaled = b.scale(b.linear("q_proj", x, width, {.bias = true}), scaling);
  const BlockValue q = b.local("query_states", heads_first(b, scaled, heads));
  const BlockValue k = b.local("key_states", heads_first(b, b.linear("k_proj", keys, width), heads));
  const BlockValue v = b.local("value_states", heads_first(b, b.linear("v_proj", keys, width, {.bias = true}), heads));
  return b.linear("out_proj", b.attention(q, k, v, {.causal = causal, .scale = 1}), width, {.bias = true});
}

/// One layer: self-attention, attention over the encoder if there are `keys`, MLP; each after a LayerNorm.
void build_whisper_layer(BlockBuilder& b, const BlockOptions& options, bool decoder) {
  const std::int64_t heads = options.integer("num_attention_heads");
  const NormOptions norm = {.eps = norm_eps(b, options)};
  BlockValue hidden = b.input("hidden");
  b.declare("self_attn", "WhisperAttention");
  BlockValue normed = b.layer_norm("self_attn_layer_norm", hidden, norm);
  hidden = b.add(hidden, whisper_attention(b, "self_attn", normed, normed, heads, decoder));
  if (decoder) {
    b.declare("encoder_attn", "WhisperAttention");
    normed = b.layer_norm("encoder_attn_layer_norm", hidden, norm);
    hidden = b.add(hidden, whisper_attention(b, "encoder_attn", normed, b.input("encoder_hidden"), heads, false));
  }
  b.declare("fc1", "Linear");
  b.declare("fc2", "Linear");
  normed = b.local("hidden_states", b.layer_norm("final_layer_norm", hidden, norm));
  const BlockValue up = b.linear("fc1", normed, options.integer("intermediate_size"), {.bias = true});
  const BlockValue inner = b.local("hidden_states", b.activation("activation_fn", OpKind::Gelu, up, "GELUActivation"));
  b.output("hidden", b.add(hidden, b.linear("fc2", inner, b.size(hidden, -1), {.bias = true})));
}

void build_whisper_encoder_layer(BlockBuilder& b, const BlockOptions& options) {
  build_whisper_layer(b, options, false);
}

void build_whisper_decoder_layer(BlockBuilder& b, const BlockOptions& options) {
  build_whisper_layer(b, options, true);
}

void build_whisper_encoder_stem(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t width = options.integer("hidden_size");
  BlockValue x = b.conv1d("conv1", b.input("input_features"), width, {.kernel = 3, .padding = 1});
  x = b.conv1d("conv2", b.gelu(x, false), width, {.kernel = 3, .stride = 2, .padding = 1});
  x = b.transpose(b.gelu(x, false), 1, 2);
  b.named_output("inputs_embeds", x);
  const std::int64_t positions = options.integer("max_positions");
  if (b.size(x, 1) != positions) {
    b.fail(fmt::format("The encoder reads {} positions, but has {}.", b.size(x, 1), positions),
           fmt::format("Give it {} mel frames.", 2 * positions));
  }
  const BlockValue ids = b.positions({positions});
  const BlockValue table = b.embedding("embed_positions", ids, positions, width, {.fixed = true});
  b.output("hidden", b.add(x, table));
}

void build_whisper_decoder_embedding(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t width = options.integer("hidden_size");
  const BlockValue ids = b.input("decoder_input_ids");
  const BlockValue tokens = b.embedding("embed_tokens", ids, options.integer("vocab_size"), width,
                                        {.padding_idx = options.integer("padding_idx", -1)});
  b.named_output("inputs_embeds", tokens);
  // The published code indexes the table by [batch, seq] instead of slicing it.
  const BlockValue positions =
      b.embedding("embed_positions", b.positions(b.shape(ids)), options.integer("max_positions"), width,
                  {.class_name = "WhisperPositionalEmbedding"});
  b.named_output("positions", positions);
  b.output("hidden", b.add(tokens, positions));
}

std::string t5_block_class(const BlockOptions& /*options*/) {
  return "T5Block";
}
std::string whisper_encoder_class(const BlockOptions& /*options*/) {
  return "WhisperEncoder";
}
std::string whisper_decoder_class(const BlockOptions& /*options*/) {
  return "WhisperDecoder";
}
std::string whisper_encoder_layer_class(const BlockOptions& /*options*/) {
  return "WhisperEncoderLayer";
}
std::string whisper_decoder_layer_class(const BlockOptions& /*options*/) {
  return "WhisperDecoderLayer";
}

}  // namespace

std::vector<BlockKind> encoder_decoder_blocks() {
  const OptionRule heads = {"num_attention_heads", OptionType::Size, true, "Attention heads."};
  const OptionRule intermediate = {"intermediate_size", OptionType::Size, true, "Width of the MLP."};
  const OptionRule hidden_size = {"hidden_size", OptionType::Size, true, "Width of the model."};
  const OptionRule max_positions = {"max_positions", OptionType::Size, true, "Rows of the position table."};
  return {
      {"t5_block",
       "hidden [batch, seq, width], position_bias (of a block before, unless this one has the table), encoder_hidden "
       "(in "
       "a decoder) -> hidden, position_bias: one block of T5.",
       {heads,
        {"head_dim", OptionType::Size, true, "Width of a head."},
        intermediate,
        {"decoder", OptionType::Flag, false, "Causal, with attention over encoder_hidden."},
        {"gated", OptionType::Flag, false, "wi_0 and wi_1 with a GELU gate (v1.1), not wi with a ReLU."},
        {"relative_attention_buckets", OptionType::Count, false,
         "Rows of the bias table, in the first block of a stack; 0: reads position_bias."},
        {"relative_attention_max_distance", OptionType::Size, false,
         "Distance from which on all positions share a bucket. Defaults to 128."},
        norm_eps_rule(kRmsNormEpsDoc),
        {"dropout", OptionType::Number, false, "Probability. Defaults to 0.1."}},
       build_t5_block,
       t5_block_class},
      {"whisper_decoder_embedding",
       "decoder_input_ids [batch, seq] -> hidden [batch, seq, width]: token and position embedding.",
       {{"vocab_size", OptionType::Size, true, "Tokens."}, hidden_size, max_positions, padding_idx_rule()},
       build_whisper_decoder_embedding,
       whisper_decoder_class},
      {"whisper_decoder_layer",
       "hidden [batch, seq, width], encoder_hidden [batch, key_seq, width] -> hidden: one decoder layer of Whisper.",
       {heads, intermediate, norm_eps_rule(kNormEpsDoc)},
       build_whisper_decoder_layer,
       whisper_decoder_layer_class},
      {"whisper_encoder_layer",
       "hidden [batch, seq, width] -> hidden: one encoder layer of Whisper.",
       {heads, intermediate, norm_eps_rule(kNormEpsDoc)},
       build_whisper_encoder_layer,
       whisper_encoder_layer_class},
      {"whisper_encoder_stem",
       "input_features [batch, mel bins, frames] -> hidden [batch, frames / 2, width]: two convolutions and fixed "
       "positions.",
       {hidden_size, max_positions},
       build_whisper_encoder_stem,
       whisper_encoder_class},
  };
}

}  // namespace fsdp
