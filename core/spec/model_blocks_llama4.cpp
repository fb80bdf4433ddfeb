// Decoder layers of Llama 4: attention as in the other decoders, then an MLP, or a mixture whose experts all run on
// every token (OpKind::DenseExperts) beside an MLP that all tokens go through.
//
// Sources: transformers 5.24.0, models/llama4/modeling_llama4.py: names, order of registration, order of calls, and the
// local variables, of which the result of attention lives until the layer returns.
//
// Not modeled: packed rows, padding to the left, adapters of the router, which PEFT takes for a linear layer.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

constexpr std::int64_t kMostExpertsOfLlama4 = 4096;

BlockValue llama4_experts(BlockBuilder& b, const BlockOptions& options, BlockValue x, std::int64_t experts) {
  const std::string family = family_of(options);
  const std::int64_t inner = options.integer("intermediate_size", 1);
  const std::int64_t rows = b.size(x, 0) * b.size(x, 1);
  const std::int64_t width = b.size(x, -1);
  const auto scope = b.enter("feed_forward", family + "Moe");
  b.declare("experts", family + "Experts");
  b.declare("router", "Llama4Router");
  b.declare("shared_expert", family + "MLP");
  std::vector<int> parameters;
  {
    const auto inside = b.enter("experts", family + "Experts");
    parameters = {b.parameter_of("", "gate_up_proj", {experts, width, 2 * inner}),
                  b.parameter_of("", "down_proj", {experts, inner, width})};
    b.declare("act_fn", "SiLU");
  }
  b.refuse_adapters("router", "a Llama4Router");
  const BlockValue tokens = b.reshape(x, {rows, width});
  const BlockValue scores = b.local(
      "router_logits", b.linear("router", tokens, experts, {.class_name = "Llama4Router", .is_output_head = true}));
  std::vector<BlockValue> made;
  {
    const auto inside = b.enter("experts", family + "Experts");
    made = b.op({.kind = OpKind::DenseExperts,
                 .inputs = {tokens, scores},
                 .parameters = parameters,
                 .attributes = {.num_experts = experts, .experts_per_token = options.integer("num_experts_per_tok", 1)},
                 .num_outputs = 3,
                 .names = {"routed_out", "routed_in", "router_scores"}});
  }
  b.local("routed_out", made[0]);
  b.local("routed_in", made[1]);
  b.local("router_scores", made[2]);
  const BlockValue shared = b.local("out", gated_mlp(b, options, "shared_expert", tokens, inner, "activation_fn"));
  const BlockValue sum = b.op({.kind = OpKind::Sum,
                               .inputs = {b.reshape(made[0], {experts, rows, width})},
                               .attributes = {.written_out = true, .dim = 0}})
                             .front();
  const BlockValue out = b.op({.kind = OpKind::Add, .inputs = {shared, sum}, .attributes = {.in_place = true}}).front();
  return b.reshape(out, b.shape(x));
}

void llama4_layer(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = family_of(options);
  const std::string norm_class = family + "RMSNorm";
  NormOptions norm = decoder_norm(b, options, norm_class);
  norm.brief = true;
  const std::int64_t experts = options.integer("num_experts", 0);
  if (experts > kMostExpertsOfLlama4) {
    b.fail(fmt::format("{} experts are too many.", experts), fmt::format("Up to {} are read.", kMostExpertsOfLlama4));
    return;
  }
  if (b.is_packed()) {
    b.fail("Packed rows of a Llama 4 are not predicted: its layers attend in chunks.", "Leave --packing out.");
  }
  if (experts > 0 && b.is_quantized()) {
    b.fail("A quantized base of experts is not predicted.",
           "transformers 5 stacks experts in parameters that bitsandbytes leaves as they are: capture the script.");
  }
  b.declare("self_attn", family + "Attention");
  b.declare("feed_forward", family + (experts > 0 ? "Moe" : "MLP"));
  b.declare("input_layernorm", norm_class);
  b.declare("post_attention_layernorm", norm_class);
  const BlockValue hidden = b.input("hidden");
  const BlockValue normed = b.local("hidden_states", b.rms_norm("input_layernorm", hidden, norm));
  const BlockValue attention = b.local("attention_states", decoder_attention(b, options, normed));
  const BlockValue middle = b.local("residual", b.add(hidden, attention));
  const BlockValue normed_middle = b.local("hidden_states", b.rms_norm("post_attention_layernorm", middle, norm));
  const BlockValue mlp = experts > 0 ? llama4_experts(b, options, normed_middle, experts)
                                     : gated_mlp(b, options, "feed_forward", normed_middle,
                                                 options.integer("intermediate_size", 1), "activation_fn");
  b.output("hidden", b.add(middle, b.local("hidden_states", mlp)));
}

std::string llama4_layer_class(const BlockOptions& options) {
  return family_of(options) + "DecoderLayer";
}

}  // namespace

std::vector<BlockKind> llama4_blocks() {
  std::vector<OptionRule> rules = decoder_attention_rules();
  const std::vector<OptionRule> own = {
      {"intermediate_size", OptionType::Size, true, "Width inside the MLP, or inside each expert and the shared MLP."},
      {"num_experts", OptionType::Count, false, "Experts of the layer, which all run. Defaults to 0: one MLP."},
      {"num_experts_per_tok", OptionType::Size, false, "Experts whose results of a token are not zero. Defaults to 1."},
  };
  rules.insert(rules.end(), own.begin(), own.end());
  return {{.name = "llama4_layer",
           .doc = "hidden, cos and sin to hidden: one layer of Llama 4, with an MLP or with experts.",
           .options = rules,
           .build = llama4_layer,
           .class_name = llama4_layer_class}};
}

}  // namespace fsdp
