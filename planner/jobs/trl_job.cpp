// What TRL's SFTTrainer and DPOTrainer make of their arguments. A line counts before a file, a file before the classes'
// defaults, and the Trainer's bf16 and fp16 before accelerate's mixed_precision.
//
// Rows of a batch are as long as `max_length` cuts the longest; the others end in padding, of which the model makes a
// mask if the batch has several rows. `packing` fills rows of that length with documents, and the collator joins the
// rows of a batch to one. The loss never makes all logits. A pair of DPO is two rows, and the reference model reads
// them after the policy.
//
// Sources: trl 1.16.0, scripts/sft.py, scripts/utils.py (TrlParser), trainer/sft_trainer.py, dpo_trainer.py,
// base_config.py
// (__post_init__), trainer/utils.py (get_peft_config, get_quantization_config, pack_dataset); transformers 5.24.0,
// training_args.py (__post_init__, _process_fsdp_args), trainer.py; peft 0.21.2, utils/constants.py
// (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING).
//
// Not modeled: labels that are ignored, with which the chunks of the loss are fewer; images.

#include "planner/jobs/trl_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/base/rounding.h"
#include "planner/jobs/job_reader.h"
#include "planner/jobs/trl_keys.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kBatch = "per_device_train_batch_size";
constexpr std::int64_t kBatchUnset = 8;
constexpr std::int64_t kLengthUnset = 1024;

class TrlReader : JobReader {
 public:
  TrlReader(JobKeys& keys, const AccelerateJob& accelerate, TrlScript script, Job& job)
      : JobReader(keys, job), accelerate_(accelerate), is_dpo_(script == TrlScript::Dpo) {}

  void read() {
    const std::optional<std::string> model = keys_.word("model_name_or_path");
    if (!model) keys_.refuse("model_name_or_path", "The model is not named.", "Write model_name_or_path.");
    job_.model = model.value_or("");
    say_precision();
    say_adapters();
    say_batch();
    say_optimizer(keys_, "optim", "adamw_torch_fused", job_);
    say_rest();
    say_checkpoints();
    if (is_dpo_) say_reference();
    if (!accelerate_.is_fsdp2) say_ddp_arguments(finds_unused());
  }

  /// True if a model of its own stays beside the trained one.
  bool keeps_reference() {
    return is_dpo_ && !has_adapters() && !keys_.flag("precompute_ref_log_probs").value_or(false);
  }

 private:
  /// The weights' dtype and the Trainer's mixed precision.
  void say_precision() {
    const bool fp16 = keys_.flag("fp16").value_or(false);
    const bool bf16 = keys_.flag("bf16").value_or(!fp16);
    const std::string of_launch = accelerate_.precision.empty() ? "no" : accelerate_.precision;
    const std::string mixed = fp16 ? "fp16" : bf16 ? "bf16" : of_launch;
    if ((fp16 || bf16) && accelerate_.precision != mixed && !accelerate_.precision.empty()) {
      job_.notes.push_back(fmt::format("{} of the Trainer counts before mixed_precision: {} of the launch.", mixed,
                                       accelerate_.precision));
    }
    const std::string dtype = keys_.word("dtype").value_or("float32");
    if (mixed == "no" && dtype == "bfloat16" && has_adapters()) {
      return keys_.refuse("dtype",
                          "Adapters, which PEFT keeps in float32, beside a base in bfloat16 and without mixed "
                          "precision are not predicted.");
    }
    if (mixed == "no") {
      if (dtype == "bfloat16") return add(PlanChoice::Precision, "bf16", "dtype");
      if (dtype == "float32") return add(PlanChoice::Precision, "fp32", "dtype");
      return keys_.refuse("dtype", fmt::format("Weights in {} without mixed precision are not predicted.", dtype));
    }
    if (mixed != "bf16") return keys_.refuse("fp16", fmt::format("Training in {} is not predicted.", mixed));
    if (!accelerate_.is_fsdp2) return say_autocast(dtype);
    if (dtype == "auto" || dtype == "float16") {
      return keys_.refuse("dtype", fmt::format("A model that is loaded in \"{}\" is not predicted.", dtype),
                          "Write bfloat16 or float32.");
    }
    add(PlanChoice::Precision, "mixed", "bf16");
    // accelerate's bf16 is the dtype of parameters, reductions and buffers.
    add(PlanChoice::ReduceDtype, "bfloat16", "bf16");
  }

