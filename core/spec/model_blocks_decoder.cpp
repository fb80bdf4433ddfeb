// Layers of decoder-only transformers, as in Hugging Face transformers 4.57.
//
//   decoder_layer  x + attention(norm(x)), then x + mlp(norm(x)): Llama, Mistral, Qwen2, Qwen3; with norms after both
//                  parts too: Gemma-2.
//   gpt2_layer     the same shape with LayerNorm, biases, one fused q, k, v projection and weights stored as [in, out].
//
// Sources: models/llama, mistral, qwen2, qwen3, gemma2 and gpt2 /modeling_*.py of transformers 4.57: names, order of
// registration and order of calls.
// Not modeled: key-value caches, which training does not need.

#include <fmt/format.h>

#include <cmath>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {

std::string family_of(const BlockOptions& options) {
  return options.text("family", "Llama");
}

BlockValue attention_mask(BlockBuilder& b) {
  return b.optional_input("attention_mask").value_or(BlockValue{});
}

BlockValue split_heads(BlockBuilder& b, BlockValue x, std::int64_t heads) {
  const std::int64_t width = b.size(x, -1);
  if (heads < 1 || width % heads != 0) {
    b.fail(fmt::format("The number of heads, {1}, does not divide the width {0}.", width, heads));
    return b.reshape(x, {b.size(x, 0), b.size(x, 1), 1, width});
  }
  return b.reshape(x, {b.size(x, 0), b.size(x, 1), heads, width / heads});
}

std::vector<OptionRule> decoder_attention_rules() {
  return {
      {"family", OptionType::Text, false, "First word of the class names, such as Qwen3. Defaults to Llama."},
      {"num_attention_heads", OptionType::Size, true, "Query heads."},
      {"num_key_value_heads", OptionType::Size, false, "Key and value heads. Defaults to the number of query heads."},
      {"head_dim", OptionType::Size, false, "Width of a head. Defaults to the hidden size over the heads."},
      {"qkv_bias", OptionType::Flag, false, "The q, k and v projections have biases (Qwen2)."},
      {"output_bias", OptionType::Flag, false, "The output projection has a bias."},
      {"qk_norm", OptionType::Flag, false, "RMSNorm over each head of q and k (Qwen3)."},
      {"sliding_window", OptionType::Count, false, "Tokens that attention looks back; 0: all."},
      {"attention_softcap", OptionType::Number, false, "Cap on attention scores (Gemma-2)."},
      {"query_pre_attn_scalar", OptionType::Number, false,
       "Attention scores are divided by its root (Gemma). Defaults to head_dim."},
      {"attention_dropout", OptionType::Number, false, "Dropout on attention weights. Defaults to 0."},
      norm_eps_rule(kRmsNormEpsDoc),
  };
}

BlockValue decoder_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::string family = family_of(options);
  const std::int64_t hidden = b.size(x, -1);
  const std::int64_t heads = options.integer("num_attention_heads", 1);
  const std::int64_t kv_heads = options.integer("num_key_value_heads", heads);
  const std::int64_t head_dim = options.integer("head_dim", std::max<std::int64_t>(hidden / heads, 1));
  const LinearOptions qkv = {.bias = options.flag("qkv_bias")};
  if (!options.has("head_dim") && hidden % heads != 0) {
    b.fail(fmt::format("The number of heads, {1}, does not divide the width {0}.", hidden, heads),
           "Give \"head_dim\" too.");
  }

  const double scalar = options.number("query_pre_attn_scalar");
  if (options.has("query_pre_attn_scalar") && !(scalar > 0)) {
    b.fail(fmt::format("\"query_pre_attn_scalar\" is {}.", scalar), "It is above 0.");
  }
  const std::string norm_class = family + "RMSNorm";
  const NormOptions norm = {.class_name = norm_class, .eps = norm_eps(b, options)};

  const auto scope = b.enter("self_attn", family + "Attention");
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) b.declare(name, "Linear");
  BlockValue q = split_heads(b, b.linear("q_proj", x, heads * head_dim, qkv), heads);
  if (options.flag("qk_norm")) q = b.rms_norm("q_norm", q, norm);
  b.local("query_states", q);
  BlockValue k = split_heads(b, b.linear("k_proj", x, kv_heads * head_dim, qkv), kv_heads);
  if (options.flag("qk_norm")) k = b.rms_norm("k_norm", k, norm);
  b.local("key_states", k);
  const BlockValue v =
      b.local("value_states", split_heads(b, b.linear("v_proj", x, kv_heads * head_dim, qkv), kv_heads));
  const auto rotated = b.rotary(q, k, {b.input("cos"), b.input("sin")});
  b.local("query_states", rotated.query);
  b.local("key_states", rotated.key);
  const BlockValue mixed = b.attention(rotated.query, rotated.key, v,
                                       {.causal = true,
                                        .window = options.integer("sliding_window"),
                                        .softcap = options.number("attention_softcap"),
                                        .dropout = options.number("attention_dropout"),
                                        .bias = attention_mask(b),
                                        .scale = scalar > 0 ? 1 / std::sqrt(scalar) : 0});
  return b.linear("o_proj", mixed, hidden, {.bias = options.flag("output_bias")});
}

