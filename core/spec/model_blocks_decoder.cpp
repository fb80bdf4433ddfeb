// Layers of decoder-only transformers, as in Hugging Face transformers 4.57.
//
//   decoder_layer  x + attention(norm(x)), then x + mlp(norm(x)): Llama, Mistral, Qwen2, Qwen3, SmolLM3, Phi-3,
//   Granite;
//                  with norms after both parts too: Gemma-2, Gemma 3, GLM-4; with norms after them alone: OLMo 2 and 3;
//                  x + attention(norm(x)) + mlp(norm(x)) with one norm: Cohere, Phi-2.
//   gpt2_layer     the same shape with LayerNorm, biases, one fused q, k, v projection and weights stored as [in, out].
//
// Sources: models/llama, mistral, qwen2, qwen3, smollm3, phi3, gemma2, gemma3, glm4, olmo2, olmo3, granite and gpt2
// /modeling_*.py of transformers 4.57; cohere, cohere2, phi, starcoder2, stablelm, nemotron, ministral3,
// hunyuan_v1_dense and llama4 of 5.24: names, order of registration and order of calls.
// Not modeled: key-value caches, which training does not need.

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {

std::string family_of(const BlockOptions& options) {
  return options.text("family", "Llama");
}

BlockValue attention_mask(BlockBuilder& b) {
  return b.optional_input("attention_mask").value_or(BlockValue{});
}

std::optional<BlockValue> padding_mask_of(BlockBuilder& b) {
  return b.pads_rows() ? b.optional_input(kPaddingMask) : std::nullopt;
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
  std::vector<OptionRule> rules = {
      {"family", OptionType::Text, false, "First word of the class names, such as Qwen3. Defaults to Llama."},
      {"num_attention_heads", OptionType::Size, true, "Query heads."},
      {"num_key_value_heads", OptionType::Size, false, "Key and value heads. Defaults to the number of query heads."},
      {"head_dim", OptionType::Size, false, "Width of a head. Defaults to the hidden size over the heads."},
      {"qkv_bias", OptionType::Flag, false, "The q, k and v projections have biases (Qwen2)."},
      {"output_bias", OptionType::Flag, false, "The output projection has a bias."},
      {"qk_norm", OptionType::Flag, false, "RMSNorm over each head of q and k (Qwen3)."},
      {"qk_norm_of_all_heads", OptionType::Flag, false, "RMSNorm over all heads of q, and of k, at once (OLMo 2)."},
      {"qk_norm_last", OptionType::Flag, false, "RMSNorm over each head of q and k, after rotary positions (Hunyuan)."},
      {"fused_qkv", OptionType::Flag, false, "One projection makes q, k and v (Phi-3)."},
      {"rope", OptionType::Flag, false, "q and k get rotary positions. Defaults to true; false for some of SmolLM3."},
      {"local_rope", OptionType::Flag, false, "Rotary positions of a second table, cos_local and sin_local (Gemma 3)."},
      {"partial_rotary", OptionType::Flag, false,
       "Heads are cut into a turned part, as wide as the table, and a kept one, which may be empty (Phi-3, GLM-4)."},
      {"interleaved_rotary", OptionType::Flag, false, "Rotary positions turn neighbors, not halves (GLM-4)."},
      {"wide_rotary", OptionType::Flag, false, "q and k are cast to fp32 before they are turned (Cohere)."},
      {"unit_offset", OptionType::Flag, false, "Norms multiply by 1 + weight (Gemma)."},
      {"wide_weight", OptionType::Flag, false, "Norms multiply by the weight in fp32, and cast last (OLMo 2)."},
      {"rotary_by_halves", OptionType::Flag, false, "Rotary positions turn halves in products of their own (gpt-oss)."},
      {"gated_output", OptionType::Flag, false,
       "The query projection makes a gate, too: what is attended to is multiplied by its sigmoid (Qwen3-Next)."},
      {"sinks", OptionType::Flag, false, "One more score of no key in each row of attention (gpt-oss)."},
      {"sliding_window", OptionType::Count, false, "Tokens that attention looks back; 0: all."},
      {"attention_softcap", OptionType::Number, false, "Cap on attention scores (Gemma-2)."},
      {"scaled_queries", OptionType::Flag, false,
       "Queries are multiplied by a factor of their position, 1 within the positions of pre-training (Ministral 3)."},
      {"qk_l2_norm", OptionType::Flag, false,
       "q and k are divided by their root mean square in layers with rotary positions, after them (Llama 4)."},
      {"temperature_tuning", OptionType::Flag, false,
       "In layers without rotary positions, queries are multiplied by a factor of their position in fp32 (Llama 4)."},
      {"output_projection",
       OptionType::Text,
       false,
       "The name of the output projection. Defaults to o_proj.",
       {"o_proj", "dense"}},
      {"query_pre_attn_scalar", OptionType::Number, false,
       "Attention scores are divided by its root (Gemma). Defaults to head_dim."},
      {"attention_dropout", OptionType::Number, false, "Dropout on attention weights. Defaults to 0."},
      norm_eps_rule(kRmsNormEpsDoc),
  };
  for (const auto& more : {latent_attention_rules(), linear_attention_rules()}) {
    rules.insert(rules.end(), more.begin(), more.end());
  }
  return rules;
}

namespace {

struct Heads {
  BlockValue query, key, value;
  BlockValue gate = {};  ///< [batch, seq, heads * dim]; none if id < 0.
};

/// Slices of one projection. The published code registers the output projection first.
Heads fused_projection(BlockBuilder& b, const BlockOptions& options, BlockValue x, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t head_dim) {
  for (const char* name : {"o_proj", "qkv_proj"}) b.declare(name, "Linear");
  const std::int64_t width = (heads + 2 * kv_heads) * head_dim;
  const BlockValue qkv = b.local("qkv", b.linear("qkv_proj", x, width, {.bias = options.flag("qkv_bias")}));
  const auto part = [&](std::int64_t first, std::int64_t number) {
    return split_heads(b, b.slice(qkv, -1, first * head_dim, number * head_dim), number);
  };
  return {part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads)};
}

/// torchtitan 0.3.0, FusedQKVLinear: groups of query heads with their key and value, cut apart and copied.
Heads titan_projection(BlockBuilder& b, const BlockOptions& options, BlockValue x, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t head_dim, const NormOptions& norm) {
  b.declare("qkv_linear", "FusedQKVLinear");
  b.declare("o_proj", "Linear");
  const std::int64_t group = heads / kv_heads;
  Heads made;
  {
    const auto scope = b.enter("qkv_linear", "FusedQKVLinear");
    const BlockValue all = b.linear("wqkv", x, (heads + 2 * kv_heads) * head_dim, {});
    const BlockValue qkv = b.local("qkv", b.reshape(all, {b.size(x, 0), b.size(x, 1), kv_heads, group + 2, head_dim}));
    const auto parts = b.split_three(qkv, group, 3);
    const auto apart = [&](int i, std::int64_t number) {
      return b.reshape(b.contiguous(parts[i]), {b.size(x, 0), b.size(x, 1), number, head_dim});
    };
    made = {apart(0, heads), apart(1, kv_heads), apart(2, kv_heads)};
  }
  made.value = b.local("value_states", made.value);
  if (options.flag("qk_norm")) {
    made.query = b.local("query_states", b.rms_norm("q_norm", made.query, norm));
    made.key = b.local("key_states", b.rms_norm("k_norm", made.key, norm));
  }
  return made;
}

/// torchtitan's RoPE of a layer: complex numbers for Llama 3, cos and sin in fp32 for Qwen3.
BlockBuilder::QueryKey titan_rotary(BlockBuilder& b, const Heads& heads, bool complex) {
  const auto scope = b.enter("rope", complex ? "ComplexRoPE" : "CosSinRoPE");
  const BlockValue positions = b.input(kPositionIds);
  const std::int64_t head_dim = b.size(heads.query, -1);
  b.buffer("cache", {b.size(positions, 1), complex ? head_dim : 2 * head_dim}, Dtype::Float32, false);
  const auto table = b.rotary_table(positions, head_dim, {}, {.wide = true, .complex = complex, .from_cache = true});
  return b.rotary(heads.query, heads.key, table, {.complex = complex, .in_float = !complex});
}

/// torchtitan 0.3.0 has these models alone.
void refuse_beyond_titan(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = family_of(options);
  const bool is_known = family == "Llama" || family == "Qwen3";
  if (is_known && !options.has("kv_lora_rank") && !options.flag("qkv_bias") && options.integer("sliding_window") == 0 &&
      options.flag("rope", true))
    return;
  b.fail(fmt::format("torchtitan 0.3 has no attention of {}.", family), "Write --flavor torchtitan or transformers.");
}

struct HeadSizes {
  std::int64_t heads = 1, kv_heads = 1, head_dim = 1;
};

/// Qwen3-Next: each query head stands next to its gate.
template <class Normed>
Heads gated_projections(BlockBuilder& b, BlockValue x, const HeadSizes& s, const LinearOptions& qkv, Normed normed) {
  const BlockValue both = split_heads(b, b.linear("q_proj", x, 2 * s.heads * s.head_dim, qkv), s.heads);
  const auto parts = b.split(both, 2, -1);
  b.local("query_states", parts[0]);
  const Shape flat = {b.size(x, 0), b.size(x, 1), s.heads * s.head_dim};
  const BlockValue gate = b.local("gate", b.reshape(b.contiguous(parts[1]), flat));
  const BlockValue q = b.local("query_states", normed("q_norm", parts[0]));
  const BlockValue k = b.local(
      "key_states", normed("k_norm", split_heads(b, b.linear("k_proj", x, s.kv_heads * s.head_dim, qkv), s.kv_heads)));
  const BlockValue v =
      b.local("value_states", split_heads(b, b.linear("v_proj", x, s.kv_heads * s.head_dim, qkv), s.kv_heads));
  return {q, k, v, gate};
}

Heads projections(BlockBuilder& b, const BlockOptions& options, BlockValue x, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t head_dim, const NormOptions& norm) {
  if (b.attends_as_titan()) return titan_projection(b, options, x, heads, kv_heads, head_dim, norm);
  if (options.flag("fused_qkv")) return fused_projection(b, options, x, heads, kv_heads, head_dim);
  const LinearOptions qkv = {.bias = options.flag("qkv_bias")};
  const bool over_all = options.flag("qk_norm_of_all_heads");
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) b.declare(name, "Linear");
  b.declare(options.text("output_projection", "o_proj"), "Linear");
  const auto normed = [&](const char* norm_name, BlockValue split) {
    return options.flag("qk_norm") ? b.rms_norm(norm_name, split, norm) : split;
  };
  const auto one = [&](const char* linear, const char* norm_name, std::int64_t number) {
    BlockValue all = b.linear(linear, x, number * head_dim, qkv);
    if (over_all) all = b.rms_norm(norm_name, all, norm);
    return normed(norm_name, split_heads(b, all, number));
  };
  if (options.flag("gated_output")) return gated_projections(b, x, {heads, kv_heads, head_dim}, qkv, normed);
  const BlockValue q = b.local("query_states", one("q_proj", "q_norm", heads));
  const BlockValue k = b.local("key_states", one("k_proj", "k_norm", kv_heads));
  const BlockValue v =
      b.local("value_states", split_heads(b, b.linear("v_proj", x, kv_heads * head_dim, qkv), kv_heads));
  return {q, k, v};
}

}  // namespace