  /// The model that DPO compares with. With adapters it is the base without them.
  void say_reference() {
    if (has_adapters()) {
      job_.notes.emplace_back(
          "The reference is the base without its adapters, whose second forward is not in the step's time.");
      return;
    }
    if (!keeps_reference()) return;
    const bool is_wide = keys_.word("dtype").value_or("float32") == "float32";
    add(PlanChoice::Also, job_.model + (is_wide ? ",dtype=fp32" : ""), "model_name_or_path");
  }

  bool checkpoints() { return keys_.flag("gradient_checkpointing").value_or(true); }

  /// DDP looks for unused parameters of whatever is no model of transformers, and of a model without checkpoints.
  bool finds_unused() { return has_adapters() || !checkpoints(); }

  /// Autocast in bfloat16 around weights in `dtype`. It casts nothing if all of them are in bfloat16: so are the
  /// adapters of a base in four bits, which TRL converts.
  void say_autocast(const std::string& dtype) {
    if (dtype != "bfloat16" && dtype != "float32") {
      return keys_.refuse("dtype", fmt::format("A model that is loaded in \"{}\" is not predicted.", dtype),
                          "Write bfloat16 or float32.");
    }
    const bool is_wide = has_adapters() ? !keys_.flag("load_in_4bit").value_or(false) : dtype == "float32";
    add(PlanChoice::Precision, is_wide ? "accelerate" : "bf16", "bf16");
  }

  double adapter_dropout() {
    const bool is_off = is_dpo_ && keys_.flag("disable_dropout").value_or(true);
    return is_off ? 0 : keys_.number("lora_dropout").value_or(0.05);
  }

  bool has_adapters() { return keys_.flag("use_peft").value_or(false); }

  void say_adapters() {
    const bool is_in_four_bits = keys_.flag("load_in_4bit").value_or(false);
    if (!has_adapters()) {
      if (is_in_four_bits)
        keys_.refuse("load_in_4bit", "A base in four bits has no adapters to train.", "Add use_peft: true.");
      return;
    }
    std::vector<std::string> targets = keys_.words("lora_target_modules");
    if (targets.empty()) {
      targets = {"q_proj", "v_proj"};
      job_.notes.emplace_back("Adapters are on q_proj and v_proj, PEFT's default for most decoders.");
    }
    std::string text = fmt::format("r={},alpha={:g},dropout={:g},targets={}", keys_.integer("lora_r").value_or(16),
                                   keys_.number("lora_alpha").value_or(32), adapter_dropout(), fmt::join(targets, "+"));
    const std::vector<std::string> whole = keys_.words("lora_modules_to_save");
    if (!whole.empty()) text += fmt::format(",modules_to_save={}", fmt::join(whole, "+"));
    // TRL then calls enable_input_require_grads.
    if (checkpoints()) text += ",input_grads=yes";
    const bool is_wide = !is_in_four_bits && keys_.word("dtype").value_or("float32") == "float32";
    if (is_wide) text += ",base=float32";
    add(PlanChoice::Lora, std::move(text), "use_peft");
    if (accelerate_.is_fsdp2) {
      // accelerate makes the head of a model with adapters a unit of its own, which no forward enters.
      keys_.refuse("use_peft",
                   "Under FSDP2 TRL's loss gathers the frozen head by itself (DTensor.full_tensor), which is not "
                   "predicted.");
    }
    if (is_in_four_bits) say_quantized_base();
    if (is_wide) {
      job_.notes.emplace_back("The frozen base is loaded in float32, TRL's default: dtype: bfloat16 halves it.");
    }
  }

  void say_quantized_base() {
    std::string text = keys_.word("bnb_4bit_quant_type").value_or("nf4");
    if (keys_.flag("use_bnb_nested_quant").value_or(false)) text += ",double";
    const std::string storage = keys_.word("bnb_4bit_quant_storage").value_or("uint8");
    if (storage == "uint8") text += ",uint8";
    if (storage != "uint8" && storage != "bfloat16") {
      keys_.refuse("bnb_4bit_quant_storage", fmt::format("A base that is stored as {} is not predicted.", storage),
                   "Write bfloat16, which FSDP shards.");
    }
    add(PlanChoice::Quantize, std::move(text), "load_in_4bit");
  }