BlockValue gated_mlp(BlockBuilder& b, const BlockOptions& options, std::string_view module, BlockValue x) {
  const std::int64_t intermediate = options.integer("intermediate_size", 1);
  const LinearOptions linear = {.bias = options.flag("mlp_bias")};
  const bool is_gelu = options.text("activation", "silu") == "gelu_tanh";
  const auto scope = b.enter(module, family_of(options) + "MLP");
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) b.declare(name, "Linear");
  BlockValue gate = b.linear("gate_proj", x, intermediate, linear);
  if (is_gelu) {
    const auto act = b.enter("act_fn", "GELUTanh");
    gate = b.gelu(gate, true);
  } else {
    gate = b.activation("act_fn", OpKind::Silu, gate, "SiLU");
  }
  const BlockValue up = b.linear("up_proj", x, intermediate, linear);
  return b.linear("down_proj", b.mul(gate, up), b.size(x, -1), linear);
}

namespace {

void decoder_layer(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = family_of(options);
  const std::string norm_class = family + "RMSNorm";
  const NormOptions norm = {
      .unit_offset = options.flag("unit_offset"), .class_name = norm_class, .eps = norm_eps(b, options)};
  const bool norms_behind = options.flag("norms_behind");
  b.declare("self_attn", family + "Attention");
  b.declare("mlp", family + "MLP");
  b.declare("input_layernorm", norm_class);
  b.declare("post_attention_layernorm", norm_class);

  const BlockValue hidden = b.input("hidden");
  BlockValue attention = decoder_attention(b, options, b.rms_norm("input_layernorm", hidden, norm));
  if (norms_behind) attention = b.rms_norm("post_attention_layernorm", attention, norm);
  const BlockValue middle = b.add(hidden, attention);
  const char* second = norms_behind ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  BlockValue mlp = gated_mlp(b, options, "mlp", b.rms_norm(second, middle, norm));
  if (norms_behind) mlp = b.rms_norm("post_feedforward_layernorm", mlp, norm);
  b.output("hidden", b.add(middle, mlp));
}

std::string decoder_layer_class(const BlockOptions& options) {
  return family_of(options) + "DecoderLayer";
}

std::vector<OptionRule> decoder_layer_rules() {
  std::vector<OptionRule> rules = decoder_attention_rules();
  const std::vector<OptionRule> own = {
      {"intermediate_size", OptionType::Size, true, "Width inside the MLP."},
      {"mlp_bias", OptionType::Flag, false, "The projections of the MLP have biases."},
      {"activation", OptionType::Text, false, "The activation function. Defaults to silu.", {"silu", "gelu_tanh"}},
      {"norms_behind", OptionType::Flag, false, "Norms after attention and MLP too (Gemma-2)."},
      {"unit_offset", OptionType::Flag, false, "Norms multiply by 1 + weight (Gemma)."},
  };
  rules.insert(rules.end(), own.begin(), own.end());
  return rules;
}

void gpt2_embeddings(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t width = options.integer("hidden_size");
  const BlockValue ids = b.input("input_ids");
  const BlockValue tokens = b.embedding("wte", ids, options.integer("vocab_size"), width);
  b.named_output("inputs_embeds", tokens);
  const std::int64_t seq = b.size(ids, 1);
  if (seq > options.integer("max_positions")) {
    b.fail_by_size(
        fmt::format("The model has {} positions, fewer than the sequence's {}.", options.integer("max_positions"), seq),
        fmt::format("Take at most {}.", options.integer("max_positions")));
  }
  const BlockValue positions = b.embedding("wpe", b.positions({1, seq}), options.integer("max_positions"), width);
  b.named_output("position_embeds", positions);
  b.output("hidden", b.dropout("drop", b.add(tokens, positions), options.number("dropout")));
}

void gpt2_layer(BlockBuilder& b, const BlockOptions& options) {
  const LinearOptions conv1d = {.bias = true, .transposed_weight = true, .class_name = "Conv1D"};
  const double dropout = options.number("dropout");
  const double attention_dropout = options.number("attention_dropout", dropout);
  const std::int64_t heads = options.integer("num_attention_heads");
  const NormOptions norm = {.eps = norm_eps(b, options)};
  const BlockValue hidden = b.input("hidden");
  const std::int64_t width = b.size(hidden, -1);
  const BlockValue normed = b.local("hidden_states", b.layer_norm("ln_1", hidden, norm));
  BlockValue attention;
  {
    const auto scope = b.enter("attn", "GPT2Attention");
    const auto qkv = b.split(b.linear("c_attn", normed, 3 * width, conv1d), 3, -1);
    b.local("query_states", qkv[0]);
    b.local("key_states", qkv[1]);
    b.local("value_states", qkv[2]);
    const BlockValue mixed =
        b.attention(split_heads(b, qkv[0], heads), split_heads(b, qkv[1], heads), split_heads(b, qkv[2], heads),
                    {.dropout = attention_dropout, .bias = attention_mask(b)});
    attention = b.dropout("resid_dropout", b.linear("c_proj", mixed, width, conv1d), dropout);
  }
  b.local("attn_output", attention);
  const BlockValue middle = b.local("hidden_states", b.add(attention, hidden));
  const BlockValue normed_middle = b.local("hidden_states", b.layer_norm("ln_2", middle, norm));
  BlockValue mlp;
  {
    const auto scope = b.enter("mlp", "GPT2MLP");
    b.declare("c_fc", "Conv1D");
    b.declare("c_proj", "Conv1D");
    BlockValue inner = b.linear("c_fc", normed_middle, options.integer("intermediate_size", 4 * width), conv1d);
    {
      const auto act = b.enter("act", "NewGELUActivation");
      inner = b.op({.kind = OpKind::Gelu, .inputs = {inner}, .attributes = {.approximate = true, .written_out = true}})
                  .front();
    }
    mlp = b.dropout("dropout", b.linear("c_proj", inner, width, conv1d), dropout);
  }
  b.output("hidden", b.add(middle, mlp));
}

std::string gpt2_model_class(const BlockOptions& /*options*/) {
  return "GPT2Model";
}
std::string gpt2_layer_class(const BlockOptions& /*options*/) {
  return "GPT2Block";
}

}  // namespace

