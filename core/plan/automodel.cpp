// What NeMo Automodel 0.7.0 makes of a model. Its registry has classes of its own for 71 architectures, which count
// before transformers' unless force_hf is true; three of them are predicted. FSDP2Config's policy computes in bfloat16
// and reduces in float32; on one GPU nothing is sharded, and no policy casts.
//
// Sources: nemo_automodel 0.7.0, _transformers/registry.py (MODEL_ARCH_MAPPING), _transformers/model_init.py
// (_restore_loaded_model_dtype), components/distributed/fsdp2.py (fsdp2_sharding_enabled),
// components/distributed/parallelizer.py (_should_use_hf_native_gradient_checkpointing).
//
// Not modeled: its other classes, and transformers' that were not compared; checkpoints of each module of a block,
// which those classes have; packed rows.

#include "core/plan/automodel.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"

namespace fsdp {

namespace {

constexpr std::string_view kUnknownAutomodelClasses[] = {
    "BagelForConditionalGeneration",
    "BagelForUnifiedMultimodal",
    "BaichuanForCausalLM",
    "BailingMoeV2ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV41ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DiffusionGemmaForBlockDiffusion",
    "Ernie4_5_MoeForCausalLM",
    "Gemma4AssistantForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "Glm5NextForConditionalGeneration",
    "GlmMoeDsaForCausalLM",
    "GptOssForCausalLM",
    "HYV3ForCausalLM",
    "HunyuanImage3ForCausalMM",
    "HyMT2ForCausalLM",
    "InklingForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    "KimiK25VLForConditionalGeneration",
    "KimiK3ForCausalLM",
    "KimiK3ForConditionalGeneration",
    "KimiLinear48BForCausalLM",
    "KimiVLForConditionalGeneration",
    "LLaVAOneVision1_5_ForConditionalGeneration",
    "LagunaForCausalLM",
    "LlamaBidirectionalForSequenceClassification",
    "LlamaBidirectionalModel",
    "LlamaNemotronVLModel",
    "MiMoV25ForCausalLM",
    "MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM",
    "MiniMaxM2ForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration",
    "Ministral3BidirectionalModel",
    "Ministral3ForCausalLM",
    "Mistral3BidirectionalModel",
    "Mistral3FP8VLMForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Mistral3VLBidirectionalForSequenceClassification",
    "Mistral4ForCausalLM",
    "MuseGlimmerForConditionalGeneration",
    "NemotronHForCausalLM",
    "NemotronH_Nano_Omni_Reasoning_V3",
    "NemotronH_Omni_Reasoning_V3",
    "NemotronParseForConditionalGeneration",
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniThinkerForConditionalGeneration",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3RerankerForCausalReranking",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_8_FlashNextForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
    "Step3p5ForCausalLM",
    "Step3p6ForConditionalGeneration",
    "Step3p7ForConditionalGeneration",
};

constexpr std::string_view kAutomodelClasses[] = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};

/// transformers' classes that were compared with a run of Automodel.
struct ComparedClass {
  std::string_view name;
  bool pads = true;  ///< Also with rows that end in padding. Heads that turn in part came out 2 % low there.
};
constexpr ComparedClass kComparedClasses[] = {
    {"Cohere2ForCausalLM"},     {"Ernie4_5ForCausalLM"},    {"Gemma3ForCausalLM"},     {"GemmaForCausalLM"},
    {"Glm4ForCausalLM", false}, {"GraniteForCausalLM"},     {"LlamaForCausalLM"},      {"MistralForCausalLM"},
    {"Olmo2ForCausalLM"},       {"Phi3ForCausalLM", false}, {"PhiForCausalLM", false}, {"Qwen2ForCausalLM"},
    {"Qwen3ForCausalLM"},       {"SeedOssForCausalLM"},     {"Starcoder2ForCausalLM"},
};

Error automodel_error(std::string_view where, std::string what, std::string hint) {
  return {std::string(where), std::move(what), std::move(hint)};
}

std::optional<Error> compared_class_misfit(const Plan& plan, const std::string& architecture) {
  const auto* const found = std::find_if(std::begin(kComparedClasses), std::end(kComparedClasses),
                                         [&](const ComparedClass& each) { return each.name == architecture; });
  if (found == std::end(kComparedClasses)) {
    return automodel_error("--flavor", fmt::format("{} was not compared with a run of NeMo Automodel.", architecture),
                           "Rehearse it: fsdp-plan rehearse -- COMMAND.");
  }
  if (plan.checkpointing.recomputes() && plan.checkpointing.entries.front().mode != CheckpointMode::Full) {
    return automodel_error("--activation-checkpointing",
                           "Selective checkpoints were not compared with a run of NeMo Automodel.",
                           "Write full or none.");
  }
  if (found->pads || !plan.runtime.implementations.padding_mask) return std::nullopt;
  return automodel_error("--padding-mask",
                         fmt::format("Rows of {} that end in padding are not predicted.", architecture),
                         "Plan one row at a time: local_batch_size: 1.");
}

std::optional<Error> automodel_class_misfit(const Plan& plan, const std::string& architecture) {
  if (!plan.runtime.implementations.automodel_decoders) return compared_class_misfit(plan, architecture);
  if (std::find(std::begin(kUnknownAutomodelClasses), std::end(kUnknownAutomodelClasses), architecture) !=
      std::end(kUnknownAutomodelClasses)) {
    return automodel_error(
        "--flavor",
        fmt::format("NeMo Automodel trains {} by a class of its own, which is not predicted.", architecture),
        "Rehearse it: fsdp-plan rehearse -- COMMAND. With force_hf: true it trains transformers' class.");
  }
  if (!plan.checkpointing.recomputes() || !is_class_of_automodel(architecture)) {
    return compared_class_misfit(plan, architecture);
  }
  return automodel_error(
      "--activation-checkpointing",
      fmt::format("NeMo Automodel's own {} has a checkpoint around each module of a block, which is not "
                  "predicted.",
                  architecture),
      "Write none, or force_hf: true in the file, with which blocks are checkpointed.");
}

/// A checkpoint in another dtype than bfloat16: with "auto" its weights stay so, and an fp32 one does even if bfloat16
/// is asked for.
std::optional<Error> automodel_dtype_misfit(const Plan& plan, const Model& model) {
  if (plan.parameter_dtype != Dtype::BFloat16 || model.parameters.empty()) return std::nullopt;
  const Dtype stored = model.parameters.front().dtype;
  if (stored == Dtype::BFloat16) return std::nullopt;
  return automodel_error(
      "--precision",
      fmt::format("The checkpoint is in {}, in which NeMo Automodel keeps the weights.", name_of(stored)),
      "Write torch_dtype: float32 in the file, or --precision mixed.");
}

}  // namespace

