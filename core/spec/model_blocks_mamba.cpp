// Blocks of hybrids with Mamba-2, as transformers writes them out.
//
//   nemotron_h_block   x + mixer(norm(x)), where the mixer is a state space, attention without positions, or an MLP
//
// Sources: models/nemotron_h/modeling_nemotron_h.py of transformers 5.24 (NemotronHBlock, NemotronHMamba2Mixer,
// NemotronHAttention, NemotronHMLP): names, order of registration and order of calls.
// Not modeled: caches, experts; the kernels of mamba-ssm and causal-conv1d, which transformers calls if these packages
// are installed, and which keep less.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

constexpr std::string_view kMixer = "mixer";

struct MambaSizes {
  std::int64_t heads = 1, head_dim = 1, state = 1, groups = 1, kernel = 4, chunk = 128;

  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t convolved() const { return inner() + 2 * groups * state; }
};

MambaSizes mamba_sizes(BlockBuilder& b, const BlockOptions& options) {
  MambaSizes s = {.heads = options.integer("mamba_num_heads", 1),
                  .head_dim = options.integer("mamba_head_dim", 1),
                  .state = options.integer("ssm_state_size", 1),
                  .groups = options.integer("n_groups", 1),
                  .kernel = options.integer("conv_kernel", 4),
                  .chunk = options.integer("chunk_size", 128)};
  if (s.heads % s.groups == 0) return s;
  b.fail(fmt::format("{} heads do not divide into {} groups.", s.heads, s.groups));
  s.groups = 1;
  return s;
}

/// [batch, seq, hidden] -> the same.
BlockValue mamba_mixer(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const MambaSizes s = mamba_sizes(b, options);
  const std::string norm_class = family_of(options) + "RMSNormGated";
  if (b.pads_rows()) b.fail("Padded rows of a state space are not predicted.", "Leave out the padding.");
  const auto scope = b.enter(kMixer, family_of(options) + "Mamba2Mixer");
  const int bias = b.parameter_of("", "dt_bias", {s.heads});
  const int rate = b.parameter_of("", "A_log", {s.heads});
  const int passed = b.parameter_of("", "D", {s.heads});
  b.refuse_adapters("conv1d", "a convolution");
  b.declare("conv1d", "Conv1d", false);
  std::vector<int> conv = {b.parameter_of("conv1d", "weight", {s.convolved(), 1, s.kernel})};
  if (options.flag("conv_bias", true)) conv.push_back(b.parameter_of("conv1d", "bias", {s.convolved()}));
  const LinearOptions linear = {.bias = options.flag("projection_bias")};
  b.declare("in_proj", "Linear");
  b.declare("norm", norm_class);
  const BlockValue all =
      b.local("projected_states", b.linear("in_proj", x, s.inner() + s.convolved() + s.heads, linear));
  const auto parts = b.split_by(all, {s.inner(), s.convolved(), s.heads}, -1);
  const BlockValue mixed =
      b.local("hidden_states_B_C", b.op({.kind = OpKind::CausalConv1d, .inputs = {parts[1]}, .parameters = conv})[0]);
  const BlockValue scanned =
      b.local("scan_output", b.op({.kind = OpKind::StateSpace,
                                   .inputs = {mixed, parts[2]},
                                   .parameters = {rate, bias, passed},
                                   .attributes = {.heads = s.heads,
                                                  .head_dim = s.head_dim,
                                                  .length = s.chunk,
                                                  .groups = s.groups,
                                                  .value = options.number("time_step_min")}})[0]);
  BlockValue normed;
  {
    const auto norm = b.enter("norm", norm_class);
    normed = b.op({.kind = OpKind::GatedRmsNorm,
                   .inputs = {scanned, parts[0]},
                   .parameters = {b.parameter_of("", "weight", {s.inner()})},
                   .attributes = {.eps = norm_eps(b, options), .gate_first = true, .groups = s.groups}})[0];
  }
  const BlockValue narrow = b.op({.kind = OpKind::Cast, .inputs = {b.local("scan_output", normed)}})[0];
  return b.linear("out_proj", narrow, b.size(x, -1), linear);
}

