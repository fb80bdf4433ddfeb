// What NeMo Automodel makes of its configuration, with the recipe that fine-tunes language models.
//
// Under FSDP2 each block is a unit, of which the last stays gathered after the forward; embedding and head are units of
// their own if they are trained and not tied, and the head stays gathered, too. Parameters are gathered in bfloat16,
// and gradients reduced in float32, whatever dtype the weights have. The recipe calls its loss after the model. On one
// GPU it shards nothing. A step has global_batch_size samples: as many micro-batches of local_batch_size as fit into
// it.
//
// How long rows are is in the data, unless a key cuts them; batches of several rows end in padding.
//
// Sources: nemo_automodel 0.7.0, recipes/llm/train_ft.py, recipes/_typed_config.py, recipes/_dist_utils.py,
// components/distributed/parallelizer.py (ModelParallelizer._apply), components/optim/optimizer.py,
// components/datasets/utils.py (default_collater), components/config/loader.py (translate_value),
// _transformers/kernel_patches.py.
//
// Not modeled: other recipes; other parallelism than data; adapters without kernels of Triton; packed rows; flash-attn,
// Liger's kernels and TransformerEngine, which change the model if they are installed; its fused losses.

#include "planner/jobs/automodel_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/automodel.h"
#include "planner/jobs/automodel_keys.h"
#include "planner/jobs/job_reader.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kAutomodelRecipe = "TrainFinetuneRecipeForNextTokenPrediction";
constexpr std::string_view kAutomodelModel = "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained";
constexpr std::string_view kAutomodelName = "model.pretrained_model_name_or_path";
constexpr std::string_view kAutomodelDtype = "model.torch_dtype";
constexpr std::string_view kAutomodelLocalBatch = "step_scheduler.local_batch_size";
constexpr std::string_view kAutomodelWholeBatch = "step_scheduler.global_batch_size";
constexpr std::string_view kAutomodelDataset = "dataset._target_";
constexpr std::string_view kAutomodelCopies = "distributed.dp_replicate_size";
constexpr std::string_view kAutomodelReshards = "distributed.reshard_after_forward";
constexpr std::string_view kAutomodelDefers = "distributed.defer_fsdp_grad_sync";
constexpr std::string_view kAutomodelCheckpoints = "distributed.activation_checkpointing";

/// Other recipes and what they are for. Each is told by the first word that it has.
constexpr std::pair<std::string_view, std::string_view> kOtherAutomodelRecipes[] = {
    {"KnowledgeDistillation", "knowledge distillation"},
    {"VLM", "a model with images or sound"},
    {"Multimodal", "a model with images or sound"},
    {"Benchmarking", "a benchmark with random weights"},
    {"Diffusion", "a diffusion model"},
    {"SequenceClassification", "a classifier"},
    {"Encoder", "retrieval"},
    {"Distill", "retrieval"},
};