NormOptions decoder_norm(BlockBuilder& b, const BlockOptions& options, std::string_view class_name) {
  return {.unit_offset = options.flag("unit_offset"),
          .wide_weight = options.flag("wide_weight"),
          .class_name = class_name,
          .eps = norm_eps(b, options)};
}

namespace {

std::string norm_class_of(const BlockOptions& options) {
  const std::string which = options.text("norm", "rms");
  if (which == "layer") return "LayerNorm";
  return family_of(options) + (which == "rms" ? "RMSNorm" : which == "layer_unit" ? "LayerNorm1P" : "LayerNorm");
}

BlockValue layer_normed(BlockBuilder& b, const BlockOptions& options, std::string_view name, BlockValue x) {
  const std::string which = options.text("norm", "rms");
  const std::string norm_class = norm_class_of(options);
  if (which == "rms") return b.rms_norm(name, x, decoder_norm(b, options, norm_class));
  return b.layer_norm(name, x,
                      {.bias = which != "layer_wide",
                       .unit_offset = which == "layer_unit",
                       .wide_weight = which == "layer_wide",
                       .class_name = norm_class,
                       .eps = norm_eps(b, options)});
}

}  // namespace

/// The model's own mask, or that of a window or of padding. Capped scores are written out, with a mask of their own.
static BlockValue mask_of(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue given = attention_mask(b);
  if (given.id >= 0) return given;
  const bool has_window = options.integer("sliding_window") > 0 && !options.has("attention_softcap");
  if (options.flag("sinks")) return b.input(has_window ? "window_mask" : "causal_mask");
  if (options.has("attention_softcap")) return given;
  return (has_window ? b.optional_input("window_mask") : padding_mask_of(b)).value_or(given);
}

