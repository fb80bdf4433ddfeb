// What axolotl makes of its configuration.
//
// It loads the weights in bfloat16. Version 2 of FSDP converts nothing to float32: parameters, gradients and the
// optimizer's states are in bfloat16, but for PEFT's adapters. Version 1 makes all that is trained float32.
//
// A row of `sample_packing` has micro_batch_size * sequence_len tokens of documents. Other rows are padded, and come
// with a mask. Both lengths are rounded up to a multiple: of sequence_len in blocks of 64 with `pad_to_sequence_len`.
// Packed rows of a stream (pretraining_dataset) are not.
// Checkpoints are reentrant by default.
//
// With fsdp_config.activation_checkpointing accelerate makes a checkpoint of each module of a block, and axolotl one of
// the block around them (core/plan/nested_checkpoints.h).
//
// Sources: axolotl 0.19.0, utils/config/__init__.py (normalize_config, resolve_dtype), utils/schemas/config.py and
// validation.py, loaders/model.py, monkeypatch/accelerate/fsdp2.py, core/builders/base.py and causal.py,
// core/trainers/base.py (_create_multipack_sampler), utils/collators/batching.py, integrations/liger/plugin.py;
// accelerate 1.13.0, utils/fsdp_utils.py (fsdp2_prepare_auto_wrap_policy); transformers 5.16.1, training_args.py.
//
// Packed documents: axolotl drops the mask of a row if attn_implementation keeps documents apart, and keeps it if the
// key is unset. transformers looks for documents only if there is no mask.
//
// Not modeled: runs without FSDP, in which embeddings, head and norms stay in float32 beside weights in bfloat16; rows
// of flash-attn that end in padding, whose sizes are read back from the device; packed rows of sdpa.

#include "planner/jobs/axolotl_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "planner/jobs/axolotl_adapters.h"
#include "planner/jobs/axolotl_fsdp.h"
#include "planner/jobs/axolotl_keys.h"
#include "planner/jobs/job_reader.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kAxolotlWraps = "fsdp_config.activation_checkpointing";
constexpr std::string_view kLigerPlugin = "axolotl.integrations.liger.LigerPlugin";
constexpr std::string_view kCutPlugin = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin";

/// The older keys, the first of which counts, and what each means (LEGACY_ATTN_FLAG_TO_IMPL).
constexpr std::pair<std::string_view, std::string_view> kAttentionFlags[] = {
    {"xformers_attention", "xformers"},       {"sage_attention", "sage"}, {"flex_attention", "flex_attention"},
    {"flash_attention", "flash_attention_2"}, {"sdp_attention", "sdpa"},  {"eager_attention", "eager"},
};

