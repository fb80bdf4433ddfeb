#include "core/runtime.h"

namespace fsdp {

Result<Runtime> runtime_of_flavour(const std::string& flavour) {
  Runtime runtime;
  runtime.flavour = flavour;
  Implementations& use = runtime.implementations;
  if (flavour == "transformers") {
    // modeling_llama.py and its kin: LlamaRMSNorm, apply_rotary_pos_emb, sdpa_attention_forward, ForCausalLMLoss.
    return runtime;
  }
  if (flavour == "transformers-repeat-kv") {
    // sdpa_attention_forward repeats K and V when it may not ask for enable_gqa (a mask, or older versions).
    use.repeat_kv = true;
    return runtime;
  }
  if (flavour == "torchtitan") {
    use.rms_norm = RmsNormImplementation::Fused;
    use.rotary = RotaryImplementation::Complex;
    use.use_cache = false;
    // torchtitan/train.py: pred = model(inputs); loss = self.loss_fn(pred, labels); del pred; loss.backward().
    use.loss_after_root = true;
    return runtime;
  }
  return failure("runtime", "\"" + flavour + "\" is not a known flavor.",
                 "Write transformers, transformers-repeat-kv or torchtitan.");
}

}  // namespace fsdp
