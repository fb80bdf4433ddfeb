// What torchtitan makes of its configuration: the TOML of 0.2.2, and the Trainer.Config of 0.3.0. Most keys are the
// same. The Trainer's own habits are those of --for torchtitan: its units, float32 reductions after every micro-batch,
// gradients that are always clipped.
//
// A row has seq_len tokens, and documents follow each other without padding. 0.2.2 attends over the whole row; 0.3.0
// keeps documents apart by FlexAttention, whose mask does not depend on their lengths in size.
//
// 0.3.0 runs on PyTorch from 2.14 on: its Trainer calls torch.distributed.set_timeout, and its default spmd_backend
// hands FSDP2 parameters that earlier releases refuse.
//
// Sources: torchtitan 0.2.2, train.py, models/llama3/infra/parallelize.py, models/qwen3/infra/parallelize.py,
// distributed/activation_checkpoint.py, config/job_config.py; torchtitan 0.3.0, trainer.py, distributed/fsdp.py,
// distributed/activation_checkpoint.py, components/loss.py, models/*/config_registry.py.
//
// Not modeled: labels that the loss ignores; the profiler.

#include "planner/jobs/titan_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "planner/jobs/job_reader.h"
#include "planner/jobs/launch_line.h"
#include "planner/jobs/titan_float8.h"
#include "planner/jobs/titan_keys.h"
#include "planner/trainers/trainers.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kTitanCopies = "parallelism.data_parallel_replicate_degree";
constexpr std::string_view kTitanShards = "parallelism.data_parallel_shard_degree";
constexpr std::string_view kTitanReshard = "parallelism.fsdp_reshard_after_forward";
constexpr std::string_view kTitanGlobalBatch = "training.global_batch_size";
constexpr std::string_view kTitanTorch = "2.15";
constexpr std::string_view kTitanConverters = "model.converters";

class TitanReader : JobReader {
 public:
  TitanReader(JobKeys& keys, bool is_toml, Job& job) : JobReader(keys, job), is_toml_(is_toml) {}

  void read() {
    say_model();
    add(PlanChoice::Flavor, is_toml_ ? "torchtitan" : "torchtitan-0.3", model_key());
    if (!is_toml_) add(PlanChoice::Torch, std::string(kTitanTorch), "training");
    say_plan();
    say_precision();
    say_batch();
    say_optimizer_of_titan();
    is_toml_ ? say_checkpoints_of_toml() : say_checkpoints();
    if (!is_toml_) say_loss();
    refuse_compiled();
    say_beside_the_step();
  }

 private:
  std::string word(std::string_view key, std::string_view unset) {
    return keys_.word(key).value_or(std::string(unset));
  }
  std::string_view model_key() const { return is_toml_ ? "model.flavor" : "model_spec.flavor"; }

  void say_model() {
    const std::string name = word(is_toml_ ? "model.name" : "model_spec.name", "llama3");
    const std::string flavor = word(model_key(), "debugmodel");
    if (const auto found = library_model_of_torchtitan(name, flavor)) {
      job_.model = found->library;
      if (found->is_tied) refuse_separate_ends();
    } else {
      keys_.refuse(model_key(), fmt::format("torchtitan's {} {} is not predicted.", name, flavor),
                   fmt::format("Predicted are {}. A rehearsal runs it: fsdp-plan rehearse -- and the line that starts "
                               "the training.",
                               torchtitan_models_in_library(!is_toml_)));
    }
    if (is_toml_) return say_converters();
    const std::vector<std::string> changes = keys_.words("model_spec.changed");
    if (!changes.empty()) {
      keys_.refuse("model_spec.changed", fmt::format("It changes torchtitan's model ({}), which is not predicted.",
                                                     fmt::join(changes, ", ")));
    }
    const std::string attention = word("model_spec.attention", "flex");
    if (attention != "flex") {
      keys_.refuse("model_spec.attention",
                   fmt::format("Attention by {} was not compared with a run.",
                               attention == "varlen" ? "varlen, which takes FlashAttention 3 on an H100," : attention),
                   "Write attn_backend=\"flex\", the default.");
    }
    if (const std::string kind = word("class", "Trainer"); kind != "Trainer") {
      keys_.refuse("class", fmt::format("The loop of {} is not predicted.", kind));
    }
  }

