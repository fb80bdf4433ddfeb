#include "core/plan/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp {

namespace {

struct Flavor {
  std::string_view name;
  Implementations implementations;
  FlavorHabits habits = {};
};

constexpr Flavor kFlavors[] = {
    // modeling_llama.py and its kin: LlamaRMSNorm, apply_rotary_pos_emb, sdpa_attention_forward, ForCausalLMLoss.
    {"transformers", {}},
    // sdpa_attention_forward repeats K and V when it may not ask for enable_gqa (a mask, or older versions).
    {"transformers-repeat-kv", {.repeat_kv = true}},
    // torchtitan/train.py: pred = model(inputs); loss = self.loss_fn(pred, labels); del pred; loss.backward().
    {"torchtitan",
     {.rms_norm = RmsNormImplementation::Fused,
      .rotary = RotaryImplementation::Complex,
      .loss_after_root = true,
      .use_cache = false}},
    // torchtitan 0.3.0: models/common/attention.py (FusedQKVLinear), models/common/rope.py, distributed/fsdp.py and
    // distributed/activation_checkpoint.py.
    {"torchtitan-0.3",
     {.rms_norm = RmsNormImplementation::Fused,
      .rotary = RotaryImplementation::Complex,
      .titan_attention = true,
      .loss_after_root = true,
      .use_cache = false},
     {.early_stop = false, .cast_forward_inputs = false}},
    // nemo-automodel 0.7.0: components/models/ (llama, qwen2, qwen3), components/distributed/config.py (FSDP2Config),
    // components/training/utils.py (_clip_grad_norm_impl), recipes/llm/train_ft.py: out = model(**batch); local_loss =
    // calculate_loss(loss_fn, logits=out.logits); del out; local_loss.backward().
    {"automodel",
     {.automodel_decoders = true, .lora_in_one_op = true, .norm_in_float64 = true, .loss_after_root = true},
     {.cast_forward_inputs = false, .decays_weights = false}},
    // The same with force_hf: true, transformers' classes for all models.
    {"automodel-hf",
     {.lora_in_one_op = true, .norm_in_float64 = true, .loss_after_root = true},
     {.cast_forward_inputs = false, .decays_weights = false}},
};

}  // namespace

std::vector<std::string_view> flavors() {
  std::vector<std::string_view> names;
  for (const Flavor& flavor : kFlavors) names.push_back(flavor.name);
  return names;
}

FlavorHabits habits_of_flavor(std::string_view flavor) {
  for (const Flavor& known : kFlavors) {
    if (known.name == flavor) return known.habits;
  }
  return {};
}

bool is_of_torchtitan(std::string_view flavor) {
  return flavor.starts_with("torchtitan");
}

bool is_of_automodel(std::string_view flavor) {
  return flavor.starts_with("automodel");
}

Result<Runtime> runtime_of_flavor(const std::string& flavor) {
  for (const Flavor& known : kFlavors) {
    if (known.name != flavor) continue;
    Runtime runtime;
    runtime.flavor = flavor;
    runtime.implementations = known.implementations;
    return runtime;
  }
  const std::vector<std::string_view> names = flavors();
  return failure("runtime", fmt::format("\"{}\" is not a known flavor.", flavor),
                 fmt::format("Write {} or {}.", fmt::join(names.begin(), names.end() - 1, ", "), names.back()));
}

}  // namespace fsdp
