// What axolotl makes of `adapter: lora` and `adapter: qlora`.
//
// PEFT's layers on the linear layers of the model, in float32 beside a base in bfloat16, which qlora packs in four bits
// with double quantization, stored as bfloat16. axolotl always calls enable_input_require_grads. If no key of its fused
// kernels is given, these switch themselves on, except under FSDP1 and with trust_remote_code.
//
// Sources: axolotl 0.19.0, loaders/adapter.py (_build_peft_lora_config, load_adapter), loaders/model.py
// (_set_quantization_config), utils/schemas/config.py (check_auto_enable_lora_kernels, check_multigpu_lora_kernels),
// utils/schemas/validation.py (check_fsdp2_cpu_ram_efficient_loading_w_4bit); peft 0.20.0.
//
// Not modeled: fused kernels, bases in eight bits.

#include "planner/jobs/axolotl_adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "planner/jobs/job_builder.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kAdapter = "adapter";
constexpr std::string_view kTargets = "lora_target_modules";
constexpr std::string_view kAllTargets = "lora_target_linear";
constexpr std::string_view kWholeModules = "lora_modules_to_save";
constexpr std::string_view kFourBitKey = "load_in_4bit";
constexpr std::string_view kKernelKeys[] = {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel",
                                            "lora_embedding_kernel"};
/// Keys that mean nothing without an adapter.
constexpr std::string_view kKeysOfAdapters[] = {"lora_r",
                                                "lora_alpha",
                                                "lora_dropout",
                                                "lora_target_modules",
                                                "lora_target_linear",
                                                "lora_modules_to_save",
                                                "lora_model_dir",
                                                "peft_use_dora",
                                                "peft_use_rslora",
                                                "loraplus_lr_ratio",
                                                "peft_init_lora_weights"};
/// Keys that change which layers are adapted, or how.
struct OtherAdapters {
  std::string_view key;
  std::string_view what;
};
constexpr OtherAdapters kOtherAdapters[] = {
    {"lora_target_parameters", "Adapters of parameters of experts are not predicted."},
    {"lora_rank_pattern", "Adapters of several ranks are not predicted."},
    {"lora_alpha_pattern", "Adapters of several scalings are not predicted."},
    {"peft_layers_to_transform", "Adapters in some of the blocks are not predicted."},
    {"peft_layers_pattern", "Adapters in some of the blocks are not predicted."},
    {"peft_layer_replication", "Replicated layers are not predicted."},
    {"peft_trainable_token_indices", "Trained rows of an embedding are not predicted."},
    {"peft_init_lora_weights", "Other initial values of adapters were not compared with a run."},
    {"lora_model_dir", "The file of the saved adapter, and not this one, says its rank and its layers."},
    {"loraplus_lr_ratio", "LoRA+ is an optimizer with groups of parameters, which is not predicted."},
    {"bnb_config_kwargs", "Other arguments of BitsAndBytesConfig are not predicted."},
    {"peft", "LoftQ is not predicted."},
};

bool is_switched_on(JobKeys& keys, std::string_view key) {
  return keys.flag(key).value_or(false);
}

std::string targets_of(JobKeys& keys) {
  const std::vector<std::string> named = keys.words(kTargets);
  if (is_switched_on(keys, kAllTargets)) {
    const auto is_end = [](const std::string& name) { return name == "lm_head" || name == "embed_tokens"; };
    if (std::any_of(named.begin(), named.end(), is_end)) {
      keys.refuse(kTargets, "All linear layers and an end of the model are not predicted together.",
                  "Write lora_modules_to_save, or name all layers.");
    }
    return "all-linear";
  }
  if (named.empty()) keys.refuse(kTargets, "No layer is named.", "Write lora_target_linear: true.");
  const auto is_pattern = [](const std::string& name) { return name.find_first_of("\\[(*|+?") != std::string::npos; };
  if (std::any_of(named.begin(), named.end(), is_pattern)) {
    keys.refuse(kTargets, "Patterns of names are not predicted.",
                "Write a list of names, or lora_target_linear: true.");
  }
  return fmt::format("{}", fmt::join(named, "+"));
}

