// What LLaMA-Factory makes of its configuration.
//
// It loads the weights in the dtype of the checkpoint and converts what is trained to float32, unless pure_bf16 is set.
// With bf16 the Trainer's mixed precision runs: torch.autocast under DDP, accelerate's policy under FSDP2. The
// accelerate that it allows, 1.11 at most, reshards the root like the units of its policy.
//
// Rows are cut at cutoff_len. They end in padding up to the longest of their batch, rounded up to a multiple of 8, and
// come with a mask if the batch has several. `packing` fills rows of cutoff_len tokens, whose documents attend to each
// other, without a mask. Checkpoints are the default, and reentrant but under FSDP2.
//
// Sources: llamafactory 0.9.5, hparams/parser.py, model/adapter.py (init_adapter), model/patcher.py,
// model/model_utils/checkpointing.py, data/processor/supervised.py (PackedSupervisedDatasetProcessor),
// data/collator.py, train/sft/workflow.py, launcher.py; transformers 5.6.0, trainer.py; accelerate 1.11.0,
// utils/fsdp_utils.py (fsdp2_prepare_model); peft 0.18.1.
//
// Not modeled: adapters under FSDP2, whose frozen base accelerate 1.11 converts to float32; bases in eight bits;
// preference training; packed rows whose documents are kept apart; frozen layers (finetuning_type: freeze).

#include "planner/jobs/llamafactory_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/rounding.h"
#include "planner/jobs/job_reader.h"
#include "planner/jobs/llamafactory_keys.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kLlamaFactoryBatchUnset = 8;
constexpr std::int64_t kPaddedTo = 8;  ///< pad_to_multiple_of of the collator.

/// The parts of "q_proj, v_proj".
std::vector<std::string> parts_of(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (const std::string& word : words) {
    std::string part;
    for (const char letter : word + ",") {
      if (letter == ' ') continue;
      if (letter != ',') {
        part += letter;
      } else if (!part.empty()) {
        parts.push_back(std::exchange(part, {}));
      }
    }
  }
  return parts;
}

class LlamaFactoryReader : JobReader {
 public:
  LlamaFactoryReader(JobKeys& keys, const AccelerateJob& accelerate, Job& job)
      : JobReader(keys, job), accelerate_(accelerate) {}

  void read() {
    const std::optional<std::string> model = keys_.word("model_name_or_path");
    if (!model) keys_.refuse("model_name_or_path", "The model is not named.", "Write model_name_or_path.");
    job_.model = model.value_or("");
    say_stage();
    say_precision();
    say_adapters();
    if (accelerate_.is_fsdp2) say_rest_of_fsdp2();
    say_batch();
    say_attention();
    say_optimizer(keys_, "optim", "adamw_torch_fused", job_);
    say_steps();
    say_checkpoints();
    if (!accelerate_.is_fsdp2) say_ddp_arguments(finds_unused());
    say_notes();
  }

 private:
  std::string kind() { return keys_.word("finetuning_type").value_or("lora"); }
  bool has_adapters() { return kind() == "lora"; }
  bool checkpoints() { return !is_on("disable_gradient_checkpointing"); }

  /// accelerate 1.11 leaves embedding and head in the root's unit; the rest is what FSDP2 does if it is not told
  /// otherwise.
  void say_rest_of_fsdp2() {
    constexpr std::string_view kPlace = "model_name_or_path";
    add(PlanChoice::WrapEnds, "no", kPlace);
    add(PlanChoice::Replicate, "1", kPlace);
    add(PlanChoice::Prefetch, "0", kPlace);
    add(PlanChoice::BackwardPrefetch, "1", kPlace);
    add(PlanChoice::Offload, "no", kPlace);
  }

  void say_stage() {
    const std::string stage = keys_.word("stage").value_or("sft");
    if (stage != "sft" && stage != "pt") {
      keys_.refuse("stage", fmt::format("The stage {} is not read.", stage),
                   "Read are sft and pt. --also MODEL plans a reference model beside the trained one.");
    }
    if (kind() != "lora" && kind() != "full") {
      keys_.refuse("finetuning_type", fmt::format("finetuning_type: {} is not predicted.", kind()),
                   "Predicted are lora and full.");
    }
  }

