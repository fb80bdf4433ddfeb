// What transformers' Trainer refuses or overrides.
//
// Sources: transformers 5.24.0, trainer.py (create_accelerator_and_postprocess), training_args.py (_validate_args;
// mixed_precision: fp16, then bf16, then accelerate's), trainer_utils.py (validate_quantization_for_training);
// core/plan/optimizer_table.h for optimizers that fail on DTensors, each of which was run.

#include <fmt/format.h>

#include <string>

#include "core/plan/optimizer_table.h"
#include "planner/check/rules.h"

namespace fsdp::planner {

void find_two_checkpointings(const CheckedRun& run, Reporter& report) {
  const Setting of_fsdp = run.fsdp("activation_checkpointing");
  if (!run.uses_fsdp() || !of_fsdp.is_on() || !run.checkpoints()) return;
  const Setting own = run.checkpointing();
  Finding& found = report.add(Severity::Error, own ? own : of_fsdp,
                              own ? "The Trainer refuses it beside fsdp_activation_checkpointing."
                                  : "The Trainer refuses it beside gradient_checkpointing, which TRL switches on.");
  replace(found, own ? own : of_fsdp, "false");
}

void find_optimizers_without_dtensors(const CheckedRun& run, Reporter& report) {
  const Setting optim = run.trainer("optim");
  if (run.fsdp_version() != 2 || !optim) return;
  const std::string name = optim.is("adamw_8bit") ? "adamw_bnb_8bit" : optim.text();
  for (const OptimizerRow& row : kOptimizerRows) {
    if (row.hugging_face != name || row.on_dtensors.why.empty()) continue;
    Finding& found = report.add(Severity::Error, optim,
                                fmt::format("The first step of {} fails: {} ({}).", row.class_name, row.on_dtensors.why,
                                            row.library.empty() ? "PyTorch 2.11" : row.library));
    replace(found, optim, row.coded.bits == 8 || row.pages_states ? "adamw_torch_8bit" : "adamw_torch_fused");
    return;
  }
}

void find_fp16_and_bf16(const CheckedRun& run, Reporter& report) {
  const Setting fp16 = run.trainer("fp16");
  if (!fp16.is_on() || !run.trainer("bf16").is_on()) return;
  replace(report.add(Severity::Error, fp16, "The Trainer refuses fp16 beside bf16."), fp16, "false");
}

void find_overridden_precision(const CheckedRun& run, Reporter& report) {
  const Setting launch = run.launch("mixed_precision");
  if (!launch || launch.value->type == JsonType::Bool || !run.has(ConfigurationKind::Trainer)) return;
  const std::string word = launch.text();
  const Setting bf16 = run.trainer("bf16");
  const std::string runs = run.mixed_precision();
  if (word != runs) {
    const bool is_default = !bf16 && runs == "bf16";
    advise(report.add(Severity::Warning, launch,
                      fmt::format("It runs in {}: the Trainer's {} counts before mixed_precision: {}{}.", runs, runs,
                                  word, is_default ? ", and TRL switches it on" : "")),
           fmt::format("Write mixed_precision: {}, or {}: false.", runs, runs));
  } else if (bf16 && bf16.flag() == false && word == "bf16") {
    advise(report.add(Severity::Warning, bf16,
                      "It runs in bf16: mixed_precision of the launch counts where the Trainer asks for none."),
           "Write bf16: true, or mixed_precision: 'no' in the launch configuration.");
  }
}

void find_save_only_model(const CheckedRun& run, Reporter& report) {
  const Setting only = run.trainer("save_only_model");
  if (!only.is_on() || (!run.uses_fsdp() && !run.uses_deepspeed())) return;
  if (run.trainer("load_best_model_at_end").is_on()) {
    replace(report.add(Severity::Error, only,
                       "The Trainer refuses it beside load_best_model_at_end under FSDP and "
                       "DeepSpeed."),
            only, "false");
    return;
  }
  if (!run.uses_fsdp()) return;
  const Setting type = run.fsdp("state_dict_type");
  const bool is_sharded =
      type ? type.upper() == "SHARDED_STATE_DICT" || type.is("3") : run.fsdp_version() == 2 && !run.trainer_has_fsdp();
  if (!is_sharded) return;
  Finding& found = report.add(Severity::Error, only,
                              type ? "The Trainer refuses it with SHARDED_STATE_DICT."
                                   : "The Trainer refuses it with SHARDED_STATE_DICT, accelerate's default for FSDP2.");
  advise(found, "Write fsdp_state_dict_type: FULL_STATE_DICT, or save_only_model: false.");
}

void find_best_model_strategies(const CheckedRun& run, Reporter& report) {
  const Setting best = run.trainer("load_best_model_at_end");
  const Setting save = run.trainer("save_strategy");
  const Setting evaluate = run.trainer("eval_strategy");
  if (save.is("false") || evaluate.is("false")) return;  // unquoted-no
  const std::string saves = save ? save.text() : "steps";
  const std::string evaluates = evaluate ? evaluate.text() : "no";
  if (!best.is_on() || saves == "best" || saves == evaluates) return;
  advise(
      report.add(Severity::Error, best,
                 fmt::format("The Trainer refuses it, because it evaluates by {} and saves by {}.", evaluates, saves)),
      fmt::format("Write eval_strategy: {}.", saves == "no" ? "steps, and save_strategy: steps" : saves));
}

void find_auto_batch_under_zero3(const CheckedRun& run, Reporter& report) {
  const Setting finds = run.trainer("auto_find_batch_size");
  if (!finds.is_on() || run.zero_stage() != 3) return;
  replace(report.add(Severity::Error, finds, "The Trainer refuses it under ZeRO-3."), finds, "false");
}

void find_quantized_without_adapters(const CheckedRun& run, Reporter& report) {
  if (!run.is_trl || run.trains_adapters()) return;
  for (const std::string_view key : {"load_in_4bit", "load_in_8bit"}) {
    const Setting bits = run.trainer(key);
    if (!bits.is_on()) continue;
    advise(report.add(Severity::Error, bits, "The Trainer refuses to train a quantized model without adapters."),
           "Add use_peft: true.");
  }
}

}  // namespace fsdp::planner
