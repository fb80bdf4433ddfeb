// Decoder layers with a mixture of experts as their MLP, with one module per expert as in Hugging Face transformers
// 4.57.
//
//   tokens [batch * seq, hidden] -> gate -> scores [tokens, experts] -> softmax, top-k -> weights and indices
//   experts(tokens, weights, indices) -> [tokens, hidden]
//
// Sources: models/mixtral and models/qwen3_moe /modeling_*.py of transformers 4.57: names and order of registration.
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

BlockValue mixture(BlockBuilder& b, const BlockOptions& options, const ExpertNames& names, BlockValue x) {
  const std::string family = family_of(options);
  std::int64_t num_experts = options.integer("num_experts", 1);
  if (num_experts > kMostExperts) {
    b.fail(fmt::format("{} experts are too many.", num_experts), fmt::format("Up to {} are read.", kMostExperts));
    num_experts = 1;
  }
  const std::int64_t hidden = b.size(x, -1);
  const std::int64_t per_token = options.integer("num_experts_per_tok", 1);
  const auto scope = b.enter(names.moe, family + "SparseMoeBlock");
  const BlockValue tokens = b.reshape(x, {b.size(x, 0) * b.size(x, 1), hidden});
  const BlockValue scores = b.linear("gate", tokens, num_experts);
  const auto routed = b.op({.kind = OpKind::Router,
                            .inputs = {scores},
                            .attributes = {.num_experts = num_experts,
                                           .experts_per_token = per_token,
                                           .norm_topk_prob = options.flag("norm_topk_prob", true)},
                            .names = {"routing_weights", "selected_experts"}});
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
  const NormOptions norm = {.class_name = norm_class, .eps = norm_eps(b, options)};
  const ExpertNames& names = options.text("naming", "qwen") == "mixtral" ? kMixtral : kQwen;
  b.declare("self_attn", family + "Attention");
  b.declare(names.moe, family + "SparseMoeBlock");
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
       "The model whose names the experts' parameters have. Defaults to qwen.",
       {"qwen", "mixtral"}},
  };
  rules.insert(rules.end(), own.begin(), own.end());
  return {{.name = "moe_layer",
           .doc = "hidden, cos and sin to hidden: one decoder layer with a mixture of experts.",
           .options = rules,
           .build = moe_layer,
           .class_name = moe_layer_class}};
}

}  // namespace fsdp