std::string_view last_of_path(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

/// The name of the recipe; "" if the file has none.
std::string automodel_recipe(const JsonValue& root) {
  const JsonValue* recipe = root.find("recipe");
  if (recipe != nullptr && recipe->type == JsonType::Object) recipe = recipe->find("_target_");
  return recipe == nullptr ? std::string() : std::string(last_of_path(recipe->text));
}

class AutomodelReader : JobReader {
 public:
  AutomodelReader(JobKeys& keys, Job& job, const TypedBesideJob& typed) : JobReader(keys, job), typed_(typed) {}

  void read() {
    refuse_other_parallelism();
    say_model();
    say_libraries();
    is_alone_ = typed_.gpus == 1;
    if (is_alone_) {
      add(PlanChoice::Runtime, "ddp", "distributed");
      job_.notes.emplace_back("On one GPU Automodel does not shard the model, and FSDP2's precision does not count.");
    } else {
      say_plan();
    }
    say_precision();
    say_rows();
    say_accumulation();
    say_optimizer_of_automodel();
    say_checkpoints();
    say_loss();
    say_adapters();
    say_validation();
  }

 private:
  /// A word of the file. Automodel reads "none" as null. A value that the environment decides is an error.
  std::optional<std::string> word(std::string_view key) {
    std::optional<std::string> text = keys_.word(key);
    if (text && (*text == "none" || *text == "None")) return std::nullopt;
    if (text && text->find('$') != std::string::npos) {
      keys_.refuse(key, fmt::format("\"{}\" is a value of the environment in which the run starts.", *text),
                   "Write the value.");
      return std::nullopt;
    }
    return text;
  }
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t least = 1) {
    return word(key) ? keys_.integer(key, least) : std::nullopt;
  }
  bool flag(std::string_view key, bool unset) { return word(key) ? keys_.flag(key).value_or(unset) : unset; }

  void refuse_other_parallelism() {
    constexpr std::pair<std::string_view, std::string_view> kSizes[] = {{"distributed.tp_size", "tensor parallelism"},
                                                                        {"distributed.cp_size", "context parallelism"},
                                                                        {"distributed.pp_size", "pipeline parallelism"},
                                                                        {"distributed.ep_size", "expert parallelism"}};
    for (const auto& [key, what] : kSizes) {
      if (integer(key).value_or(1) > 1) {
        keys_.refuse(key, fmt::format("It asks for {}, which is not predicted.", what));
      }
    }
    const std::optional<std::int64_t> size = integer("distributed.dp_size");
    if (size && typed_.gpus && *size != *typed_.gpus) {
      keys_.refuse("distributed.dp_size", fmt::format("It counts {} GPUs, and there are {}.", *size, *typed_.gpus),
                   "Write none.");
    }
    for (const std::string_view key : {"distributed.offload_policy", "distributed.autocast_dtype"}) {
      if (!word_or_object(key)) continue;
      keys_.refuse(key, key.ends_with("dtype")
                            ? "Autocast was not compared with a run of Automodel."
                            : "Parameters in host memory were not compared with a run of Automodel.");
    }
  }

  /// Whether the key has a value other than none.
  bool word_or_object(std::string_view key) {
    const std::string text = keys_.text(key);
    return keys_.has(key) && text != "none" && text != "None";
  }

  void say_model() {
    const std::string kind = word("model._target_").value_or("");
    if (kind != kAutomodelModel) {
      keys_.refuse("model._target_", kind.empty() ? "The file does not say how the model is made."
                                                  : fmt::format("Models are read that {} makes.", kAutomodelModel));
    }
    const std::optional<std::string> name = word(kAutomodelName);
    if (!name && kind == kAutomodelModel) {
      keys_.refuse("model", "The model is not named.", "Write pretrained_model_name_or_path.");
    }
    job_.model = name.value_or("");
    if (flag("model.trust_remote_code", false)) {
      job_.notes.emplace_back("The code of transformers or Automodel is predicted, not that of the hub.");
    }
    add(PlanChoice::Flavor, flag("model.force_hf", false) ? "automodel-hf" : "automodel", "model.force_hf");
    if (const std::string kernel = word("model.attn_implementation").value_or("sdpa"); kernel != "sdpa") {
      keys_.refuse("model.attn_implementation", fmt::format("{} is not predicted for runs of Automodel.", kernel),
                   "Write attn_implementation: sdpa.");
    }
  }

  /// Automodel takes what it finds.
  void say_libraries() {
    std::string assumed;
    if (!keys_.has("model.attn_implementation")) assumed = "flash-attn";
    if (flag("model.use_liger_kernel", true)) assumed += assumed.empty() ? "liger-kernel" : " and liger-kernel";
    if (assumed.empty()) return;
    job_.notes.push_back(fmt::format(
        "{} are counted as not installed, as with pip install nemo-automodel: Automodel uses what it finds. "
        "attn_implementation: sdpa and use_liger_kernel: false make it so.",
        assumed));
  }

  void say_plan() {
    add(PlanChoice::Runtime, "fsdp2", "distributed.strategy");
    add(PlanChoice::Wrap, "blocks", "distributed");
    add(PlanChoice::WrapEnds, has_adapters() ? "no" : "yes", "distributed");
    const bool is_unset = !word(kAutomodelReshards);
    const std::string head = has_adapters() ? "" : "+head";
    const std::string resharded = (is_unset ? "keep-last:1" : "true") + head;
    add(PlanChoice::Reshard, flag(kAutomodelReshards, true) ? resharded : "false", kAutomodelReshards);
    add(PlanChoice::Replicate, std::to_string(integer(kAutomodelCopies).value_or(1)), kAutomodelCopies);
    // What FSDP2 does if it is not told otherwise.
    add(PlanChoice::Prefetch, "0", "distributed");
    add(PlanChoice::BackwardPrefetch, "1", "distributed");
    add(PlanChoice::Offload, "no", "distributed.offload_policy");
    add(PlanChoice::Initialization, "meta", "distributed");
  }

  static bool is_bfloat16(std::string_view dtype) { return dtype == "bf16" || last_of_path(dtype) == "bfloat16"; }
  static bool is_float32(std::string_view dtype) {
    return dtype == "fp32" || last_of_path(dtype) == "float32" || last_of_path(dtype) == "float";
  }

  void say_precision() {
    const std::string stored = word(kAutomodelDtype).value_or("auto");
    if (stored == "auto" || is_bfloat16(stored)) {
      add(PlanChoice::Precision, "bf16", kAutomodelDtype);
    } else if (is_float32(stored)) {
      add(PlanChoice::Precision, is_alone_ ? "fp32" : "mixed", kAutomodelDtype);
    } else {
      keys_.refuse(kAutomodelDtype, fmt::format("Weights in {} are not predicted.", stored), "Write bf16 or float32.");
    }
    if (!is_alone_) say_policy();
  }

  void say_policy() {
    const std::string computed = word("distributed.mp_policy.param_dtype").value_or("bfloat16");
    if (!is_bfloat16(computed)) {
      keys_.refuse("distributed.mp_policy.param_dtype", fmt::format("Compute in {} is not predicted.", computed),
                   "Write bfloat16.");
    }
    const std::string reduced = word("distributed.mp_policy.reduce_dtype").value_or("float32");
    if (!is_bfloat16(reduced) && !is_float32(reduced)) {
      keys_.refuse("distributed.mp_policy.reduce_dtype", fmt::format("Reductions in {} are not predicted.", reduced),
                   "Write float32 or bfloat16.");
    }
    add(PlanChoice::ReduceDtype, is_float32(reduced) ? "float32" : "bfloat16", "distributed.mp_policy.reduce_dtype");
    if (const auto output = word("distributed.mp_policy.output_dtype")) {
      keys_.refuse("distributed.mp_policy.output_dtype",
                   fmt::format("Outputs in {} were not compared with a run.", *output), "Remove it.");
    }
  }

  std::int64_t local_batch() { return integer(kAutomodelLocalBatch).value_or(1); }

  void say_rows() {
    const std::string data = std::string(last_of_path(word(kAutomodelDataset).value_or("")));
    const bool is_mock = data == "MockIterableDataset" || data == "MockIterableDatasetConfig";
    const std::int64_t batch = is_mock ? integer("dataset.batch_size").value_or(1) : local_batch();
    const bool has_positions = is_mock || data.starts_with("MegatronPretraining") || data.starts_with("Nanogpt");
    if (has_positions && batch > 1) {
      keys_.refuse("dataset", "Rows with positions of their own are predicted one at a time.",
                   "Write a batch of 1, or another dataset.");
    }
    const std::optional<std::int64_t> size = integer("dataloader.batch_size");
    if (size && !is_mock && *size != batch) {
      keys_.refuse("dataloader.batch_size",
                   fmt::format("It counts before {}, which is {}.", kAutomodelLocalBatch, batch), "Remove it.");
    }
    add(PlanChoice::Batch, std::to_string(batch), kAutomodelLocalBatch);
    say_length(is_mock ? "dataset.seq_len" : "dataset.seq_length", batch, is_mock);
  }

  void say_length(std::string_view key, std::int64_t batch, bool is_mock) {
    constexpr std::string_view kCollates = "dataloader.collate_fn";
    const bool names_function = keys_.has("dataloader.collate_fn._target_");
    const std::string collater =
        std::string(last_of_path(word(names_function ? "dataloader.collate_fn._target_" : kCollates).value_or("")));
    if (collater.find("thd") != std::string::npos || collater.find("prefix_tree") != std::string::npos) {
      keys_.refuse(kCollates, fmt::format("Packed rows, which {} makes, are not predicted.", collater),
                   "Write default_collater.");
    }
    const std::int64_t multiple =
        names_function ? integer("dataloader.collate_fn.pad_seq_len_divisible").value_or(1) : 1;
    const std::string padding = word("dataset.padding").value_or("false");
    const bool ends_in_padding = batch > 1 || multiple > 1 || padding == "max_length" || padding == "true";
    if (!is_alone_ || ends_in_padding)
      add(PlanChoice::PaddingMask, ends_in_padding && !is_mock ? "yes" : "no", kCollates);
    const std::optional<std::int64_t> longest = integer(key);
    if (!longest) {
      if (typed_.has_sequence) return;
      return keys_.refuse("dataset", "Its rows are as long as its texts: no key says how long.",
                          "Write --seq N, the tokens of the longest row.");
    }
    const std::int64_t padded = (*longest + multiple - 1) / multiple * multiple;
    add(PlanChoice::Sequence, std::to_string(padded), key);
    if (!is_mock) {
      job_.notes.push_back(fmt::format("The longest row of a batch is counted as {} tokens, {}.", padded, key));
    }
  }

  void say_accumulation() {
    const std::int64_t whole = integer(kAutomodelWholeBatch).value_or(32);
    const bool syncs_each = !flag(kAutomodelDefers, true);
    if (!typed_.gpus) {
      add(PlanChoice::GlobalBatch, std::to_string(whole), kAutomodelWholeBatch);
      return add(PlanChoice::GradientSync, syncs_each ? "every" : "last", kAutomodelDefers);
    }
    const std::int64_t at_once = local_batch() * *typed_.gpus;
    const std::int64_t steps = whole / at_once;
    if (steps < 1) {
      return keys_.refuse(
          kAutomodelWholeBatch,
          fmt::format("{} samples are fewer than the {} of one micro-batch on {} GPUs, which Automodel refuses.", whole,
                      at_once, *typed_.gpus),
          fmt::format("Write a multiple of {}.", at_once));
    }
    if (whole % at_once != 0) {
      job_.notes.push_back(
          fmt::format("A step has {} samples, not {}: {} micro-batches fit into it.", steps * at_once, whole, steps));
    }
    add(PlanChoice::Accumulate, std::to_string(steps), kAutomodelWholeBatch);
    if (steps > 1) add(PlanChoice::GradientSync, syncs_each ? "every" : "last", kAutomodelDefers);
  }

  void say_optimizer_of_automodel() {
    const std::string name = word("optimizer._target_").value_or("");
    const bool is_adam = name == "torch.optim.Adam";
    if (!is_adam && name != "torch.optim.AdamW") {
      keys_.refuse("optimizer._target_",
                   fmt::format("{} is not predicted for runs of Automodel.", name.empty() ? "No optimizer" : name),
                   "Predicted are torch.optim.Adam and torch.optim.AdamW.");
    }
    add(PlanChoice::OptimizerName, is_adam ? "adam" : "adamw", "optimizer._target_");
    const double decay = keys_.number("optimizer.weight_decay").value_or(0.01);
    if (is_adam && decay != 0) {
      keys_.refuse("optimizer.weight_decay", "Adam with weight decay was not compared with a run of Automodel.",
                   "Write 0, or torch.optim.AdamW.");
    }
    const bool is_fused = flag("optimizer.fused", false);
    const bool is_foreach = flag("optimizer.foreach", is_alone_);
    if (is_fused && is_adam) {
      keys_.refuse("optimizer.fused", "Automodel passes fused to AdamW alone.", "Write torch.optim.AdamW.");
    }
    // PyTorch takes its loop for DTensors unless it is told otherwise.
    add(PlanChoice::OptimizerImpl, is_fused ? "fused" : is_foreach ? "foreach" : "for_loop", "optimizer._target_");
    const double norm = keys_.number("clip_grad_norm.max_norm").value_or(1);
    add(PlanChoice::Clip, fmt::format("{:g}", norm), "clip_grad_norm.max_norm");
  }

  void say_checkpoints() {
    const std::string text = word(kAutomodelCheckpoints).value_or("false");
    if (text == "selective") {
      keys_.refuse(kAutomodelCheckpoints, "Selective checkpoints were not compared with a run of Automodel.",
                   "Write true.");
    }
    const bool is_full = text == "true" || text == "True" || text == "full" || text == "on" || text == "enabled";
    add(PlanChoice::Checkpoint, is_full ? "full" : "none", kAutomodelCheckpoints);
    add(PlanChoice::CheckpointOffload, "no", kAutomodelCheckpoints);
  }

  void say_loss() {
    const std::string name = std::string(last_of_path(word("loss_fn._target_").value_or("")));
    add(PlanChoice::LossName, "pytorch", "loss_fn._target_");
    if (name != "MaskedCrossEntropy") {
      keys_.refuse(
          "loss_fn._target_",
          name.empty() ? "The loss is not named." : fmt::format("{} was not compared with a run of Automodel.", name),
          "Write nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy.");
    } else if (!flag("loss_fn.fp32_upcast", true)) {
      keys_.refuse("loss_fn.fp32_upcast", "The loss of logits in bfloat16 was not compared with a run.",
                   "Write true, the default.");
    }
  }

  bool has_adapters() const { return keys_.has("peft"); }

  void say_adapters() {
    if (!has_adapters()) return;
    refuse_other_adapters();
    std::vector<std::string> targets = keys_.words("peft.target_modules");
    if (targets.empty()) targets = {"*_proj"};
    for (const std::string& target : targets) {
      const bool is_end = target.starts_with('*') && target.size() > 1;
      if (is_end && target.find_first_of("*?[+", 1) == std::string::npos) continue;
      keys_.refuse("peft.target_modules", fmt::format("The pattern \"{}\" is not read.", target),
                   "Write ends of names, such as *_proj or *.q_proj.");
    }
    add(PlanChoice::Lora,
        fmt::format("r={},alpha={:g},targets={}", integer("peft.dim").value_or(8),
                    keys_.number("peft.alpha").value_or(32), fmt::join(targets, "+")),
        "peft");
  }

  void refuse_other_adapters() {
    if (is_alone_) {
      keys_.refuse("peft", "Adapters on one GPU were not compared with a run: Automodel fuses those of an MLP there.");
    }
    if (flag("peft.match_all_linear", false)) {
      keys_.refuse("peft.match_all_linear", "It adapts the head, too, which was not compared with a run.",
                   "Write target_modules: '*_proj'.");
    }
    if (is_float32(word(kAutomodelDtype).value_or("auto"))) {
      keys_.refuse(kAutomodelDtype, "Adapters in float32 beside a frozen base were not compared with a run.",
                   "Write bf16.");
    }
    if (!flag("peft.use_triton", false) || !flag("peft.use_memory_efficient_lora", true)) {
      keys_.refuse("peft", "Adapters without Automodel's kernels of Triton were not compared with a run.",
                   "Write use_triton: true, and leave use_memory_efficient_lora out.");
    }
  }

  void say_validation() {
    if (!keys_.has("validation_dataset")) return;
    job_.notes.push_back(
        fmt::format("Evaluation is beside the step; --phases --eval-batch {} predicts it.", local_batch()));
  }

  const TypedBesideJob& typed_;
  bool is_alone_ = false;
};