/// What a family does to queries and keys after their rotation.
static void finish_queries(BlockBuilder& b, const BlockOptions& options, BlockValue x, const std::string& norm_class,
                           BlockBuilder::QueryKey& rotated) {
  if (options.flag("rope", true) && options.flag("qk_l2_norm")) {
    const NormOptions norm = {.affine = false, .class_name = "Llama4TextL2Norm", .eps = norm_eps(b, options)};
    rotated.query = b.local("query_states", b.rms_norm("qk_norm", rotated.query, norm));
    rotated.key = b.local("key_states", b.rms_norm("qk_norm", rotated.key, norm));
  }
  if (!options.flag("rope", true) && options.flag("temperature_tuning")) {
    const BlockValue factor = b.local("attn_scales", b.constant({1, b.size(x, 1), 1, 1}, 1, Dtype::Float32));
    const BlockValue scaled = b.mul(rotated.query, factor);
    rotated.query = b.local("query_states", b.op({.kind = OpKind::Cast, .inputs = {scaled}}).front());
  }
  if (options.flag("scaled_queries")) {
    const BlockValue factor = b.constant({1, b.size(x, 1), 1, 1}, 1);
    rotated.query = b.local("query_states", b.mul(rotated.query, factor));
  }
  if (options.flag("qk_norm_last")) {
    const NormOptions norm = decoder_norm(b, options, norm_class);
    rotated.query = b.local("query_states", b.rms_norm("query_layernorm", rotated.query, norm));
    rotated.key = b.local("key_states", b.rms_norm("key_layernorm", rotated.key, norm));
  }
}