  void say_precision() {
    const bool is_pure = is_on("pure_bf16");
    if (is_on("fp16")) return keys_.refuse("fp16", "Training in fp16 is not predicted.", "Write bf16: true.");
    if (is_pure && has_adapters() && !is_on("bf16")) {
      return keys_.refuse("pure_bf16",
                          "Adapters, which PEFT keeps in float32, beside a base in bfloat16 and without mixed "
                          "precision are not predicted.",
                          "Write bf16: true.");
    }
    if (is_pure) return add(PlanChoice::Precision, "bf16", "pure_bf16");
    if (!is_on("bf16")) {
      return keys_.refuse("bf16", "Training in float32 was not compared with a run.", "Write bf16: true.");
    }
    add(PlanChoice::Precision, "accelerate", "bf16");
  }

  void say_adapters() {
    if (keys_.has("quantization_bit")) say_quantized_base();
    if (!has_adapters()) return;
    if (accelerate_.is_fsdp2) {
      keys_.refuse("finetuning_type",
                   "Under FSDP2 accelerate 1.11 converts the frozen base to float32, too, which is not predicted and "
                   "needs twice the memory.",
                   "Leave FSDP2 away: DDP is predicted.");
    }
    const std::int64_t rank = keys_.integer("lora_rank").value_or(8);
    const double alpha = keys_.number("lora_alpha").value_or(static_cast<double>(2 * rank));
    std::vector<std::string> targets = parts_of(keys_.words("lora_target"));
    if (targets.empty() || targets.front() == "all") targets = {"all-linear"};
    std::string text = fmt::format("r={},alpha={:g},dropout={:g},targets={}", rank, alpha,
                                   keys_.number("lora_dropout").value_or(0), fmt::join(targets, "+"));
    const std::vector<std::string> whole = parts_of(keys_.words("additional_target"));
    if (!whole.empty()) text += fmt::format(",modules_to_save={}", fmt::join(whole, "+"));
    // Its checkpoints give their input a gradient, that of the first block, too.
    if (checkpoints()) text += ",input_grads=yes";
    add(PlanChoice::Lora, std::move(text), "finetuning_type");
  }

  /// bitsandbytes stores the base in the dtype of compute, bfloat16.
  void say_quantized_base() {
    if (!has_adapters()) {
      keys_.refuse("quantization_bit", "LLaMA-Factory refuses a quantized base without adapters.",
                   "Write finetuning_type: lora.");
    }
    const std::int64_t bits = keys_.integer("quantization_bit").value_or(4);
    if (bits != 4) {
      return keys_.refuse("quantization_bit", fmt::format("A base in {} bits is not predicted.", bits), "Write 4.");
    }
    std::string text = keys_.word("quantization_type").value_or("nf4");
    if (keys_.flag("double_quantization").value_or(true)) text += ",double";
    add(PlanChoice::Quantize, std::move(text), "quantization_bit");
  }

  void say_batch() {
    const std::int64_t batch = keys_.integer("per_device_train_batch_size").value_or(kLlamaFactoryBatchUnset);
    const std::int64_t length = keys_.integer("cutoff_len").value_or(2048);
    const bool packs = keys_.flag("packing").value_or(keys_.word("stage").value_or("sft") == "pt");
    if (is_on("neat_packing")) {
      keys_.refuse("neat_packing", "Rows whose documents are kept apart are not predicted for runs of LLaMA-Factory.",
                   "Write packing: true, with which documents attend to each other.");
    }
    add(PlanChoice::Batch, std::to_string(batch), "per_device_train_batch_size");
    add(PlanChoice::Sequence, std::to_string(round_up(length, kPaddedTo)), "cutoff_len");
    if (packs) return;
    if (batch > 1) add(PlanChoice::PaddingMask, "yes", "per_device_train_batch_size");
    job_.notes.push_back(fmt::format("The longest sample of each batch has {} tokens, cutoff_len.", length));
  }

  void say_attention() {
    const std::string kernel = keys_.word("flash_attn").value_or("auto");
    if (kernel == "auto" || kernel == "sdpa") return;
    keys_.refuse("flash_attn", fmt::format("The attention \"{}\" is not predicted for runs of LLaMA-Factory.", kernel),
                 "Write sdpa, which auto is.");
  }

  void say_steps() {
    say_accumulation();
    say_clipping();
    add(PlanChoice::LossName, "pytorch", "stage");
  }

  void say_checkpoints() {
    if (accelerate_.checkpoints) {
      keys_.refuse("disable_gradient_checkpointing",
                   "fsdp_activation_checkpointing beside LLaMA-Factory's checkpoints is not predicted.",
                   "Write fsdp_activation_checkpointing: false.");
    }
    const bool is_reentrant = keys_.flag("use_reentrant_gc").value_or(true) && !accelerate_.is_fsdp2;
    add(PlanChoice::Checkpoint,
        !checkpoints() ? "none"
        : is_reentrant ? "reentrant"
                       : "full",
        "disable_gradient_checkpointing");
  }

