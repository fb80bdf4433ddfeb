// Attention with latent keys and values, as in Hugging Face transformers 5.24: DeepSeek-V2 and V3, GLM-4.7-Flash.
//
//   q      one projection, or two with a norm between of width q_lora_rank; each head has a part without and a part
//          with rotary positions
//   k, v   one projection to a latent of width kv_lora_rank, and to one rotary part for all heads; the latent is
//          normalized and projected to the other part of each head's key, and to its value
//
// Sources: models/deepseek_v3/modeling_deepseek_v3.py (DeepseekV3Attention),
// models/deepseek_v2/modeling_deepseek_v2.py: names, order of registration and order of calls. Not modeled: the
// compressed cache, which training does not need.

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

struct LatentSizes {
  std::int64_t batch, seq, heads, plain, turned, value;
};

/// [batch, heads, seq, plain + turned]
BlockValue queries(BlockBuilder& b, const BlockOptions& options, BlockValue x, const LatentSizes& s,
                   const NormOptions& norm) {
  const std::int64_t rank = options.integer("q_lora_rank");
  const std::int64_t width = s.heads * (s.plain + s.turned);
  BlockValue q;
  if (rank == 0) {
    q = b.linear("q_proj", x, width);
  } else {
    const BlockValue latent = b.linear("q_a_proj", x, rank, {.bias = options.flag("qkv_bias")});
    q = b.linear("q_b_proj", b.rms_norm("q_a_layernorm", latent, norm), width);
  }
  return b.local("q_states", b.transpose(b.reshape(q, {s.batch, s.seq, s.heads, s.plain + s.turned}), 1, 2));
}

/// Key and value, [batch, heads, seq, width] each. A new tensor takes both parts of the key.
std::array<BlockValue, 2> expanded(BlockBuilder& b, BlockValue latent, BlockValue turned, const LatentSizes& s) {
  const BlockValue all = b.linear("kv_b_proj", latent, s.heads * (s.plain + s.value));
  const BlockValue by_head = b.transpose(b.reshape(all, {s.batch, s.seq, s.heads, s.plain + s.value}), 1, 2);
  const auto [plain, value] = b.split_at(by_head, s.plain, -1);
  const BlockValue for_each = b.expand(turned, {s.batch, s.heads, s.seq, s.turned});
  BlockValue key = b.constant({s.batch, s.heads, s.seq, s.plain + s.turned});
  key = b.set_slice(key, plain, 3, 0);
  key = b.set_slice(key, for_each, 3, s.plain);
  return {key, value};
}

}  // namespace

std::vector<OptionRule> latent_attention_rules() {
  return {
      {"kv_lora_rank", OptionType::Size, false, "Width of the latent of keys and values (DeepSeek). Defaults to none."},
      {"q_lora_rank", OptionType::Size, false, "Width of the latent of queries (DeepSeek). Defaults to none."},
      {"qk_nope_head_dim", OptionType::Size, false, "Numbers of a query and key without positions (DeepSeek)."},
      {"qk_rope_head_dim", OptionType::Size, false, "Numbers of a query and key with positions (DeepSeek)."},
      {"v_head_dim", OptionType::Size, false, "Numbers of a value (DeepSeek)."},
      {"complex_rotary", OptionType::Flag, false, "Rotary positions multiply complex numbers in fp32 (DeepSeek-V2)."},
  };
}

BlockValue latent_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::string family = family_of(options);
  for (const char* key : {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    if (!options.has(key)) b.fail(fmt::format("\"kv_lora_rank\" needs a \"{}\".", key), "config.json has it.");
  }
  const LatentSizes s = {b.size(x, 0),
                         b.size(x, 1),
                         options.integer("num_attention_heads", 1),
                         options.integer("qk_nope_head_dim", 1),
                         options.integer("qk_rope_head_dim", 2),
                         options.integer("v_head_dim", 1)};
  const std::int64_t rank = options.integer("kv_lora_rank", 1);
  const std::string norm_class = family + "RMSNorm";
  // The published code leaves the epsilon of these norms at its default.
  const NormOptions norm = {.class_name = norm_class};
  const auto scope = b.enter("self_attn", family + "Attention");
  const auto [plain, to_turn] = b.split_at(queries(b, options, x, s, norm), s.plain, -1);
  const BlockValue compressed =
      b.local("compressed_kv", b.linear("kv_a_proj_with_mqa", x, rank + s.turned, {.bias = options.flag("qkv_bias")}));
  const auto [latent, shared] = b.split_at(compressed, rank, -1);
  const BlockValue normed = b.rms_norm("kv_a_layernorm", latent, norm);
  const BlockValue kv = b.local("kv_nope", b.reshape(normed, {s.batch, 1, s.seq, rank}));
  const bool complex = options.flag("complex_rotary");
  const auto [q_turned, k_turned] = b.rotary(
      b.transpose(to_turn, 1, 2), b.reshape(shared, {s.batch, s.seq, 1, s.turned}), {b.input("cos"), b.input("sin")},
      {.interleaved = options.flag("interleaved_rotary"),
       .by_halves = options.flag("interleaved_rotary") && !complex,
       .complex = complex});
  const BlockValue q_last = b.local("q_rot", b.transpose(q_turned, 1, 2));
  const BlockValue k_last = b.local("k_rot", b.transpose(k_turned, 1, 2));
  const BlockValue query = b.local("query_states", b.cat({plain, q_last}, -1));
  const auto [key, value] = expanded(b, kv, k_last, s);
  b.local("key_states", key);
  const double scalar = options.number("query_pre_attn_scalar");
  const BlockValue mixed = b.attention(b.transpose(query, 1, 2), b.transpose(key, 1, 2), b.transpose(value, 1, 2),
                                       {.causal = true,
                                        .dropout = options.number("attention_dropout"),
                                        .bias = padding_mask_of(b).value_or(attention_mask(b)),
                                        .scale = scalar > 0 ? 1 / std::sqrt(scalar) : 0});
  return b.linear("o_proj", mixed, b.size(x, -1), {.bias = options.flag("qkv_bias")});
}

}  // namespace fsdp
