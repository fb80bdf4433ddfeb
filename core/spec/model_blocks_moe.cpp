// Decoder layers with a mixture of experts as their MLP: with one module per expert as in Hugging Face transformers
// 4.57, or with the parameters of all experts stacked as in transformers 5.
//
//   tokens [batch * seq, hidden] -> gate -> scores [tokens, experts] -> softmax, top-k -> weights and indices
//   experts(tokens, weights, indices) -> [tokens, hidden], plus an MLP for all tokens where experts are shared
//
// Sources: models/mixtral and models/qwen3_moe /modeling_*.py of transformers 4.57: names and order of registration;
// the same and models/glm4_moe, integrations/moe.py (grouped_mm, the default) of transformers 5.24 for stacked experts.
// Not modeled: the auxiliary load balancing loss, which is off unless output_router_logits is set. Assumes that tokens
// are spread evenly over the experts.

#include <fmt/format.h>

#include <array>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

constexpr std::int64_t kMostExperts = 4096;

/// The two families' names of their parts.
struct ExpertNames {
  std::string_view moe;
  std::string_view experts_class;              ///< Mixtral's list of experts has a forward of its own.
  std::array<std::string_view, 3> registered;  ///< In order of registration.
  std::string_view gate, up, down;
};
constexpr ExpertNames kMixtral = {"block_sparse_moe", "MixtralExperts", {"w1", "w2", "w3"}, "w1", "w3", "w2"};
constexpr ExpertNames kQwen = {"mlp",       "ModuleList", {"gate_proj", "up_proj", "down_proj"},
                               "gate_proj", "up_proj",    "down_proj"};

/// Makes the modules and parameters of all experts; returns gate, up and down of each in turn.
std::vector<int> expert_parameters(BlockBuilder& b, const ExpertNames& names, const std::string& family,
                                   std::int64_t num_experts, std::int64_t hidden, std::int64_t intermediate) {
  const Shape inward = {intermediate, hidden};
  const Shape outward = {hidden, intermediate};
  std::vector<int> parameters;
  bool is_target = false;
  const auto list = b.enter("experts", names.experts_class);
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const auto scope = b.enter(std::to_string(e), family + "MLP");
    std::array<int, 3> by_order{};
    for (std::size_t i = 0; i < by_order.size(); ++i) {
      if (e == 0 && b.is_adapted(names.registered[i])) is_target = true;
      b.declare(names.registered[i], "Linear");
      by_order[i] = b.parameter_of(names.registered[i], "weight", names.registered[i] == names.down ? outward : inward);
    }
    b.declare("act_fn", "SiLU");
    for (const std::string_view role : {names.gate, names.up, names.down}) {
      for (std::size_t i = 0; i < by_order.size(); ++i) {
        if (names.registered[i] == role) parameters.push_back(by_order[i]);
      }
    }
  }
  if (is_target) {
    b.fail("Adapters of experts are not predicted.",
           "Name the layers of attention: targets=q_proj+k_proj+v_proj+o_proj.");
  }
  return parameters;
}

bool is_gpt_oss(const BlockOptions& options) {
  return options.text("naming", "qwen") == "gpt_oss";
}

/// The class of the mixture.
std::string moe_class(const BlockOptions& options) {
  if (is_gpt_oss(options)) return family_of(options) + "MLP";
  const std::string router = options.text("router", "softmax");
  const bool is_sparse = router == "softmax" || router == "narrow_sigmoid";
  return family_of(options) + (is_sparse ? "SparseMoeBlock" : router == "sigmoid" ? "MoE" : "Moe");
}

std::int64_t experts_of(BlockBuilder& b, const BlockOptions& options) {
  b.patch_of(LigerKernel::Glu, family_of(options));
  if (b.is_quantized()) {
    b.fail("A quantized base of experts is not predicted.",
           "transformers 5 stacks experts in parameters that bitsandbytes leaves as they are: capture the script.");
  }
  const std::int64_t num_experts = options.integer("num_experts", 1);
  if (num_experts <= kMostExperts) return num_experts;
  b.fail(fmt::format("{} experts are too many.", num_experts), fmt::format("Up to {} are read.", kMostExperts));
  return 1;
}