  /// For a model that ties head and embedding.
  void refuse_separate_ends() {
    const std::string_view backend = "parallelism.spmd_backend";
    if (is_toml_) {
      keys_.refuse(model_key(), "torchtitan 0.2.2 makes two units of head and embedding, which this model ties.",
                   "torchtitan 0.3.0 makes one of them, and is predicted.");
    } else if (word(backend, "spmd_types") != "partial_dtensor") {
      keys_.refuse(
          keys_.has(backend) ? backend : model_key(),
          "Head and embedding are tied, and under spmd_types, the default, torchtitan 0.3.0 gathers their weight "
          "twice, which is not predicted.",
          "Write --parallelism.spmd_backend partial_dtensor, under which it is gathered once.");
    }
  }

  void say_converters() {
    const std::vector<std::string> converters = keys_.words(kTitanConverters);
    if (converters.empty()) return;
    if (converters != std::vector<std::string>{"quantize.linear.float8"}) {
      return keys_.refuse(kTitanConverters, fmt::format("Products in narrow formats ({}) are not predicted.",
                                                        fmt::join(converters, ", ")));
    }
    if (const auto layers = float8_of_titan(keys_)) add(PlanChoice::Float8, to_text(*layers), kTitanConverters);
  }

  void say_plan() {
    add(PlanChoice::Runtime, "fsdp2", kTitanShards);
    const std::string policy = word(kTitanReshard, "default");
    if (policy != "default" && policy != "always" && policy != "never") {
      keys_.refuse(kTitanReshard, fmt::format("torchtitan has no policy \"{}\".", policy),
                   "Write default, always or never.");
    }
    add(PlanChoice::Reshard, policy == "never" ? "false" : policy == "always" ? "all" : "true", kTitanReshard);
    const std::int64_t copies = keys_.integer(kTitanCopies).value_or(1);
    const std::int64_t shards = keys_.integer(kTitanShards, -1).value_or(-1);
    if (copies > 1 && shards == 1) {
      keys_.refuse(kTitanShards, "Copies that are not sharded were not compared with a run.",
                   fmt::format("Leave it out, or write {} = 1.", kTitanCopies));
    }
    add(PlanChoice::Replicate, std::to_string(copies), kTitanCopies);
    if (shards > 0) add(PlanChoice::Shard, std::to_string(shards), kTitanShards);
    add(PlanChoice::Prefetch, "0", kTitanShards);
    add(PlanChoice::BackwardPrefetch, "1", kTitanShards);
    add(PlanChoice::Offload, "no", "training.enable_cpu_offload");
    if (is_on("training.enable_cpu_offload")) {
      keys_.refuse("training.enable_cpu_offload", "Offloaded runs of torchtitan were not compared with a run.",
                   "fsdp-plan MODEL --for torchtitan --offload yes plans one.");
    }
    if (!is_toml_ && word("parallelism.spmd_backend", "spmd_types") == "full_dtensor") {
      keys_.refuse("parallelism.spmd_backend", "Inputs that are DTensors are not predicted.",
                   "Leave it out: spmd_types is the default.");
    }
  }

  void say_precision() {
    const std::string weights = word("training.dtype", "float32");
    const std::string compute = word("training.mixed_precision_param", "bfloat16");
    const bool is_half = weights == "bfloat16" && compute == "bfloat16";
    const bool is_mixed = weights == "float32" && compute == "bfloat16";
    if (!is_half && !is_mixed) {
      return keys_.refuse(
          "training.mixed_precision_param",
          fmt::format("Computing in {} with weights in {} was not compared with a run.", compute, weights),
          "Write bfloat16.");
    }
    add(PlanChoice::Precision, is_half ? "bf16" : "mixed", "training.dtype");
    add(PlanChoice::ReduceDtype, "float32", "training.mixed_precision_reduce");
  }

