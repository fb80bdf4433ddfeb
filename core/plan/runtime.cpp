#include "core/plan/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp {

namespace {

struct Flavor {
  std::string_view name;
  Implementations implementations;
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
};

}  // namespace

std::vector<std::string_view> flavors() {
  std::vector<std::string_view> names;
  for (const Flavor& flavor : kFlavors) names.push_back(flavor.name);
  return names;
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