/// Attention without positions.
BlockValue plain_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::int64_t heads = options.integer("num_attention_heads", 1);
  const std::int64_t kv_heads = options.integer("num_key_value_heads", heads);
  const std::int64_t head_dim = options.integer("head_dim", 1);
  const auto scope = b.enter(kMixer, family_of(options) + "Attention");
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) b.declare(name, "Linear");
  const auto heads_of = [&](const char* variable, const char* name, std::int64_t number) {
    return b.local(variable, split_heads(b, b.linear(name, x, number * head_dim), number));
  };
  const BlockValue q = heads_of("query_states", "q_proj", heads);
  const BlockValue k = heads_of("key_states", "k_proj", kv_heads);
  const BlockValue v = heads_of("value_states", "v_proj", kv_heads);
  const BlockValue mixed =
      b.attention(q, k, v, {.causal = true, .dropout = options.number("attention_dropout"), .bias = attention_mask(b)});
  return b.linear("o_proj", mixed, b.size(x, -1));
}

BlockValue squared_mlp(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const LinearOptions linear = {.bias = options.flag("mlp_bias")};
  const auto scope = b.enter(kMixer, family_of(options) + "MLP");
  for (const char* name : {"up_proj", "down_proj"}) b.declare(name, "Linear");
  const BlockValue wide = b.linear("up_proj", x, options.integer("intermediate_size", 1), linear);
  BlockValue inner;
  {
    const auto activation = b.enter("act_fn", "ReLUSquaredActivation");
    inner = b.op({.kind = OpKind::Relu, .inputs = {wide}, .attributes = {.written_out = true}})[0];
  }
  return b.linear("down_proj", inner, b.size(x, -1), linear);
}

void nemotron_h_block(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  b.local("residual", hidden);
  const BlockValue normed = b.local(
      "hidden_states",
      b.rms_norm("norm", hidden,
                 {.wide_weight = true, .class_name = family_of(options) + "RMSNorm", .eps = norm_eps(b, options)}));
  const std::string mixer = options.text("mixer", "mamba");
  const BlockValue mixed = mixer == "mamba"       ? mamba_mixer(b, options, normed)
                           : mixer == "attention" ? plain_attention(b, options, normed)
                                                  : squared_mlp(b, options, normed);
  b.output("hidden", b.add(hidden, mixed));
}

std::string nemotron_h_class(const BlockOptions& options) {
  return family_of(options) + "Block";
}

}  // namespace

std::vector<BlockKind> mamba_blocks() {
  return {{.name = "nemotron_h_block",
           .doc = "hidden to hidden: a norm and one mixer of Nemotron-H.",
           .options = {{"family", OptionType::Text, false, "First word of the class names. Defaults to Llama."},
                       {"mixer",
                        OptionType::Text,
                        false,
                        "What comes after the norm. Defaults to mamba.",
                        {"mamba", "attention", "mlp"}},
                       {"mamba_num_heads", OptionType::Size, true, "Heads of the state space."},
                       {"mamba_head_dim", OptionType::Size, true, "Width of such a head."},
                       {"ssm_state_size", OptionType::Size, true, "Numbers of a state for each number of a head."},
                       {"n_groups", OptionType::Size, false, "Groups of heads with one input and output of states."},
                       {"conv_kernel", OptionType::Size, false, "Positions that the convolution reads. Defaults to 4."},
                       {"conv_bias", OptionType::Flag, false, "The convolution has a bias. Defaults to true."},
                       {"chunk_size", OptionType::Size, false, "Positions of a chunk. Defaults to 128."},
                       {"time_step_min", OptionType::Number, false, "The shortest step. Defaults to 0."},
                       {"projection_bias", OptionType::Flag, false, "The projections of the state space have biases."},
                       {"num_attention_heads", OptionType::Size, true, "Query heads."},
                       {"num_key_value_heads", OptionType::Size, false, "Key and value heads."},
                       {"head_dim", OptionType::Size, true, "Width of a head of attention."},
                       {"attention_dropout", OptionType::Number, false, "Dropout on attention weights. Defaults to 0."},
                       {"intermediate_size", OptionType::Size, true, "Width inside the MLP."},
                       {"mlp_bias", OptionType::Flag, false, "The projections of the MLP have biases."},
                       norm_eps_rule(kNormEpsDoc)},
           .build = nemotron_h_block,
           .class_name = nemotron_h_class}};
}

}  // namespace fsdp