Error other_automodel_recipe(const JsonDocument& file, const std::string& name) {
  const JsonValue* found = file.root.find("recipe");
  const std::string where = found == nullptr ? file.name : file.where(found->offset);
  const std::string hint =
      fmt::format("Read is {}. A rehearsal runs others: fsdp-plan rehearse -- automodel FILE.", kAutomodelRecipe);
  if (name.empty()) return {where, "The file names no recipe, and Automodel refuses such files.", hint};
  for (const auto& [part, what] : kOtherAutomodelRecipes) {
    if (name.find(part) != std::string::npos) {
      return {where, fmt::format("{} is for {}, which is not predicted.", name, what), hint};
    }
  }
  return {where, fmt::format("{} is another training, which is not predicted.", name), hint};
}

}  // namespace

bool is_automodel_file(const JsonValue& root) {
  if (root.type != JsonType::Object) return false;
  const JsonValue* model = root.find("model");
  const JsonValue* target = model == nullptr ? nullptr : model->find("_target_");
  const bool names_class = target != nullptr && target->text.starts_with("nemo_automodel");
  return automodel_recipe(root).find("Recipe") != std::string::npos || names_class ||
         (root.find("step_scheduler") != nullptr && model != nullptr);
}

namespace {

constexpr KeyChange kAutomodelChanges[] = {
    {PlanChoice::Reshard, "distributed.reshard_after_forward: true"},
    {PlanChoice::Reshard, "distributed.reshard_after_forward: false"},
    {PlanChoice::Checkpoint, "distributed.activation_checkpointing: true"},
    {PlanChoice::Checkpoint, "distributed.activation_checkpointing: false"},
    {PlanChoice::Batch, "step_scheduler.local_batch_size: {batch}"},
    {PlanChoice::GradientSync, "distributed.defer_fsdp_grad_sync: true"},
    {PlanChoice::GradientSync, "distributed.defer_fsdp_grad_sync: false"},
    {PlanChoice::OptimizerImpl, "optimizer.fused: true"},
    {PlanChoice::Replicate, "distributed.dp_replicate_size: {copies}"},
};

Result<Job> automodel_job(const JobLaunch& launch) {
  const JsonDocument& file = *launch.file;
  const std::string recipe = automodel_recipe(file.root);
  if (recipe != kAutomodelRecipe) return tl::unexpected(Errors{other_automodel_recipe(file, recipe)});
  Errors errors;
  Job job{.program = fmt::format("NeMo Automodel {}", kAutomodelVersion),
          .model = {},
          .trainer = {},
          .words = {},
          .notes = {}};
  JobKeys keys({{&file, automodel_keys()}},
               "A rehearsal runs it: fsdp-plan rehearse -- torchrun -m nemo_automodel.cli.app FILE.", errors);
  AutomodelReader(keys, job, launch.typed).read();
  job.notes.insert(job.notes.end(), keys.notes().begin(), keys.notes().end());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

}  // namespace

const JobProgram& automodel_program() {
  static constexpr JobProgram kProgram = {automodel_job, kAutomodelChanges, {}, 1};
  return kProgram;
}

}  // namespace fsdp::planner