/// The scores of a sigmoid in fp32, or of a softmax, chosen within the best groups: GLM-4.5, DeepSeek.
std::vector<BlockValue> wide_router(BlockBuilder& b, const BlockOptions& options, BlockValue tokens,
                                    std::int64_t num_experts) {
  const auto scope = b.enter("gate", family_of(options) + "TopkRouter");
  const int weight = b.parameter_of("", "weight", {num_experts, b.size(tokens, -1)});
  const bool is_sigmoid = options.text("router", "softmax") == "sigmoid";
  if (is_sigmoid) b.buffer("e_score_correction_bias", {num_experts}, Dtype::Float32, true);
  return b.op({.kind = OpKind::Router,
               .inputs = {tokens},
               .parameters = {weight},
               .attributes = {.wide = !is_sigmoid,
                              .groups = options.integer("n_group", is_sigmoid ? 1 : 0),
                              .num_experts = num_experts,
                              .experts_per_token = options.integer("num_experts_per_tok", 1),
                              .norm_topk_prob = options.flag("norm_topk_prob", true),
                              .sigmoid = is_sigmoid,
                              .topk_groups = options.integer("topk_group", 1),
                              .scale = options.number("routed_scaling_factor", 1)},
               .names = {"routing_weights", "selected_experts"}});
}

std::vector<BlockValue> softmax_router(BlockBuilder& b, const BlockOptions& options, BlockValue scores,
                                       std::int64_t num_experts, bool wide) {
  return b.op({.kind = OpKind::Router,
               .inputs = {scores},
               .attributes = {.wide = wide,
                              .num_experts = num_experts,
                              .experts_per_token = options.integer("num_experts_per_tok", 1),
                              .norm_topk_prob = options.flag("norm_topk_prob", true)},
               .names = {"routing_weights", "selected_experts"}});
}

/// Sigmoids in fp32 of scores in the activations' dtype, with a correction of the choice: MiniMax-M2.
std::vector<BlockValue> narrow_sigmoid_router(BlockBuilder& b, const BlockOptions& options, BlockValue scores,
                                              std::int64_t num_experts) {
  b.buffer("e_score_correction_bias", {num_experts}, Dtype::Float32, true);
  return b.op({.kind = OpKind::Router,
               .inputs = {b.local("_", scores)},
               .attributes = {.num_experts = num_experts,
                              .experts_per_token = options.integer("num_experts_per_tok", 1),
                              .sigmoid = true},
               .names = {"routing_weights", "selected_experts"}});
}

/// Qwen2-MoE: the MLP that all tokens go through, times a sigmoid of each token's own.
BlockValue gated_shared_expert(BlockBuilder& b, BlockValue tokens, BlockValue shared) {
  const BlockValue gate = b.sigmoid(b.linear("shared_expert_gate", tokens, 1));
  return b.mul(shared, gate);
}

