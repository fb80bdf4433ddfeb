// Mixers that take the place of attention in hybrid decoders, as transformers writes them out.
//
//   delta   a convolution of queries, keys and values, the gated delta rule, a norm with a gate: Qwen3-Next, Qwen3.5
//
// Sources: models/qwen3_next, qwen3_5 and qwen3_5_moe /modeling_*.py of transformers 5.24 (*GatedDeltaNet): names,
// order of registration and order of calls.
// Not modeled: caches; the kernels of flash-linear-attention and causal-conv1d, which transformers calls if these
// packages are installed, and which keep less.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

constexpr double kRmsNormEps = 1e-6;
/// The chunk of transformers' own functions.
constexpr std::int64_t kDeltaChunk = 64;

struct DeltaHeads {
  std::int64_t key_heads = 1, heads = 1, key_dim = 1, value_dim = 1, kernel = 4;

  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return heads * value_dim; }
  std::int64_t convolved() const { return 2 * keys() + values(); }
};

DeltaHeads delta_heads(BlockBuilder& b, const BlockOptions& options) {
  DeltaHeads all = {.key_heads = options.integer("linear_num_key_heads", 1),
                    .heads = options.integer("linear_num_value_heads", 1),
                    .key_dim = options.integer("linear_key_head_dim", 1),
                    .value_dim = options.integer("linear_value_head_dim", 1),
                    .kernel = options.integer("linear_conv_kernel_dim", 4)};
  if (all.heads % all.key_heads == 0) return all;
  b.fail(fmt::format("{} heads of values do not divide into {} of keys.", all.heads, all.key_heads));
  all.heads = all.key_heads;
  return all;
}

/// What the projections make of x: [batch, seq, ...].
struct DeltaInputs {
  BlockValue mixed, z, beta, decay;
};

/// Qwen3-Next: two projections, whose numbers stand by heads of keys.
DeltaInputs fused_delta_projections(BlockBuilder& b, const DeltaHeads& s, BlockValue x) {
  const std::int64_t rows = b.size(x, 0), seq = b.size(x, 1);
  const std::int64_t times = s.heads / s.key_heads;
  const BlockValue both = b.local("projected_states_qkvz", b.linear("in_proj_qkvz", x, 2 * s.keys() + 2 * s.values()));
  const BlockValue steps = b.local("projected_states_ba", b.linear("in_proj_ba", x, 2 * s.heads));
  const std::int64_t value = times * s.value_dim;
  const auto parts = b.split_by(b.reshape(both, {rows, seq, s.key_heads, 2 * s.key_dim + 2 * value}),
                                {s.key_dim, s.key_dim, value, value}, 3);
  const auto by_step = b.split_by(b.reshape(steps, {rows, seq, s.key_heads, 2 * times}), {times, times}, 3);
  const auto flat = [&](BlockValue part, std::int64_t width) {
    return b.reshape(b.contiguous(part), {rows, seq, width});
  };
  const BlockValue values = flat(parts[2], s.values());
  DeltaInputs all;
  all.z = b.local("z", flat(parts[3], s.values()));
  all.beta = b.local("b", flat(by_step[0], s.heads));
  all.decay = b.local("a", flat(by_step[1], s.heads));
  const BlockValue query = b.local("query", flat(parts[0], s.keys()));
  const BlockValue key = b.local("key", flat(parts[1], s.keys()));
  all.mixed = b.cat({query, key, b.local("value", values)}, -1);
  return all;
}

DeltaInputs delta_projections(BlockBuilder& b, const DeltaHeads& s, BlockValue x) {
  DeltaInputs all;
  all.mixed = b.local("mixed_qkv", b.linear("in_proj_qkv", x, s.convolved()));
  all.z = b.local("z", b.linear("in_proj_z", x, s.values()));
  all.beta = b.local("b", b.linear("in_proj_b", x, s.heads));
  all.decay = b.local("a", b.linear("in_proj_a", x, s.heads));
  return all;
}

void refuse_what_no_fallback_runs(BlockBuilder& b, const std::string& family) {
  if (b.pads_rows()) {
    b.fail(fmt::format("Padded rows of a {} are not predicted.", family),
           "Leave out the padding, or capture the script.");
  }
}