  void say_batch() {
    const std::int64_t batch = keys_.integer("training.local_batch_size").value_or(kTitanBatchUnset);
    const std::int64_t length = keys_.integer("training.seq_len").value_or(2048);
    add(PlanChoice::Batch, std::to_string(batch), "training.local_batch_size");
    if (is_toml_) {
      add(PlanChoice::Sequence, std::to_string(length), "training.seq_len");
    } else {
      add(PlanChoice::Packing, std::to_string(length), "training.seq_len");
      add(PlanChoice::PackedAttentionName, "flex", "model_spec.attention");
      add(PlanChoice::CudaGraphs, is_on("training.disable_cuda_graphs") ? "no" : "yes", "training.disable_cuda_graphs");
    }
    const std::int64_t all = keys_.integer(kTitanGlobalBatch, -1).value_or(-1);
    add(PlanChoice::GradientSync, "every", kTitanGlobalBatch);
    if (all > 0) {
      add(PlanChoice::GlobalBatch, std::to_string(all), kTitanGlobalBatch);
      if (!is_toml_ && !is_on("training.disable_cuda_graphs")) {
        job_.notes.emplace_back(
            "CUDA graphs of several micro-batches are not predicted: global_batch_size has to be local_batch_size "
            "times "
            "the GPUs, or write --training.disable_cuda_graphs.");
      }
    } else {
      add(PlanChoice::Accumulate, "1", kTitanGlobalBatch);
    }
    if (const std::string loader = word("dataloader.class", "HuggingFaceTextDataLoader"); loader == "ChatDataLoader") {
      job_.notes.emplace_back("Labels that the loss ignores are counted as if it did not.");
    }
  }

  void say_optimizer_of_titan() {
    std::vector<std::string> names =
        is_toml_ ? std::vector{word("optimizer.name", "AdamW")} : keys_.words("optimizer.param_groups");
    const std::string_view key = is_toml_ ? "optimizer.name" : "optimizer.param_groups";
    if (names.empty()) names = {"AdamW"};
    if (names.size() > 1) {
      return keys_.refuse(key, "Several groups of parameters were not compared with a run.");
    }
    if (names.front() != "AdamW" && names.front() != "Adam") {
      return keys_.refuse(key, fmt::format("{} is not predicted for runs of torchtitan.", names.front()),
                          "Write AdamW or Adam.");
    }
    add(PlanChoice::OptimizerName, names.front() == "AdamW" ? "adamw" : "adam", key);
    const std::string kind = word("optimizer.implementation", "fused");
    if (kind != "fused" && kind != "foreach" && kind != "for-loop") {
      keys_.refuse("optimizer.implementation", fmt::format("torchtitan has no implementation \"{}\".", kind),
                   "Write fused, foreach or for-loop.");
    }
    add(PlanChoice::OptimizerImpl, kind == "for-loop" ? "for_loop" : kind, "optimizer.implementation");
    add(PlanChoice::Clip, fmt::format("{:g}", keys_.number("training.max_norm").value_or(1)), "training.max_norm");
  }

  void say_checkpoints_of_toml() {
    const std::string mode = word("activation_checkpoint.mode", "selective");
    const std::string_view option = "activation_checkpoint.selective_ac_option";
    if (mode == "selective" && word(option, "2") != "op") {
      keys_.refuse(option, "Every second block checkpointed whole, which 2, the default, asks for, is not predicted.",
                   "Write selective_ac_option = \"op\", as torchtitan's own files do.");
    }
    if (is_on("activation_checkpoint.early_stop")) {
      keys_.refuse("activation_checkpoint.early_stop", "It was not compared with a run.", "Leave it out.");
    }
    say_checkpoint_mode(mode, "activation_checkpoint.mode");
  }