/// transformers 5: two stacked parameters. Mixtral and Qwen2-MoE register the gate first.
BlockValue stacked_mixture(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::string family = family_of(options);
  const std::string naming = options.text("naming", "qwen");
  const std::string router = options.text("router", "softmax");
  const bool is_mixtral = naming == "mixtral";
  const bool gate_first = is_mixtral || naming == "qwen2";
  const bool is_wide = router != "softmax" && router != "narrow_sigmoid";
  const std::int64_t shared = options.integer("shared_intermediate_size", 0);
  const std::int64_t num_experts = experts_of(b, options);
  const std::int64_t hidden = b.size(x, -1);
  const std::int64_t inner = options.integer("moe_intermediate_size", 1);
  const std::string router_class = family + (is_wide ? "TopkRouter" : "TopKRouter");
  const auto scope = b.enter("mlp", moe_class(options));
  if (gate_first) b.declare("gate", router_class);
  b.declare("experts", family + "Experts");
  if (!gate_first) b.declare("gate", router_class);
  if (naming == "qwen2") b.declare("shared_expert", family + "MLP");
  std::vector<int> parameters;
  const auto stacks = [&] {
    const auto experts = b.enter("experts", family + "Experts");
    parameters = {b.parameter_of("", "gate_up_proj", {num_experts, 2 * inner, hidden}),
                  b.parameter_of("", "down_proj", {num_experts, hidden, inner})};
    b.declare("act_fn", "SiLU");
  };
  if (!gate_first) stacks();
  const BlockValue tokens = b.reshape(x, {b.size(x, 0) * b.size(x, 1), hidden});
  BlockValue shared_output;
  if (naming == "qwen2") {
    shared_output = b.local("shared_expert_output", gated_mlp(b, options, "shared_expert", tokens, shared));
  }
  const auto scores = [&] {
    return b.linear("gate", tokens, num_experts, {.class_name = router_class, .is_output_head = true});
  };
  const auto routed = is_wide                      ? wide_router(b, options, tokens, num_experts)
                      : router == "narrow_sigmoid" ? narrow_sigmoid_router(b, options, scores(), num_experts)
                                                   : softmax_router(b, options, scores(), num_experts, is_mixtral);
  if (gate_first) stacks();
  BlockValue mixed;
  {
    const auto experts = b.enter("experts", family + "Experts");
    mixed = b.op({.kind = OpKind::GroupedExperts,
                  .inputs = {tokens, routed[0], routed[1]},
                  .parameters = parameters,
                  .attributes = {.num_experts = num_experts,
                                 .experts_per_token = options.integer("num_experts_per_tok", 1)}})[0];
  }
  if (naming == "qwen2") {
    b.local("expert_output", mixed);
    mixed = b.add(mixed, b.local("shared_expert_output", gated_shared_expert(b, tokens, shared_output)));
    return b.reshape(mixed, b.shape(x));
  }
  mixed = b.reshape(mixed, b.shape(x));
  return shared > 0 ? b.add(mixed, gated_mlp(b, options, "shared_experts", x, shared)) : mixed;
}

/// gpt-oss: a softmax of the chosen scores alone, biases, and stacks stored as [in, out].
BlockValue clamped_mixture(BlockBuilder& b, const BlockOptions& options, BlockValue x) {
  const std::string family = family_of(options);
  const std::string router_class = family + "TopKRouter";
  const std::int64_t num_experts = experts_of(b, options);
  const std::int64_t per_token = options.integer("num_experts_per_tok", 1);
  const std::int64_t hidden = b.size(x, -1);
  const std::int64_t inner = options.integer("moe_intermediate_size", 1);
  const auto scope = b.enter("mlp", family + "MLP");
  b.declare("router", router_class);
  const BlockValue tokens = b.reshape(x, {b.size(x, 0) * b.size(x, 1), hidden});
  const BlockValue scores = b.local(
      "_", b.linear("router", tokens, num_experts, {.bias = true, .class_name = router_class, .is_output_head = true}));
  const auto routed =
      b.op({.kind = OpKind::Router,
            .inputs = {scores},
            .attributes = {.num_experts = num_experts, .experts_per_token = per_token, .top_first = true},
            .names = {"router_scores", "router_indices"}});
  BlockValue mixed;
  {
    const auto experts = b.enter("experts", family + "Experts");
    const int both = b.parameter_of("", "gate_up_proj", {num_experts, hidden, 2 * inner});
    const int both_bias = b.parameter_of("", "gate_up_proj_bias", {num_experts, 2 * inner});
    const int down = b.parameter_of("", "down_proj", {num_experts, inner, hidden});
    const int down_bias = b.parameter_of("", "down_proj_bias", {num_experts, hidden});
    mixed = b.op({.kind = OpKind::GroupedExperts,
                  .inputs = {tokens, routed[0], routed[1]},
                  .parameters = {both_bias, both, down_bias, down},
                  .attributes = {.num_experts = num_experts,
                                 .experts_per_token = per_token,
                                 .limit = options.number("swiglu_limit", 7),
                                 .scale = options.number("swiglu_alpha", 1.702)}})[0];
  }
  return b.reshape(mixed, b.shape(x));
}