std::int64_t to_multiple(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

class AxolotlReader : JobReader {
 public:
  AxolotlReader(JobKeys& keys, Job& job) : JobReader(keys, job) {}

  void read() {
    say_model();
    plugins_ = keys_.words("plugins");
    fsdp_ = fsdp_of_axolotl(keys_);
    if (fsdp_ != AxolotlFsdp::None) say_fsdp_of_axolotl(keys_, fsdp_, has_adapters(keys_), job_);
    say_precision();
    say_adapters(keys_, fsdp_, job_);
    refuse_frozen_parts();
    say_vocabulary();
    say_batch();
    say_accumulation();
    say_optimizer_of_axolotl();
    say_checkpoints();
    say_kernels();
    say_loss();
    say_evaluation();
  }

 private:
  bool has_plugin(std::string_view name) const {
    return std::find(plugins_.begin(), plugins_.end(), name) != plugins_.end();
  }

  void say_model() {
    const std::optional<std::string> model = keys_.word("base_model");
    if (!model) keys_.refuse("base_model", "The model is not named.", "Write base_model.");
    job_.model = model.value_or("");
    const std::string kind = keys_.word("model_type").value_or("AutoModelForCausalLM");
    if (!kind.ends_with("ForCausalLM")) {
      keys_.refuse("model_type", fmt::format("{} is no language model of text alone.", kind),
                   "Write AutoModelForCausalLM.");
    }
    if (is_on("trust_remote_code")) {
      job_.notes.emplace_back("The code of transformers is predicted, not that of the hub (trust_remote_code).");
    }
  }

  void say_precision() {
    const bool is_auto = keys_.word("bf16").value_or("auto") == "auto";
    const bool is_half = is_on("fp16") || is_on("float16");
    const bool bf16 = (is_auto ? !is_half : is_on("bf16")) || is_on("bfloat16");
    if (bf16) {
      if (is_auto) job_.notes.emplace_back("bf16: auto is counted as bfloat16, which GPUs since Ampere have.");
      return say_bfloat16();
    }
    if (is_half) return keys_.refuse("fp16", "Training in fp16 is not predicted.", "Write bf16: auto.");
    keys_.refuse("bf16", "Training in float32 was not compared with a run.", "Write bf16: auto.");
  }

  /// Under version 1 accelerate makes what is trained float32, and under version 2 PEFT only adapters.
  void say_bfloat16() {
    if (fsdp_ == AxolotlFsdp::Version1) return add(PlanChoice::Precision, "accelerate", "bf16");
    add(PlanChoice::Precision, has_adapters(keys_) ? "mixed" : "bf16", "bf16");
    if (has_adapters(keys_)) add(PlanChoice::ReduceDtype, "bfloat16", "bf16");
  }

  void refuse_frozen_parts() {
    if (!keys_.has("unfrozen_parameters")) return;
    keys_.refuse("unfrozen_parameters", "Frozen parts are not predicted for runs of axolotl.",
                 "--trainable PATTERN plans them for a loop of your own.");
  }

  /// Tokens that may be new to the model.
  void say_vocabulary() {
    if (is_on("resize_token_embeddings_to_32x")) {
      job_.notes.emplace_back(
          "The vocabulary of config.json is counted; resize_token_embeddings_to_32x may add up to 31 rows to embedding "
          "and head.");
    }
    for (const std::string_view key : {"special_tokens", "tokens", "tokenizer_config"}) {
      if (!keys_.has(key)) continue;
      job_.notes.push_back(fmt::format(
          "{} is counted as tokens that the model has: each new one adds a row to embedding and head.", key));
      return;
    }
  }

  std::string attention() {
    if (const auto named = keys_.word("attn_implementation")) return *named;
    for (const auto& [flag, name] : kAttentionFlags) {
      if (is_on(flag)) return std::string(name);
    }
    return "";
  }

  void say_batch() {
    const bool streams = keys_.has("pretraining_dataset");
    const std::int64_t batch = keys_.integer("micro_batch_size").value_or(1);
    const std::int64_t length = keys_.integer("sequence_len").value_or(512);
    const bool packs = is_on("sample_packing");
    const std::optional<bool> pads = keys_.flag("pad_to_sequence_len");
    const std::int64_t multiple = keys_.integer("pad_to_multiple_of").value_or(64);
    if (packs) {
      const std::int64_t whole = pads.value_or(true) && !streams ? to_multiple(length, multiple) : 1;
      return say_packed_row(to_multiple(batch * length, whole));
    }
    if (streams || is_on("streaming")) {
      keys_.refuse(streams ? "pretraining_dataset" : "streaming", "Rows of a stream are predicted if they are packed.",
                   "Write sample_packing: true.");
    }
    const std::int64_t longest = pads == false ? length : to_multiple(length, multiple);
    add(PlanChoice::Batch, std::to_string(batch), "micro_batch_size");
    add(PlanChoice::Sequence, std::to_string(longest), "sequence_len");
    const std::string kernel = attention();
    const bool ends_in_padding = batch > 1 || pads.value_or(false) || longest != length;
    if (kernel == "flash_attention_2" && !ends_in_padding) {
      add(PlanChoice::AttentionName, "flash_attn", "attn_implementation");
      job_.notes.push_back(fmt::format("A sample of {} tokens is a batch without padding.", length));
      return;
    }
    add(PlanChoice::PaddingMask, "yes", "sample_packing");
    if (kernel == "flash_attention_2") {
      keys_.refuse("attn_implementation",
                   "flash-attn cuts padding away, so that sizes depend on the data, which is not predicted.",
                   fmt::format("Write sample_packing: true, attn_implementation: sdpa, or micro_batch_size: 1 and a "
                               "sequence_len that {} divides.",
                               multiple));
    } else if (!kernel.empty() && kernel != "sdpa") {
      keys_.refuse("attn_implementation", fmt::format("{} is not predicted for rows that end in padding.", kernel),
                   "Write sample_packing: true, or attn_implementation: sdpa.");
    }
    if (!pads.value_or(false)) {
      job_.notes.push_back(fmt::format("The longest sample of each batch has {} tokens, sequence_len.", length));
    }
  }

  void say_packed_row(std::int64_t tokens) {
    const std::string kernel = attention();
    add(PlanChoice::Packing, std::to_string(tokens), "sample_packing");
    add(PlanChoice::PackedAttentionName, "flash_attn", "attn_implementation");
    if (kernel == "sdpa") {
      keys_.refuse("sample_packing",
                   "The first step of rows that are packed for sdpa takes 1 to 3 % more than predicted.",
                   "Write attn_implementation: flash_attention_2.");
    } else if (kernel != "flash_attention_2") {
      keys_.refuse("sample_packing",
                   kernel.empty() ? "Without attn_implementation axolotl keeps a mask of the whole row, so that packed "
                                    "documents attend to each other."
                                  : fmt::format("{} is not predicted for packed rows.", kernel),
                   "Write attn_implementation: flash_attention_2.");
    }
    if (is_on("streaming") && !keys_.has("pretraining_dataset")) {
      keys_.refuse("streaming", "A stream of conversations was not compared with a run.", "Remove it.");
    }
    if (keys_.has("pretraining_dataset") && !keys_.flag("pretrain_multipack_attn").value_or(true)) {
      keys_.refuse("pretrain_multipack_attn", "Packed documents that attend to each other are not predicted.",
                   "Remove it.");
    }
    if (is_on("multipack_real_batches")) {
      keys_.refuse("multipack_real_batches", "Several packed rows in a batch were not compared with a run.",
                   "Remove it.");
    }
  }

  void say_optimizer_of_axolotl() {
    const std::string name = keys_.word("optimizer").value_or("adamw_torch_fused");
    if (fsdp_ == AxolotlFsdp::Version2 && (name == "adamw_8bit" || name == "adamw_bnb_8bit")) {
      keys_.refuse("optimizer", fmt::format("axolotl refuses {} under FSDP2.", name), "Write adamw_torch_8bit.");
    } else {
      say_optimizer(keys_, "optimizer", "adamw_torch_fused", job_);
    }
    say_clipping();
  }

  void say_checkpoints() {
    const std::string_view key = "gradient_checkpointing";
    const std::string word = keys_.word(key).value_or("false");
    if (word == "offload" || word == "offload_disk") {
      keys_.refuse(key, "Activations in host memory are not predicted for runs of axolotl.", "Write true.");
    }
    if (is_on(kAxolotlWraps)) {
      if (word != "false") {
        keys_.refuse(kAxolotlWraps, "The Trainer refuses it beside gradient_checkpointing.", "Write one of them.");
      } else if (fsdp_ == AxolotlFsdp::Version1 || has_adapters(keys_)) {
        keys_.refuse(kAxolotlWraps,
                     fsdp_ == AxolotlFsdp::Version1 ? "It is predicted under FSDP2 alone."
                                                    : "It was not compared with a run of adapters.",
                     "Write gradient_checkpointing: true, with gradient_checkpointing_kwargs: {use_reentrant: false}.");
      }
      add(PlanChoice::Checkpoint, "nested", kAxolotlWraps);
    } else {
      const bool is_reentrant = keys_.flag("gradient_checkpointing_kwargs.use_reentrant").value_or(true);
      add(PlanChoice::Checkpoint, word == "false" ? "none" : is_reentrant ? "reentrant" : "full", key);
    }
    add(PlanChoice::CheckpointOffload, "no", key);
  }

  /// Liger's kernels in the model.
  void say_kernels() {
    for (const std::string& plugin : plugins_) {
      if (plugin == kLigerPlugin || plugin == kCutPlugin) continue;
      keys_.refuse("plugins", fmt::format("The plugin \"{}\" is not predicted.", plugin));
    }
    constexpr std::pair<std::string_view, std::string_view> kKernels[] = {{"liger_rope", "rope"},
                                                                          {"liger_rms_norm", "rms_norm"},
                                                                          {"liger_glu_activation", "glu"},
                                                                          {"liger_swiglu", "glu"}};
    std::vector<std::string_view> kernels;
    std::string_view place = "plugins";
    for (const auto& [key, kernel] : kKernels) {
      if (!is_on(key)) continue;
      kernels.push_back(kernel);
      place = key;
    }
    if (!has_plugin(kLigerPlugin)) {
      const bool has_keys = !kernels.empty() || is_on("liger_fused_linear_cross_entropy");
      if (has_keys) job_.notes.emplace_back("Keys of Liger are ignored: plugins has no LigerPlugin.");
      return;
    }
    if (!kernels.empty()) add(PlanChoice::Liger, fmt::format("{}", fmt::join(kernels, ",")), place);
    if (is_on("liger_layer_norm")) {
      job_.notes.emplace_back(
          "liger_layer_norm replaces nothing in the families whose kernels of Liger are predicted.");
    }
  }

  void say_loss() {
    const std::string_view fused = "liger_fused_linear_cross_entropy";
    const bool is_cut = has_plugin(kCutPlugin) && keys_.flag("cut_cross_entropy").value_or(true);
    const bool is_fused = has_plugin(kLigerPlugin) && is_on(fused);
    if (is_fused && is_cut) {
      keys_.refuse(fused, "Both plugins replace the loss.", "Remove one of the keys.");
    }
    if (is_on("cut_cross_entropy") && !has_plugin(kCutPlugin)) {
      job_.notes.emplace_back("cut_cross_entropy is ignored: plugins has no CutCrossEntropyPlugin.");
    }
    if (is_cut) {
      job_.notes.emplace_back(
          "axolotl's fork of cut-cross-entropy is counted as the release 25.1.1, and labels that are ignored as if "
          "they were not.");
    }
    if (is_fused) return add(PlanChoice::LossName, "liger-0.8.1", fused);
    add(PlanChoice::LossName, is_cut ? "cut_cross_entropy" : "pytorch", "plugins");
  }

  void say_evaluation() {
    if (keys_.number("val_set_size").value_or(0) == 0 && !keys_.has("test_datasets")) return;
    const std::int64_t batch = keys_.integer("micro_batch_size").value_or(1);
    job_.notes.push_back(fmt::format("Evaluation is beside the step; --phases --eval-batch {} predicts it.",
                                     keys_.integer("eval_batch_size").value_or(batch)));
  }

  std::vector<std::string> plugins_;
  AxolotlFsdp fsdp_ = AxolotlFsdp::None;
};

constexpr KeyChange kAxolotlChanges[] = {
    {PlanChoice::Reshard, "fsdp_config.reshard_after_forward: true"},
    {PlanChoice::Reshard, "fsdp_config.reshard_after_forward: false"},
    {PlanChoice::Checkpoint, "gradient_checkpointing: false; fsdp_config.activation_checkpointing: false"},
    {PlanChoice::Checkpoint, "gradient_checkpointing: true; fsdp_config.activation_checkpointing: false"},
    {PlanChoice::Checkpoint,
     "gradient_checkpointing: true; gradient_checkpointing_kwargs.use_reentrant: false; "
     "fsdp_config.activation_checkpointing: false"},
    {PlanChoice::LossName, "+plugins: axolotl.integrations.liger.LigerPlugin; liger_fused_linear_cross_entropy: true"},
    {PlanChoice::Batch, "micro_batch_size: {batch}; gradient_accumulation_steps: {accumulation}"},
    {PlanChoice::GradientSync, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch: true"},
    {PlanChoice::GradientSync, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch: false"},
    {PlanChoice::OptimizerImpl, "optimizer: adamw_torch_fused"},
};

Result<Job> axolotl_job(const JobLaunch& launch) {
  constexpr std::string_view kInstead =
      "A rehearsal runs it: fsdp-plan rehearse -- and the line that starts the training.";
  Errors errors;
  Job job{.program = "axolotl 0.19.0", .model = {}, .trainer = {}, .words = {}, .notes = {}};
  JobKeys launch_keys({{&launch.launch_line, accelerate_keys()}}, std::string(kInstead), errors);
  say_machines(launch_keys, job);
  for (const std::string_view key : {"distributed_type", "fsdp_config", "deepspeed_config"}) {
    if (launch_keys.has(key)) launch_keys.refuse(key, "axolotl reads its own file.", "Write fsdp_config there.");
  }
  JobKeys keys({{&launch.line, axolotl_keys()}, {&*launch.file, axolotl_keys()}}, std::string(kInstead), errors);
  AxolotlReader(keys, job).read();
  job.notes.insert(job.notes.end(), keys.notes().begin(), keys.notes().end());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

}  // namespace

const JobProgram& axolotl_program() {
  static constexpr JobProgram kProgram = {axolotl_job, kAxolotlChanges, {}, 1};
  return kProgram;
}

void remove_fsdp_prefixes(JsonDocument& document) {
  constexpr std::string_view kPrefix = "fsdp_";
  for (JsonMember& member : document.root.members) {
    if (member.key != "fsdp_config") continue;
    for (JsonMember& each : member.value.members) {
      if (each.key == "version") each.key = "fsdp_version";
      if (each.key.starts_with(kPrefix) && each.key != "fsdp_version") each.key.erase(0, kPrefix.size());
    }
  }
}

}  // namespace fsdp::planner