std::span<const std::string_view> unknown_classes_of_automodel() {
  return kUnknownAutomodelClasses;
}

bool is_class_of_automodel(std::string_view architecture) {
  return std::find(std::begin(kAutomodelClasses), std::end(kAutomodelClasses), architecture) !=
         std::end(kAutomodelClasses);
}

std::optional<Error> automodel_misfit(const Plan& plan, const Model& model) {
  if (!is_of_automodel(plan.runtime.flavor)) return std::nullopt;
  const bool is_alone = plan.mesh.dp_shard() * plan.mesh.dp_replicate() == 1;
  const bool is_sharded = plan.runtime.framework == Framework::Fsdp2;
  if (is_alone && is_sharded) {
    return automodel_error("--runtime", "NeMo Automodel does not shard a model on one GPU, so that no policy casts it.",
                           "Plan with --runtime ddp, which leaves the model as it is there.");
  }
  if (!is_sharded && !(is_alone && plan.runtime.framework == Framework::Ddp)) {
    return automodel_error("--runtime",
                           "NeMo Automodel's training is predicted under FSDP2, and on one GPU without it.",
                           "Plan with --runtime fsdp2.");
  }
  if (is_alone && plan.accumulation > 1) {
    return automodel_error(
        "--accumulate", "Micro-batches on one GPU were 7 % off in what is reserved in a first step of NeMo Automodel.",
        "Write global_batch_size: as local_batch_size, or plan for more GPUs.");
  }
  if (plan.liger) {
    return automodel_error("--liger", "Liger's kernels were not compared with a run of NeMo Automodel.",
                           "Leave it out.");
  }
  if (plan.packing) {
    return automodel_error("--packing", "Packed rows of NeMo Automodel are not predicted.", "Leave it out.");
  }
  if (plan.mixed_precision.autocast) {
    return automodel_error("--precision",
                           "NeMo Automodel computes by FSDP2's policy; autocast was not compared with a run.",
                           "Write bf16 or mixed.");
  }
  if (auto misfit = automodel_class_misfit(plan, model.modules.front().class_name)) return misfit;
  return automodel_dtype_misfit(plan, model);
}

}  // namespace fsdp