  void say_checkpoints() {
    say_checkpoint_mode(word("activation_checkpoint.class", "selective"), "activation_checkpoint.class");
  }

  void say_checkpoint_mode(const std::string& mode, std::string_view key) {
    const std::string_view shapes = is_toml_ ? "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"
                                             : "activation_checkpoint.force_recompute_mm_shapes_by_fqns";
    const std::vector<std::string> fixed = keys_.words(shapes);
    if (mode == "selective" && !fixed.empty() && fixed != std::vector<std::string>{"moe.router.gate"}) {
      keys_.refuse(shapes, "Products that are always computed again are not predicted.", "Leave it out.");
    }
    if (mode == "none" || mode == "full" || mode == "selective") {
      return add(PlanChoice::Checkpoint, mode, key);
    }
    keys_.refuse(key, fmt::format("Checkpointing by \"{}\" is not predicted.", mode), "Write selective, full or none.");
  }

  void say_loss() {
    const std::string loss = word("loss.class", "ChunkedLossWrapper");
    const bool is_chunked = loss == "ChunkedLossWrapper";
    const std::string inner = is_chunked ? word("loss.loss_fn.class", "CrossEntropyLoss") : loss;
    if (inner != "CrossEntropyLoss") {
      return keys_.refuse(is_chunked ? "loss.loss_fn.class" : "loss.class",
                          fmt::format("The loss {} is not predicted.", inner), "Write CrossEntropyLoss.");
    }
    const std::int64_t chunks = keys_.integer("loss.num_chunks").value_or(8);
    add(PlanChoice::LossName, is_chunked ? fmt::format("torchtitan_chunked,chunks={}", chunks) : "pytorch",
        "loss.class");
  }

  void refuse_compiled() {
    if (!is_on("compile.enable")) return;
    const std::vector<std::string> parts = keys_.words("compile.components");
    keys_.refuse("compile.enable",
                 fmt::format("It asks for torch.compile of {}, which is not predicted.",
                             parts.empty() ? "model and loss" : fmt::format("{}", fmt::join(parts, " and "))));
  }

  void say_beside_the_step() {
    const std::string_view validates = is_toml_ ? "validation.enable" : "validator.enable";
    if (is_on(validates)) {
      const std::int64_t batch = keys_.integer("training.local_batch_size").value_or(kTitanBatchUnset);
      job_.notes.push_back(fmt::format("Validation is beside the step; --phases --eval-batch {} predicts it.",
                                       is_toml_ ? keys_.integer("validation.local_batch_size").value_or(8) : batch));
    }
    if (is_on("checkpoint.enable")) {
      job_.notes.emplace_back("Saving is beside the step; --phases predicts it.");
    }
  }

  bool is_toml_;
};

}  // namespace

Result<Job> titan_job(const TitanLaunch& launch) {
  constexpr std::string_view kInstead =
      "A rehearsal runs it: fsdp-plan rehearse -- and the line that starts the training.";
  Errors errors;
  Job job{.program = launch.is_toml ? "torchtitan 0.2.2" : "torchtitan 0.3.0",
          .model = {},
          .trainer = "torchtitan",
          .trainer_version = launch.is_toml ? "0.2.2" : "",
          .words = {},
          .notes = {}};
  say_torchrun(launch.launch_line, job);
  const auto table = launch.is_toml ? titan_toml_keys() : titan_config_keys();
  JobKeys keys({{&launch.line, table}, {&launch.file, table}}, std::string(kInstead), errors);
  TitanReader(keys, launch.is_toml, job).read();
  job.notes.insert(job.notes.end(), keys.notes().begin(), keys.notes().end());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

}  // namespace fsdp::planner