  void say_batch() {
    const std::int64_t batch = keys_.integer(kBatch).value_or(kBatchUnset);
    const std::string_view pads = "pad_to_multiple_of";
    const std::int64_t multiple = keys_.word(pads).value_or("auto") == "auto" ? 1 : keys_.integer(pads).value_or(1);
    const std::int64_t length = round_up(keys_.integer("max_length").value_or(kLengthUnset), multiple);
    const bool packs = keys_.flag("packing").value_or(false);
    const std::string attention = keys_.word("attn_implementation").value_or("sdpa");
    if (packs && keys_.word("packing_strategy").value_or("bfd") == "wrapped") {
      keys_.refuse("packing_strategy", "Rows that are cut anywhere and attend to each other are not predicted.",
                   "Write bfd.");
    }
    if (keys_.flag("padding_free").value_or(false) && !packs) {
      keys_.refuse("padding_free", "A batch that is joined to one row of any length is not predicted.",
                   "Write packing: true.");
    }
    if (packs) {
      add(PlanChoice::Packing, std::to_string(batch * length), "packing");
      if (attention != "flash_attention_2") {
        keys_.refuse("packing",
                     fmt::format("With attn_implementation: {} a mask of the whole row keeps packed documents apart, "
                                 "which was not compared with a run.",
                                 attention),
                     "Write attn_implementation: flash_attention_2.");
      }
    } else {
      const std::int64_t rows = is_dpo_ ? 2 * batch : batch;
      add(PlanChoice::Batch, std::to_string(rows), kBatch);
      add(PlanChoice::Sequence, std::to_string(length), "max_length");
      if (rows > 1) add(PlanChoice::PaddingMask, "yes", kBatch);
      if (attention != "sdpa") {
        keys_.refuse("attn_implementation", fmt::format("{} is predicted with packing alone.", attention),
                     "Write sdpa, the default.");
      }
      job_.notes.push_back(fmt::format("The longest sample of each batch has {} tokens, max_length.", length));
      if (is_dpo_)
        job_.notes.emplace_back("A pair is two rows, of which the loss is counted as if it read every token.");
    }
    say_accumulation();
  }

  void say_rest() {
    const std::string loss = is_dpo_ ? "nll" : keys_.word("loss_type").value_or("nll");
    if (loss != "nll" && loss != "chunked_nll") {
      keys_.refuse("loss_type", fmt::format("The loss \"{}\" is not predicted.", loss), "Write nll.");
    }
    add(PlanChoice::LossName, "chunked_nll", "loss_type");
    say_clipping();
    const bool is_partial =
        keys_.flag("assistant_only_loss").value_or(false) || keys_.flag("completion_only_loss").value_or(false);
    if (is_partial) job_.notes.emplace_back("Labels that the loss ignores are counted as if it did not.");
    if (keys_.word("eval_strategy").value_or("no") != "no") {
      job_.notes.push_back(fmt::format("Evaluation is beside the step; --phases --eval-batch {} predicts it.",
                                       keys_.integer("per_device_eval_batch_size").value_or(kBatchUnset)));
    }
  }

