// Source: torchtitan 0.2.2, models/llama3/model/model.py and models/qwen3/model/model.py; transformers 5.24,
// models/llama/modeling_llama.py.

#include "planner/trainers/titan_layers.h"

#include <algorithm>
#include <array>

namespace fsdp::planner {

namespace {

struct LayerName {
  std::string_view titan;
  std::string_view ours;
};
constexpr std::array kLayerNames = {
    LayerName{"output", "lm_head"},
    LayerName{"attention", "self_attn"},
    LayerName{"attention.wq", "self_attn.q_proj"},
    LayerName{"attention.wk", "self_attn.k_proj"},
    LayerName{"attention.wv", "self_attn.v_proj"},
    LayerName{"attention.wo", "self_attn.o_proj"},
    LayerName{"feed_forward", "mlp"},
    LayerName{"feed_forward.w1", "mlp.gate_proj"},
    LayerName{"feed_forward.w2", "mlp.down_proj"},
    LayerName{"feed_forward.w3", "mlp.up_proj"},
    LayerName{"wq", "q_proj"},
    LayerName{"wk", "k_proj"},
    LayerName{"wv", "v_proj"},
    LayerName{"wo", "o_proj"},
    LayerName{"w1", "gate_proj"},
    LayerName{"w2", "down_proj"},
    LayerName{"w3", "up_proj"},
};

std::optional<std::string_view> other_name(std::string_view name, std::string_view LayerName::*from,
                                           std::string_view LayerName::*to) {
  const auto* const known =
      std::find_if(kLayerNames.begin(), kLayerNames.end(), [&](const LayerName& each) { return each.*from == name; });
  return known == kLayerNames.end() ? std::nullopt : std::optional(known->*to);
}

}  // namespace

std::optional<std::string_view> layer_in_transformers(std::string_view titan) {
  return other_name(titan, &LayerName::titan, &LayerName::ours);
}

std::optional<std::string_view> layer_in_torchtitan(std::string_view ours) {
  return other_name(ours, &LayerName::ours, &LayerName::titan);
}

}  // namespace fsdp::planner