BlockValue gated_norm(BlockBuilder& b, std::string_view class_name, BlockValue x, BlockValue gate, double eps) {
  const auto scope = b.enter("norm", class_name);
  return b.op({.kind = OpKind::GatedRmsNorm,
               .inputs = {x, gate},
               .parameters = {b.parameter_of("", "weight", {b.size(x, -1)})},
               .attributes = {.eps = eps > 0 ? eps : kRmsNormEps}})[0];
}

}  // namespace

void declare_mixer(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = family_of(options);
  const bool is_linear = options.flag("linear_attention");
  b.declare(is_linear ? "linear_attn" : "self_attn", family + (is_linear ? "GatedDeltaNet" : "Attention"));
}

std::vector<OptionRule> linear_attention_rules() {
  return {
      {"linear_attention", OptionType::Flag, false,
       "A gated delta rule takes the place of attention (Qwen3.5). Defaults to false."},
      {"fused_linear_projections", OptionType::Flag, false,
       "Two projections make what the delta rule takes, and not four (Qwen3-Next)."},
      {"linear_num_key_heads", OptionType::Size, false, "Heads of queries and keys of linear attention."},
      {"linear_num_value_heads", OptionType::Size, false, "Heads of values of linear attention."},
      {"linear_key_head_dim", OptionType::Size, false, "Width of a query or key of linear attention."},
      {"linear_value_head_dim", OptionType::Size, false, "Width of a value of linear attention."},
      {"linear_conv_kernel_dim", OptionType::Size, false,
       "Positions that the convolution of linear attention reads. Defaults to 4."},
  };
}

BlockValue linear_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::string family = family_of(options);
  const DeltaHeads s = delta_heads(b, options);
  const bool is_fused = options.flag("fused_linear_projections");
  const std::int64_t rows = b.size(x, 0), seq = b.size(x, 1), hidden = b.size(x, -1);
  refuse_what_no_fallback_runs(b, family);
  const auto scope = b.enter("linear_attn", family + "GatedDeltaNet");
  const int bias = b.parameter_of("", "dt_bias", {s.heads});
  const int rate = b.parameter_of("", "A_log", {s.heads});
  b.refuse_adapters("conv1d", "a convolution");
  b.declare("conv1d", "Conv1d", false);
  const int weight = b.parameter_of("conv1d", "weight", {s.convolved(), 1, s.kernel});
  if (is_fused) {
    for (const char* name : {"in_proj_qkvz", "in_proj_ba"}) b.declare(name, "Linear");
  }
  b.declare("norm", family + "RMSNormGated");
  b.declare("out_proj", "Linear");
  const DeltaInputs in = is_fused ? fused_delta_projections(b, s, x) : delta_projections(b, s, x);
  b.local("mixed_qkv", in.mixed);
  const BlockValue mixed =
      b.local("mixed_qkv", b.op({.kind = OpKind::CausalConv1d, .inputs = {in.mixed}, .parameters = {weight}})[0]);
  if (is_fused) {
    for (const char* part : {"query", "key", "value"}) b.local(part, mixed);
  }
  const BlockValue beta = b.local("beta", b.sigmoid(in.beta));
  const BlockValue decay =
      b.local("g", b.op({.kind = OpKind::DecayRate, .inputs = {in.decay}, .parameters = {rate, bias}})[0]);
  const BlockValue mixed_values = b.op(
      {.kind = OpKind::GatedDeltaRule,
       .inputs = {mixed, decay, beta},
       .attributes = {.heads = s.heads, .kv_heads = s.key_heads, .head_dim = s.key_dim, .length = kDeltaChunk}})[0];
  const Shape by_value = {rows * seq * s.heads, s.value_dim};
  const BlockValue output =
      gated_norm(b, family + "RMSNormGated", b.local("core_attn_out", b.reshape(mixed_values, by_value)),
                 b.reshape(in.z, by_value), norm_eps(b, options));
  return b.linear("out_proj", b.local("core_attn_out", b.reshape(output, {rows, seq, s.values()})), hidden);
}

}  // namespace fsdp