BlockValue decoder_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  if (b.attends_as_titan()) refuse_beyond_titan(b, options);
  if (options.flag("linear_attention")) return linear_attention(b, options, x);
  if (options.has("kv_lora_rank")) return latent_attention(b, options, x);
  const std::string family = family_of(options);
  const std::int64_t hidden = b.size(x, -1);
  const std::int64_t heads = options.integer("num_attention_heads", 1);
  const std::int64_t kv_heads = options.integer("num_key_value_heads", heads);
  const std::int64_t head_dim = options.integer("head_dim", std::max<std::int64_t>(hidden / heads, 1));
  if (!options.has("head_dim") && hidden % heads != 0) {
    b.fail(fmt::format("The number of heads, {1}, does not divide the width {0}.", hidden, heads),
           "Give \"head_dim\" too.");
  }

  const double scalar = options.number("query_pre_attn_scalar");
  if (options.has("query_pre_attn_scalar") && !(scalar > 0)) {
    b.fail(fmt::format("\"query_pre_attn_scalar\" is {}.", scalar), "It is above 0.");
  }
  const std::string norm_class = family + "RMSNorm";

  const auto scope = b.enter("self_attn", family + "Attention");
  const int sinks = options.flag("sinks") ? b.parameter_of("", "sinks", {heads}) : -1;
  const auto [q, k, v, gate] =
      projections(b, options, x, heads, kv_heads, head_dim, decoder_norm(b, options, norm_class));
  BlockBuilder::QueryKey rotated{q, k};
  if (b.attends_as_titan()) {
    rotated = titan_rotary(b, {q, k, v}, family == "Llama");
    b.local("query_states", rotated.query);
    b.local("key_states", rotated.key);
  } else if (options.flag("rope", true)) {
    const bool is_local = options.flag("local_rope");
    rotated = b.rotary(q, k, {b.input(is_local ? "cos_local" : "cos"), b.input(is_local ? "sin_local" : "sin")},
                       {.partial = options.flag("partial_rotary"),
                        .interleaved = options.flag("interleaved_rotary"),
                        .by_halves = options.flag("rotary_by_halves"),
                        .complex = options.flag("complex_rotary"),
                        .wide = options.flag("wide_rotary") || b.decodes_as_automodel(family),
                        .family = family});
    b.local("query_states", rotated.query);
    b.local("key_states", rotated.key);
  }
  finish_queries(b, options, x, norm_class, rotated);
  BlockValue mixed = b.attention(rotated.query, rotated.key, v,
                                 {.causal = true,
                                  .window = options.integer("sliding_window"),
                                  .softcap = options.number("attention_softcap"),
                                  .dropout = options.number("attention_dropout"),
                                  .bias = mask_of(b, options),
                                  .scale = scalar > 0 ? 1 / std::sqrt(scalar) : 0,
                                  .sinks = sinks});
  if (gate.id >= 0) mixed = b.local("attn_output", b.mul(b.local("attn_output", mixed), b.sigmoid(gate)));
  const BlockValue output =
      b.linear(options.text("output_projection", "o_proj"), mixed, hidden, {.bias = options.flag("output_bias")});
  return b.dropout("", output, options.number("residual_dropout"));
}