BlockValue mixture(BlockBuilder& b, const BlockOptions& options, const ExpertNames& names, BlockValue x) {
  if (is_gpt_oss(options)) return clamped_mixture(b, options, x);
  if (options.flag("stacked")) return stacked_mixture(b, options, x);
  const std::string family = family_of(options);
  const std::int64_t num_experts = experts_of(b, options);
  const std::int64_t hidden = b.size(x, -1);
  const std::int64_t per_token = options.integer("num_experts_per_tok", 1);
  const auto scope = b.enter(names.moe, family + "SparseMoeBlock");
  const BlockValue tokens = b.reshape(x, {b.size(x, 0) * b.size(x, 1), hidden});
  const BlockValue scores = b.linear("gate", tokens, num_experts);
  const auto routed = softmax_router(b, options, scores, num_experts, false);
  const std::vector<int> parameters =
      expert_parameters(b, names, family, num_experts, hidden, options.integer("moe_intermediate_size", 1));
  const BlockValue mixed = b.op({.kind = OpKind::Experts,
                                 .inputs = {tokens, routed[0], routed[1]},
                                 .parameters = parameters,
                                 .attributes = {.num_experts = num_experts, .experts_per_token = per_token}})[0];
  return b.reshape(mixed, b.shape(x));
}

void moe_layer(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = family_of(options);
  const std::string norm_class = family + "RMSNorm";
  const NormOptions norm = decoder_norm(b, options, norm_class);
  const ExpertNames& names = options.text("naming", "qwen") == "mixtral" ? kMixtral : kQwen;
  declare_mixer(b, options);
  b.declare(options.flag("stacked") ? "mlp" : names.moe, moe_class(options));
  b.declare("input_layernorm", norm_class);
  b.declare("post_attention_layernorm", norm_class);

  const BlockValue hidden = b.input("hidden");
  const BlockValue normed = b.rms_norm("input_layernorm", hidden, norm);
  const BlockValue middle = b.add(hidden, decoder_attention(b, options, normed));
  const BlockValue normed_middle = b.rms_norm("post_attention_layernorm", middle, norm);
  b.output("hidden", b.add(middle, mixture(b, options, names, normed_middle)));
}

std::string moe_layer_class(const BlockOptions& options) {
  return family_of(options) + "DecoderLayer";
}

}  // namespace

std::vector<BlockKind> moe_blocks() {
  std::vector<OptionRule> rules = decoder_attention_rules();
  const std::vector<OptionRule> own = {
      {"moe_intermediate_size", OptionType::Size, true, "Width inside one expert."},
      {"num_experts", OptionType::Size, true, "Experts of the layer."},
      {"num_experts_per_tok", OptionType::Size, true, "Experts that a token is sent to."},
      {"norm_topk_prob", OptionType::Flag, false,
       "The weights of a token's experts are divided by their sum. Defaults to true."},
      {"naming",
       OptionType::Text,
       false,
       "The model whose names the experts' parameters have; gpt_oss has its own router and experts too, and qwen2 a "
       "sigmoid of what all tokens go through. Defaults to qwen.",
       {"qwen", "qwen2", "mixtral", "gpt_oss"}},
      {"stacked", OptionType::Flag, false, "The parameters of all experts are stacked (transformers 5)."},
      {"router",
       OptionType::Text,
       false,
       "The scores of experts: a softmax; in fp32 (stacked), sigmoids with a correction of the choice, or a softmax "
       "(DeepSeek-V2); such sigmoids of scores in the activations' dtype (MiniMax-M2). Defaults to softmax.",
       {"softmax", "sigmoid", "wide_softmax", "narrow_sigmoid"}},
      {"swiglu_alpha", OptionType::Number, false,
       "Factor inside the sigmoid of the gate (gpt_oss). Defaults to 1.702."},
      {"swiglu_limit", OptionType::Number, false, "The largest gate, and up (gpt_oss). Defaults to 7."},
      {"n_group", OptionType::Size, false, "Groups of experts (sigmoid). Defaults to 1."},
      {"topk_group", OptionType::Size, false, "Groups that a token's experts are in (sigmoid). Defaults to 1."},
      {"routed_scaling_factor", OptionType::Number, false, "Factor of the weights (sigmoid). Defaults to 1."},
      {"mlp_bias", OptionType::Flag, false, "The projections of that MLP have biases."},
      {"shared_intermediate_size", OptionType::Size, false,
       "Width inside the MLP that all tokens go through too (stacked). Defaults to no such MLP."},
  };
  rules.insert(rules.end(), own.begin(), own.end());
  return {{.name = "moe_layer",
           .doc = "hidden, cos and sin to hidden: one decoder layer with a mixture of experts.",
           .options = rules,
           .build = moe_layer,
           .class_name = moe_layer_class}};
}

}  // namespace fsdp
