#include "core/plan/runtime.h"

namespace fsdp {

Result<Runtime> runtime_of_flavor(const std::string& flavor) {
  Runtime runtime;
  runtime.flavor = flavor;
  Implementations& use = runtime.implementations;
  if (flavor == "transformers") {
    // modeling_llama.py and its kin: LlamaRMSNorm, apply_rotary_pos_emb, sdpa_attention_forward, ForCausalLMLoss.
    return runtime;
  }
  if (flavor == "transformers-repeat-kv") {
    // sdpa_attention_forward repeats K and V when it may not ask for enable_gqa (a mask, or older versions).
    use.repeat_kv = true;
    return runtime;
  }
  if (flavor == "torchtitan") {
    use.rms_norm = RmsNormImplementation::Fused;
    use.rotary = RotaryImplementation::Complex;
    use.use_cache = false;
    // torchtitan/train.py: pred = model(inputs); loss = self.loss_fn(pred, labels); del pred; loss.backward().
    use.loss_after_root = true;
    return runtime;
  }
  return failure("runtime", "\"" + flavor + "\" is not a known flavor.",
                 "Write transformers, transformers-repeat-kv or torchtitan.");
}

}  // namespace fsdp