namespace {

/// The names of a layer's norms; empty if there is none at that place.
struct LayerNorms {
  std::string_view before_attention, after_attention, before_mlp, after_mlp;
  std::array<std::string_view, 4> registered;  ///< In order of registration.
};
constexpr LayerNorms kBefore = {
    "input_layernorm", "", "post_attention_layernorm", "", {"input_layernorm", "post_attention_layernorm"}};
constexpr LayerNorms kAround = {
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}};
constexpr LayerNorms kAroundGlm = {
    "input_layernorm",
    "post_self_attn_layernorm",
    "post_attention_layernorm",
    "post_mlp_layernorm",
    {"input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"}};
constexpr LayerNorms kAfter = {"",
                               "post_attention_layernorm",
                               "",
                               "post_feedforward_layernorm",
                               {"post_attention_layernorm", "post_feedforward_layernorm"}};

const LayerNorms& norms_of(const BlockOptions& options) {
  const std::string where = options.text("norms", options.flag("norms_behind") ? "around" : "before");
  if (where == "around") return kAround;
  if (where == "around_glm") return kAroundGlm;
  return where == "after" ? kAfter : kBefore;
}

/// x + attention(norm(x)) + mlp(norm(x)), or the parts first and x last, each with dropout (Phi-2).
void parallel_layer(BlockBuilder& b, const BlockOptions& options) {
  const bool is_last = options.text("norms", "before") == "shared_last";
  b.declare("input_layernorm", norm_class_of(options));
  if (is_last) b.declare("resid_dropout", "Dropout");
  const BlockValue hidden = b.input("hidden");
  const BlockValue normed = b.local("hidden_states", layer_normed(b, options, "input_layernorm", hidden));
  const double dropout = options.number("layer_dropout");
  const auto dropped = [&](BlockValue x) { return is_last ? b.dropout("resid_dropout", x, dropout) : x; };
  const BlockValue attention = b.local("attn_outputs", dropped(decoder_attention(b, options, normed)));
  const BlockValue mlp = b.local("mlp_outputs", dropped(decoder_mlp(b, options, normed)));
  b.output("hidden", is_last ? b.add(b.add(attention, mlp), hidden) : b.add(b.add(hidden, attention), mlp));
}