  /// It looks for unused parameters of a model of transformers without checkpoints, and of none with adapters.
  bool finds_unused() { return !has_adapters() && !checkpoints(); }

  void say_notes() {
    for (const std::string_view key :
         {"resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens_config"}) {
      if (!keys_.has(key) || keys_.word(key) == "false") continue;
      keys_.refuse(key, "Rows that new tokens add to embedding and head are not predicted.",
                   "Plan the folder of the model with them, and remove it.");
    }
    if (is_on("trust_remote_code")) {
      job_.notes.emplace_back("The code of transformers is predicted, not that of the hub (trust_remote_code).");
    }
    if (keys_.number("val_size").value_or(0) > 0 || keys_.has("eval_dataset")) {
      job_.notes.push_back(fmt::format("Evaluation is beside the step; --phases --eval-batch {} predicts it.",
                                       keys_.integer("per_device_eval_batch_size").value_or(8)));
    }
  }

  const AccelerateJob& accelerate_;
};

/// What accelerate 1.11 does otherwise under FSDP2 than 1.15: it reshards the root like the units, and moves a loaded
/// model to each GPU as a whole, where it waits beside all shards.
void make_older(Job& job, JobKeys& launch) {
  for (JobWord& word : job.words) {
    if (word.choice == PlanChoice::Reshard && word.text == "true") word.text = "all";
    if (word.choice != PlanChoice::Initialization || word.text != "cpu") continue;
    launch.refuse("fsdp_config.fsdp_cpu_ram_efficient_loading",
                  "Without it accelerate 1.11 moves the whole model to each GPU before it shards it, which is not "
                  "predicted.",
                  "Write true.");
  }
}

constexpr KeyChange kLlamaFactoryChanges[] = {
    {PlanChoice::Checkpoint, "disable_gradient_checkpointing: true"},
    {PlanChoice::Checkpoint, "disable_gradient_checkpointing: false"},
    {PlanChoice::Batch, "per_device_train_batch_size: {batch}; gradient_accumulation_steps: {accumulation}"},
    {PlanChoice::GradientSync, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch: true"},
    {PlanChoice::GradientSync, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch: false"},
    {PlanChoice::OptimizerImpl, "optim: adamw_torch_fused"},
};

constexpr KeyChange kLlamaFactoryLaunchChanges[] = {
    {PlanChoice::Reshard, "fsdp_config.fsdp_reshard_after_forward: true"},
    {PlanChoice::Reshard, "fsdp_config.fsdp_reshard_after_forward: false"},
};

Result<Job> llamafactory_job(const JobLaunch& launch) {
  constexpr std::string_view kInstead =
      "A rehearsal runs it: fsdp-plan rehearse -- and the line that starts the training.";
  Errors errors;
  Job job{
      .program = "LLaMA-Factory 0.9.5", .model = {}, .trainer = {}, .trainer_version = {}, .words = {}, .notes = {}};
  std::vector<JobLayer> launch_layers = {{&launch.launch_line, accelerate_keys()}};
  if (launch.launcher) launch_layers.push_back({&*launch.launcher, accelerate_keys()});
  JobKeys launch_keys(std::move(launch_layers), std::string(kInstead), errors);
  const AccelerateJob accelerate = say_accelerate(launch_keys, job);
  if (!launch.is_accelerate) {
    job.notes.emplace_back(
        "On several GPUs llamafactory-cli sets expandable_segments:True; --alloc-conf expandable_segments:True plans "
        "it.");
  }
  if (accelerate.is_fsdp2) make_older(job, launch_keys);
  JobKeys keys({{&launch.line, llamafactory_keys()}, {&*launch.file, llamafactory_keys()}}, std::string(kInstead),
               errors);
  LlamaFactoryReader(keys, accelerate, job).read();
  for (const JobKeys* read : {&launch_keys, &keys}) {
    job.notes.insert(job.notes.end(), read->notes().begin(), read->notes().end());
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

}  // namespace

const JobProgram& llamafactory_program() {
  static constexpr JobProgram kProgram = {llamafactory_job, kLlamaFactoryChanges, kLlamaFactoryLaunchChanges,
                                          kLlamaFactoryBatchUnset};
  return kProgram;
}

}  // namespace fsdp::planner