void refuse_kernels(JobKeys& keys, AxolotlFsdp fsdp) {
  bool is_said = false;
  for (const std::string_view key : kKernelKeys) {
    is_said = is_said || keys.has(key);
    if (!is_switched_on(keys, key)) continue;
    return keys.refuse(key, "axolotl's fused kernels of adapters are not predicted.", "Write false.");
  }
  if (is_said || fsdp == AxolotlFsdp::Version1 || is_switched_on(keys, "trust_remote_code")) return;
  keys.refuse(kAdapter, "axolotl switches on fused kernels of its own, which are not predicted.",
              "Write lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel and lora_embedding_kernel: false.");
}

void say_base(JobKeys& keys, AxolotlFsdp fsdp, bool is_qlora, Job& job) {
  if (is_switched_on(keys, "load_in_8bit")) {
    keys.refuse("load_in_8bit", "Bases in eight bits are not predicted.",
                "Write adapter: qlora and load_in_4bit: true.");
  }
  if (!is_qlora) {
    if (is_switched_on(keys, kFourBitKey)) {
      keys.refuse(kFourBitKey, "axolotl packs the base in four bits with adapter: qlora alone.",
                  "Write adapter: qlora.");
    }
    return;
  }
  if (!is_switched_on(keys, kFourBitKey)) {
    return keys.refuse(kAdapter, "qlora needs a base in four bits.", "Write load_in_4bit: true, or adapter: lora.");
  }
  say(job, PlanChoice::Quantize, "nf4,double", keys.where(kFourBitKey));
  constexpr std::string_view kLoadingKey = "fsdp_config.cpu_ram_efficient_loading";
  if (fsdp == AxolotlFsdp::Version2 && is_switched_on(keys, kLoadingKey)) {
    keys.refuse(kLoadingKey, "axolotl 0.19 refuses it under FSDP2 beside load_in_4bit.", "Write false.");
  }
}

}  // namespace

bool has_adapters(const JobKeys& keys) {
  return keys.has(kAdapter);
}

void say_adapters(JobKeys& keys, AxolotlFsdp fsdp, Job& job) {
  const std::string adapter = keys.word(kAdapter).value_or("");
  if (!has_adapters(keys)) {
    for (const std::string_view key : kKeysOfAdapters) {
      if (keys.has(key)) job.notes.push_back(fmt::format("{} is ignored: adapter is not set.", key));
    }
    for (const std::string_view key : {kFourBitKey, std::string_view("load_in_8bit")}) {
      if (is_switched_on(keys, key)) {
        keys.refuse(key, "A quantized base has no adapters to train.", "Write adapter: qlora.");
      }
    }
    return;
  }
  if (adapter != "lora" && adapter != "qlora") {
    return keys.refuse(kAdapter, fmt::format("Adapters of {} are not predicted.", adapter), "Write lora or qlora.");
  }
  for (const auto& [key, what] : kOtherAdapters) {
    if (keys.has(key)) keys.refuse(key, std::string(what));
  }
  if (is_switched_on(keys, "peft_use_dora")) keys.refuse("peft_use_dora", "DoRA is not predicted.");
  if (!keys.flag("peft_autocast_adapter_dtype").value_or(true)) {
    keys.refuse("peft_autocast_adapter_dtype", "Adapters in bfloat16 were not compared with a run.", "Remove it.");
  }
  for (const std::string_view key : {"lora_r", "lora_alpha"}) {
    if (!keys.has(key)) keys.refuse(key, "It has no default.", fmt::format("Write {}.", key));
  }
  std::string text =
      fmt::format("r={},alpha={:g},dropout={:g},targets={}", keys.integer("lora_r").value_or(1),
                  keys.number("lora_alpha").value_or(1), keys.number("lora_dropout").value_or(0), targets_of(keys));
  if (!keys.words(kWholeModules).empty()) {
    keys.refuse(kWholeModules, "Modules that are trained whole beside adapters were not compared with a run.");
  }
  say(job, PlanChoice::Lora, text + ",input_grads=yes", keys.where(kAdapter));
  refuse_kernels(keys, fsdp);
  say_base(keys, fsdp, adapter == "qlora", job);
}

}  // namespace fsdp::planner