void decoder_layer(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = family_of(options);
  declare_mixer(b, options);
  b.declare("mlp", family + "MLP");
  if (options.text("norms", "before").starts_with("shared")) return parallel_layer(b, options);
  const LayerNorms& norms = norms_of(options);
  for (const std::string_view name : norms.registered) {
    if (!name.empty()) b.declare(name, norm_class_of(options));
  }
  const auto normed = [&](std::string_view name, BlockValue x) {
    return name.empty() ? x : layer_normed(b, options, name, x);
  };
  const auto added = [&](BlockValue residual, BlockValue x) {
    return b.add(residual, options.has("residual_multiplier") ? b.scale(x, options.number("residual_multiplier")) : x);
  };

  const BlockValue hidden = b.input("hidden");
  const BlockValue attention = decoder_attention(b, options, normed(norms.before_attention, hidden));
  const BlockValue middle = added(hidden, normed(norms.after_attention, attention));
  const BlockValue mlp = decoder_mlp(b, options, normed(norms.before_mlp, middle));
  b.output("hidden", added(middle, normed(norms.after_mlp, mlp)));
}

std::string decoder_layer_class(const BlockOptions& options) {
  return family_of(options) + "DecoderLayer";
}

std::vector<OptionRule> decoder_layer_rules() {
  std::vector<OptionRule> rules = decoder_attention_rules();
  const std::vector<OptionRule> mlp = decoder_mlp_rules();
  rules.insert(rules.end(), mlp.begin(), mlp.end());
  const std::vector<OptionRule> own = {
      {"norms_behind", OptionType::Flag, false, "Norms after attention and MLP too (Gemma-2): \"norms\": \"around\"."},
      {"norm",
       OptionType::Text,
       false,
       "The norms of the layer: by the root mean square (rms), LayerNorm (layer), LayerNorm that multiplies by 1 + "
       "weight (layer_unit: Nemotron), or LayerNorm written out in fp32 without a bias (layer_wide: Cohere). Defaults "
       "to rms.",
       {"rms", "layer", "layer_unit", "layer_wide"}},
      {"norms",
       OptionType::Text,
       false,
       "The places of the norms: before attention and MLP, around both with the names of Gemma-2 or GLM-4, after both "
       "(OLMo 2), or one before both, which run side by side and are added to the input (shared: Cohere) or before it "
       "(shared_last: Phi-2). Defaults to before.",
       {"before", "around", "around_glm", "after", "shared", "shared_last"}},
      {"layer_dropout", OptionType::Number, false, "Dropout on both parts (shared_last). Defaults to 0."},
      {"residual_multiplier", OptionType::Number, false, "Factor of what both parts add (Granite)."},
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
  const auto given = b.optional_input(kPositionIds);
  const BlockValue ids_of_positions = given ? *given : b.positions({1, seq});
  document_mask(b, seq);
  padding_mask(b, b.size(ids, 0), seq);
  const BlockValue positions = b.embedding("wpe", ids_of_positions, options.integer("max_positions"), width);
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
                    {.dropout = attention_dropout, .bias = padding_mask_of(b).value_or(attention_mask(b))});
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
