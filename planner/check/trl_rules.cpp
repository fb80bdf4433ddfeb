// What TRL's SFTTrainer refuses.
//
// Sources: trl 1.16.0, trainer/sft_trainer.py (SFTTrainer.__init__), trainer/sft_config.py (__post_init__).

#include <fmt/format.h>

#include <string>

#include "planner/check/rules.h"

namespace fsdp::planner {

namespace {

/// Whether a layer writes null for a key, which other settings take for unset.
bool is_null(const CheckedRun& run, std::string_view key) {
  for (const JsonDocument* layer : run.layers_of(ConfigurationKind::Trainer)) {
    const JsonValue* value = layer->root.find(key);
    if (value == nullptr) continue;
    return value->type == JsonType::Null || value->text == "None" || value->text == "null" || value->text == "none";
  }
  return false;
}

Setting kwargs(const CheckedRun& run, std::string_view key) {
  for (const std::string_view section : {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"}) {
    if (const Setting found = run.trainer(fmt::format("{}.{}", section, key))) return found;
  }
  return run.trainer(fmt::format("gradient_checkpointing_kwargs.{}", key));
}

}  // namespace

void find_unbounded_padding_free(const CheckedRun& run, Reporter& report) {
  const Setting free = run.trainer("padding_free");
  if (!run.is_sft || !free.is_on() || run.trainer("packing").is_on() || is_null(run, "max_length")) return;
  advise(report.add(Severity::Error, free, "TRL refuses it without packing, because max_length would not be enforced."),
         "Write packing: true, or max_length: null.");
}

void find_refused_losses(const CheckedRun& run, Reporter& report) {
  const Setting loss = run.trainer("loss_type");
  if (!run.is_sft || !loss || loss.is("nll") || loss.is("dft")) return;
  if (loss.is("chunked_nll")) {
    replace(report.add(Severity::Note, loss, "chunked_nll is deprecated: nll computes the same in chunks."), loss,
            "nll");
  } else {
    replace(report.add(Severity::Error, loss, fmt::format("TRL refuses the loss {}.", loss.text())), loss, "nll");
  }
}

void find_liger_loss(const CheckedRun& run, Reporter& report) {
  const Setting liger = run.trainer("use_liger_kernel");
  const Setting fused = run.trainer("liger_kernel_config.fused_linear_cross_entropy");
  if (!run.is_sft || !liger.is_on()) return;
  if (fused.is_on()) {
    replace(report.add(Severity::Error, fused, "TRL refuses Liger's loss: its own replaces the model's forward."),
            fused, "false");
  } else {
    advise(report.add(Severity::Note, liger, "use_liger_kernel is deprecated, and Liger's loss stays off."),
           "Write model_init_kwargs: {use_kernels: true}.");
  }
}

void find_selective_checkpointing(const CheckedRun& run, Reporter& report) {
  const Setting selective = kwargs(run, "selective");
  if (!run.is_sft || !selective.is_on()) return;
  if (!run.checkpoints()) {
    advise(report.add(Severity::Error, selective, "TRL refuses it without gradient_checkpointing."),
           "Write gradient_checkpointing: true.");
  } else if (kwargs(run, "use_reentrant").is_on()) {
    const Setting reentrant = kwargs(run, "use_reentrant");
    replace(report.add(Severity::Error, reentrant, "TRL refuses it beside selective checkpoints."), reentrant, "false");
  } else if (run.trains_adapters() && run.zero_stage() == 3) {
    replace(report.add(Severity::Error, selective, "TRL refuses it with adapters under ZeRO-3."), selective, "false");
  }
}

void find_forced_reentrant(const CheckedRun& run, Reporter& report) {
  const Setting reentrant = kwargs(run, "use_reentrant");
  const bool is_forced = run.is_sft && run.trains_adapters() && run.zero_stage() == 3 && run.checkpoints();
  if (!is_forced || reentrant.flag() != false) return;
  replace(report.add(Severity::Warning, reentrant, "With adapters under ZeRO-3 TRL uses reentrant checkpoints anyway."),
          reentrant, "true");
}

void find_packing_under_context_parallel(const CheckedRun& run, Reporter& report) {
  const bool is_parallel = run.launch("parallelism_config.parallelism_config_cp_size").integer().value_or(1) > 1;
  if (!run.is_sft || !is_parallel) return;
  for (const std::string_view key : {"packing", "eval_packing"}) {
    const Setting packing = run.trainer(key);
    if (!packing.is_on()) continue;
    replace(report.add(Severity::Error, packing,
                       "TRL refuses it under context parallelism, where documents would attend to each other."),
            packing, "false");
  }
}

void find_adapter_on_head(const CheckedRun& run, Reporter& report) {
  const Setting targets = run.trainer("lora_target_modules");
  if (!run.is_sft || !run.trains_adapters() || !targets) return;
  bool has_head = targets.is("lm_head");
  for (const JsonValue& element : targets.value->elements) has_head = has_head || element.text == "lm_head";
  if (!has_head) return;
  advise(report.add(Severity::Error, targets, "TRL refuses adapters on lm_head, which its loss reads directly."),
         "Remove lm_head, or write it in lora_modules_to_save.");
}

}  // namespace fsdp::planner