  void say_checkpoints() {
    const std::string_view key = "gradient_checkpointing";
    const bool is_on = checkpoints();
    if (is_on && accelerate_.checkpoints) {
      keys_.refuse(key,
                   "The Trainer refuses fsdp_activation_checkpointing beside gradient_checkpointing, TRL's default.",
                   "Write gradient_checkpointing: false, or fsdp_activation_checkpointing: false.");
    }
    if (!is_on && accelerate_.checkpoints) {
      keys_.refuse(key, "Units that accelerate checkpoints keep keys and values, and are not predicted.",
                   "Write gradient_checkpointing: true, and fsdp_activation_checkpointing: false.");
    }
    const std::string_view reentrant = "gradient_checkpointing_kwargs.use_reentrant";
    const bool is_reentrant = is_on && keys_.flag(reentrant).value_or(false);
    const JobWord* gpus = word_of(job_, PlanChoice::Gpus);
    const bool is_alone = gpus != nullptr && gpus->text == "1";
    if (is_reentrant && finds_unused() && !accelerate_.is_fsdp2 && !is_alone) {
      keys_.refuse(
          reentrant,
          "DDP that looks for unused parameters, as for a model with adapters, ends with an error in reentrant "
          "checkpoints.",
          "Write use_reentrant: false.");
    }
    add(PlanChoice::Checkpoint, !is_on ? "none" : is_reentrant ? "reentrant" : "full", is_reentrant ? reentrant : key);
    const std::string_view offload = "gradient_checkpointing_kwargs.offload";
    if (is_on && keys_.flag(offload).value_or(false)) add(PlanChoice::CheckpointOffload, "yes", offload);
  }

  const AccelerateJob& accelerate_;
  bool is_dpo_;
};

constexpr KeyChange kTrlChanges[] = {
    {PlanChoice::Checkpoint, "gradient_checkpointing: false"},
    {PlanChoice::Checkpoint, "gradient_checkpointing: true"},
    {PlanChoice::Batch, "per_device_train_batch_size: {batch}; gradient_accumulation_steps: {accumulation}"},
    {PlanChoice::GradientSync, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch: true"},
    {PlanChoice::GradientSync, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch: false"},
    {PlanChoice::OptimizerImpl, "optim: adamw_torch_fused"},
};

void refuse_spread_reference(JobKeys& launch_keys, const AccelerateJob& accelerate) {
  constexpr std::string_view kLoading = "fsdp_config.fsdp_cpu_ram_efficient_loading";
  if (!accelerate.is_fsdp2 || launch_keys.flag(kLoading).value_or(true)) return;
  launch_keys.refuse(
      kLoading,
      "Each process of TRL then spreads the reference model over all visible GPUs (device_map=\"auto\"), "
      "and the first step ends with an error.",
      "Write fsdp_cpu_ram_efficient_loading: true.");
}

Result<Job> trl_job(const JobLaunch& launch, TrlScript script) {
  constexpr std::string_view kInstead =
      "A rehearsal runs it: fsdp-plan rehearse -- and the line that starts the training.";
  Errors errors;
  Job job{.program = "TRL 1.16.0", .model = {}, .trainer = {}, .trainer_version = {}, .words = {}, .notes = {}};
  std::vector<JobLayer> launch_layers = {{&launch.launch_line, accelerate_keys()}};
  if (launch.launcher) launch_layers.push_back({&*launch.launcher, accelerate_keys()});
  JobKeys launch_keys(std::move(launch_layers), std::string(kInstead), errors);
  const AccelerateJob accelerate = say_accelerate(launch_keys, job);
  if (accelerate.is_fsdp2) job.trainer = "accelerate";
  const std::span<const JobKey> table = script == TrlScript::Dpo ? trl_dpo_keys() : trl_sft_keys();
  std::vector<JobLayer> layers = {{&launch.line, table}};
  if (launch.file) layers.push_back({&*launch.file, table});
  JobKeys keys(std::move(layers), std::string(kInstead), errors);
  TrlReader reader(keys, accelerate, script, job);
  reader.read();
  if (reader.keeps_reference()) refuse_spread_reference(launch_keys, accelerate);
  for (const JobKeys* read : {&launch_keys, &keys}) {
    job.notes.insert(job.notes.end(), read->notes().begin(), read->notes().end());
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

Result<Job> trl_sft_job(const JobLaunch& launch) {
  return trl_job(launch, TrlScript::Sft);
}
Result<Job> trl_dpo_job(const JobLaunch& launch) {
  return trl_job(launch, TrlScript::Dpo);
}

}  // namespace

const JobProgram& trl_program(TrlScript script) {
  static const JobProgram kSft = {trl_sft_job, kTrlChanges, accelerate_changes(), kBatchUnset};
  static const JobProgram kDpo = {trl_dpo_job, kTrlChanges, accelerate_changes(), kBatchUnset};
  return script == TrlScript::Dpo ? kDpo : kSft;
}

}  // namespace fsdp::planner