std::vector<BlockKind> decoder_blocks() {
  return {
      {.name = "decoder_layer",
       .doc = "hidden, cos and sin to hidden: one layer of a Llama-like decoder.",
       .options = decoder_layer_rules(),
       .build = decoder_layer,
       .class_name = decoder_layer_class},
      {.name = "gpt2_embeddings",
       .doc = "input_ids to hidden: tokens plus learned positions, then dropout.",
       .options = {{"vocab_size", OptionType::Size, true, "Rows of the token table."},
                   {"max_positions", OptionType::Size, true, "Rows of the position table."},
                   {"hidden_size", OptionType::Size, true, "Width of both tables."},
                   {"dropout", OptionType::Number, false, "Dropout on the sum. Defaults to 0."}},
       .build = gpt2_embeddings,
       .class_name = gpt2_model_class},
      {.name = "gpt2_layer",
       .doc = "hidden to hidden: one layer of GPT-2.",
       .options = {{"num_attention_heads", OptionType::Size, true, "Heads."},
                   {"intermediate_size", OptionType::Size, false,
                    "Width inside the MLP. Defaults to four times hidden."},
                   {"dropout", OptionType::Number, false,
                    "Dropout on attention weights and both outputs. Defaults to 0."},
                   attention_dropout_rule(),
                   norm_eps_rule(kNormEpsDoc)},
       .build = gpt2_layer,
       .class_name = gpt2_layer_class},
  };
}

}  // namespace fsdp
