// What verl makes of its configuration.
//
// Both trainers run one engine. It loads the weights in float32, and FSDP computes in bfloat16 beside autocast, and
// reduces in float32. Version 1 has a unit for each block. Version 2 has one for embedding and head, too, unless they
// are tied, and reshards its root after forward. Checkpoints are not reentrant. Padding is removed: a micro-batch is
// one row of tokens, with flash-attn. With use_dynamic_bsz it has at most max_token_len_per_gpu tokens, otherwise
// micro_batch_size_per_gpu rows. Gradients are reduced after every micro-batch. The loss is of log probabilities
// (core/plan/loss_table.h).
//
// In reinforcement learning the roles take turns on the same GPUs. The update of the actor is the one that has
// gradients and optimizer states, and is planned. While it runs, the engine that generates sleeps, and the reference
// model's parameters are in host memory, whatever its param_offload says.
//
// param_offload and optimizer_offload move the actor to host memory between its turns, and back before each.
//
// Sources: verl 0.9.1, workers/engine/fsdp/transformer_impl.py, workers/engine_workers.py (ActorRolloutRefWorker,
// TrainingWorker), workers/engine/base.py, utils/fsdp_utils.py, utils/seqlen_balancing.py (rearrange_micro_batches),
// trainer/ppo/ray_trainer.py (_update_actor) and utils.py (need_critic, need_reference_policy), trainer/sft_trainer.py,
// trainer/config/*.yaml; PyTorch, torch/distributed/run.py.
//
// Not modeled: the turns of the other roles; rows that end in padding; sequence parallelism; verl's fused loss; the
// entropy as a term of the loss.

#include "planner/jobs/verl_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/parse_units.h"
#include "planner/jobs/argument_object.h"
#include "planner/jobs/job_builder.h"
#include "planner/jobs/job_reader.h"
#include "planner/jobs/launch_line.h"
#include "planner/jobs/verl_keys.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kPpoModule = "verl.trainer.main_ppo";
constexpr std::string_view kSftModule = "verl.trainer.sft_trainer";
constexpr std::string_view kProgram = "verl 0.9.1";
constexpr double kMostRanks = 1e9;

std::int64_t div_up(std::int64_t number, std::int64_t by) {
  return (number + by - 1) / by;
}

/// Numbers of a configuration are at most 1e15.
std::int64_t product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = 1'000'000'000'000'000'000;
  return a > 0 && b > kMost / a ? kMost : a * b;
}

/// Where the engine's keys are.
struct EngineNames {
  std::string_view engine;
  std::string_view model;
  std::string_view optimizer;
};
constexpr EngineNames kActor = {"actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.model",
                                "actor_rollout_ref.actor.optim"};
constexpr EngineNames kSft = {"engine", "model", "optim"};

/// How the rows of a step are cut.
struct RowsOfStep {
  std::int64_t rows = 0;      ///< Those of all GPUs.
  std::int64_t longest = 0;   ///< Tokens of the longest row.
  bool is_dynamic = false;    ///< Micro-batches are filled up to `most` tokens.
  std::int64_t most = 0;      ///< Tokens of a micro-batch, if it is dynamic, or
  std::int64_t of_micro = 0;  ///< rows of one.
  std::string rows_key;
  std::string most_key;
  std::string micro_key;
  std::string longest_key;
};

/// What both trainers' readers share.
class VerlReader : protected JobReader {
 protected:
  VerlReader(JobKeys& keys, Job& job, const EngineNames& names) : JobReader(keys, job), names_(names) {}

  std::string engine(std::string_view key) const { return fmt::format("{}.{}", names_.engine, key); }
  std::string model(std::string_view key) const { return fmt::format("{}.{}", names_.model, key); }
  std::string optimizer(std::string_view key) const { return fmt::format("{}.{}", names_.optimizer, key); }

  void say_engine(const std::string& strategy_key, std::int64_t ranks) {
    say_model();
    say_strategy(strategy_key);
    say_mesh(ranks);
    say_precision();
    say_optimizer_of_verl();
    say_checkpoints();
    add(PlanChoice::LossName, "verl", model("path"));
    const bool syncs = !is_on(engine("use_no_sync_for_gradient_accumulation"));
    add(PlanChoice::GradientSync, syncs ? "every" : "last", engine("use_no_sync_for_gradient_accumulation"));
  }

  /// Micro-batches and their number.
  void say_rows(const RowsOfStep& step, std::int64_t ranks) {
    const std::int64_t sharing = std::max<std::int64_t>(ranks, 1);
    if (step.rows % sharing != 0) {
      keys_.refuse(step.rows_key, fmt::format("{} rows of a step cannot be shared by {} GPUs.", step.rows, ranks),
                   "Write a multiple.");
    }
    const std::int64_t rows = div_up(step.rows, sharing);
    step.is_dynamic ? say_filled(step, rows) : say_cut(step, rows);
    add(PlanChoice::DocumentLength, std::to_string(step.longest), step.longest_key);
    add(PlanChoice::PackedAttentionName, "flash_attn", model("use_remove_padding"));
  }

  void expect_no_padding(const std::string& key) {
    if (keys_.flag(key).value_or(true)) return;
    keys_.refuse(key, "Rows that end in padding are not predicted for runs of verl.", "Write true.");
  }

 private:
  void say_model() {
    const std::optional<std::string> path = keys_.word(model("path"));
    if (!path) keys_.refuse(model("path"), "The model is not named.", fmt::format("Write {}=NAME.", model("path")));
    job_.model = path.value_or("");
    if (is_on(model("trust_remote_code"))) {
      job_.notes.emplace_back("The code of transformers is predicted, not that of the hub (trust_remote_code).");
    }
    if (has_adapters()) say_adapters();
    expect_no_padding(model("use_remove_padding"));
  }

  bool has_adapters() { return keys_.integer(model("lora_rank"), 0).value_or(0) > 0; }

  /// PEFT's, on a base that is loaded in float32 as all weights are. Under version 1 each matrix of an adapter is a
  /// unit.
  void say_adapters() {
    std::vector<std::string> targets = keys_.words(model("target_modules"));
    if (targets.empty()) targets = {"all-linear"};
    add(PlanChoice::Lora,
        fmt::format("r={},alpha={:g},targets={},input_grads=yes,base=float32", *keys_.integer(model("lora_rank")),
                    keys_.number(model("lora_alpha")).value_or(16), fmt::join(targets, "+")),
        model("lora_rank"));
  }

  void say_strategy(const std::string& key) {
    const std::string name = keys_.word(key).value_or("fsdp");
    is_fsdp2_ = name == "fsdp2";
    if (!is_fsdp2_ && name != "fsdp") {
      keys_.refuse(key, fmt::format("The engine {} is not predicted.", name), "Write fsdp or fsdp2.");
    }
    const std::vector<std::string> classes = keys_.words(engine("wrap_policy.transformer_layer_cls_to_wrap"));
    const std::string named = classes.empty() ? "blocks" : fmt::format("{}", fmt::join(classes, ","));
    const bool has_units_of_adapters = has_adapters() && !is_fsdp2_;
    const bool is_policy = !classes.empty() || has_units_of_adapters;
    add(PlanChoice::Wrap,
        fmt::format("{}{}{}", is_policy ? "class:" : "", named, has_units_of_adapters ? ",adapters" : ""),
        engine("wrap_policy.transformer_layer_cls_to_wrap"));
    if (!is_policy) add(PlanChoice::WrapEnds, is_fsdp2_ ? "yes" : "no", key);
    add(PlanChoice::Runtime, is_fsdp2_ ? "fsdp2" : "fsdp1", key);
    // Rank 0 has the weights in the memory of its CPU, and the others have none.
    add(PlanChoice::Initialization, is_fsdp2_ ? "cpu" : "meta", key);
    const bool prefetches = is_on(engine("forward_prefetch"));
    add(PlanChoice::Prefetch, prefetches ? "1" : "0", engine("forward_prefetch"));
    add(PlanChoice::BackwardPrefetch, "1", key);
    const bool is_offloaded = is_on(engine("offload_policy"));
    if (is_offloaded && !is_fsdp2_) {
      job_.notes.push_back(fmt::format("{} is ignored: it is one of fsdp2.", engine("offload_policy")));
    }
    add(PlanChoice::Offload, is_offloaded && is_fsdp2_ ? "yes" : "no", engine("offload_policy"));
  }

  /// fsdp_size GPUs share a copy; -1 and more than there are mean all of them.
  void say_mesh(std::int64_t ranks) {
    const std::string key = engine("fsdp_size");
    const double size = keys_.number(key).value_or(-1);
    const bool has_copies = size > 0 && size < static_cast<double>(ranks);
    const auto shards = has_copies ? static_cast<std::int64_t>(size) : ranks;
    if (has_copies && (ranks % shards != 0 || shards == 1)) {
      keys_.refuse(key, fmt::format("Copies of {} GPUs among {} are not predicted.", shards, ranks),
                   "Write -1, or a divisor of at least 2.");
    }
    add(PlanChoice::Replicate, std::to_string(std::max<std::int64_t>(ranks / std::max<std::int64_t>(shards, 1), 1)),
        key);
    const std::string reshard_key = engine("reshard_after_forward");
    const bool reshards = keys_.flag(reshard_key).value_or(true);
    add(PlanChoice::Reshard, !reshards ? "false" : is_fsdp2_ ? "all" : "true", reshard_key);
  }

  void say_precision() {
    const std::string dtype = keys_.word(engine("model_dtype")).value_or("fp32");
    if (dtype != "fp32" && dtype != "float32") {
      keys_.refuse(engine("model_dtype"), fmt::format("Weights in {} were not compared with a run.", dtype),
                   "Write fp32.");
    }
    add(PlanChoice::Precision, "autocast", engine("model_dtype"));
    const std::string reduced = keys_.word(engine("mixed_precision.reduce_dtype")).value_or("fp32");
    const bool is_wide = reduced == "fp32" || reduced == "float32";
    if (!is_wide && reduced != "bf16" && reduced != "bfloat16") {
      keys_.refuse(engine("mixed_precision.reduce_dtype"), fmt::format("{} is not predicted.", reduced),
                   "Write fp32 or bf16.");
    }
    add(PlanChoice::ReduceDtype, is_wide ? "float32" : "bfloat16", engine("mixed_precision.reduce_dtype"));
  }

  void say_optimizer_of_verl() {
    const std::string name = keys_.word(optimizer("optimizer")).value_or("AdamW");
    const std::string package = keys_.word(optimizer("optimizer_impl")).value_or("torch.optim");
    if (name != "AdamW" || package != "torch.optim") {
      keys_.refuse(optimizer("optimizer"), fmt::format("{} of {} is not predicted for runs of verl.", name, package),
                   "Write AdamW and torch.optim.");
    }
    add(PlanChoice::OptimizerName, "adamw", optimizer("optimizer"));
    add(PlanChoice::OptimizerImpl, "foreach", optimizer("optimizer"));
    add(PlanChoice::Clip, fmt::format("{:g}", keys_.number(optimizer("clip_grad")).value_or(1)),
        optimizer("clip_grad"));
  }

  void say_checkpoints() {
    const std::string key = model("enable_gradient_checkpointing");
    add(PlanChoice::Checkpoint, keys_.flag(key).value_or(true) ? "full" : "none", key);
    add(PlanChoice::CheckpointOffload, "no", key);
  }

  /// Micro-batches of at most so many tokens. `rows`: of a GPU.
  void say_filled(const RowsOfStep& step, std::int64_t rows) {
    if (step.most < step.longest) {
      keys_.refuse(step.most_key,
                   fmt::format("A row may have {} tokens, more than the {} of a micro-batch, which verl refuses.",
                               step.longest, step.most),
                   fmt::format("Write at least {}.", step.longest));
    }
    const std::int64_t tokens = product(rows, step.longest);
    add(PlanChoice::Packing, std::to_string(std::min(step.most, tokens)), step.most_key);
    add(PlanChoice::Accumulate, std::to_string(div_up(tokens, step.most)), step.most_key);
    job_.notes.push_back(
        fmt::format("All rows are counted as {} tokens long, and every micro-batch as full. Shorter rows need fewer "
                    "micro-batches, and none of them more.",
                    step.longest));
  }

  /// Micro-batches of so many rows.
  void say_cut(const RowsOfStep& step, std::int64_t rows) {
    if (step.of_micro == 0) keys_.refuse(step.micro_key, "verl needs the rows of a micro-batch.", "Write it.");
    const std::int64_t of_micro = std::max<std::int64_t>(step.of_micro, 1);
    if (rows % of_micro != 0) {
      keys_.refuse(step.micro_key,
                   fmt::format("{} rows of a GPU cannot be cut into micro-batches of {}.", rows, of_micro),
                   "Write a divisor.");
    }
    add(PlanChoice::Packing, std::to_string(product(of_micro, step.longest)), step.micro_key);
    add(PlanChoice::Accumulate, std::to_string(div_up(rows, of_micro)), step.micro_key);
    job_.notes.push_back(fmt::format("All rows are counted as {} tokens long.", step.longest));
  }

  const EngineNames& names_;
  bool is_fsdp2_ = false;
};

class PpoReader : VerlReader {
 public:
  PpoReader(JobKeys& keys, Job& job) : VerlReader(keys, job, kActor) {}

  void read(const TypedBesideJob& typed) {
    const std::int64_t gpus = keys_.integer("trainer.n_gpus_per_node").value_or(8);
    const std::int64_t nodes = keys_.integer("trainer.nnodes").value_or(1);
    add(PlanChoice::Gpus, std::to_string(gpus), "trainer.n_gpus_per_node");
    add(PlanChoice::Nodes, std::to_string(nodes), "trainer.nnodes");
    const std::int64_t ranks = typed.gpus.value_or(product(gpus, nodes));
    say_engine(actor("strategy"), ranks);
    refuse_losses();
    say_batch(ranks);
    say_roles();
  }

 private:
  static std::string actor(std::string_view key) { return fmt::format("actor_rollout_ref.actor.{}", key); }
  static std::string rollout(std::string_view key) { return fmt::format("actor_rollout_ref.rollout.{}", key); }

  void refuse_losses() {
    if (keys_.number(actor("entropy_coeff")).value_or(0) != 0 || is_on(actor("calculate_entropy"))) {
      keys_.refuse(keys_.has(actor("entropy_coeff")) ? actor("entropy_coeff") : actor("calculate_entropy"),
                   "An entropy beside the loss is not predicted.", "Write entropy_coeff=0.");
    }
    expect_no_padding(actor("use_remove_padding"));
  }

  void say_batch(std::int64_t ranks) {
    RowsOfStep step{.rows_key = actor("ppo_mini_batch_size"),
                    .most_key = actor("ppo_max_token_len_per_gpu"),
                    .micro_key = actor("ppo_micro_batch_size_per_gpu"),
                    .longest_key = "data.max_response_length"};
    const std::int64_t answers = keys_.integer(rollout("n")).value_or(1);
    step.rows = product(keys_.integer(step.rows_key).value_or(256), answers);
    step.longest =
        keys_.integer("data.max_prompt_length").value_or(512) + keys_.integer("data.max_response_length").value_or(512);
    step.is_dynamic = is_on(actor("use_dynamic_bsz"));
    step.most = keys_.integer(step.most_key).value_or(16384);
    step.of_micro = keys_.integer(step.micro_key).value_or(0);
    say_rows(step, ranks);
    const std::int64_t scored = keys_.integer(rollout("log_prob_max_token_len_per_gpu")).value_or(step.most);
    if (step.is_dynamic && scored > step.most) {
      job_.notes.push_back(
          fmt::format("Log probabilities are computed for {} tokens at a time, without gradients: the logits of that "
                      "turn are not predicted.",
                      scored));
    }
  }

  /// What the other roles leave on the GPUs. After weights have gone to the engine verl switches expandable segments
  /// on.
  void say_roles() {
    if (keys_.word(rollout("checkpoint_engine.backend")).value_or("naive") == "naive") {
      add(PlanChoice::AllocConf, "expandable_segments:True", rollout("checkpoint_engine.backend"));
    }
    if (const std::string name = keys_.word("algorithm.adv_estimator").value_or("gae"); name == "gae") {
      keys_.refuse("algorithm.adv_estimator", "A critic beside the actor is not predicted, which gae needs.",
                   "Write another estimator, such as grpo.");
    }
    const double share = keys_.number(rollout("gpu_memory_utilization")).value_or(0.5);
    const std::string engine_name = keys_.word(rollout("name")).value_or("vllm");
    const bool moves_parameters = is_on(engine("param_offload"));
    const bool moves_states = is_on(engine("optimizer_offload"));
    const bool is_on_host = is_on(engine("offload_policy"));
    job_.notes.push_back(fmt::format("The update of the actor is planned, and the turn of {}.", engine_name));
    if (keys_.flag(rollout("free_cache_engine")).value_or(true)) {
      job_.engine = SleepingEngine{.name = engine_name,
                                   .share = share,
                                   .keeps_parameters = !moves_parameters && !is_on_host,
                                   .keeps_states = !moves_states && !is_on_host};
    } else {
      add(PlanChoice::ReserveMemory, fmt::format("{:g}%", share * 100), rollout("gpu_memory_utilization"));
    }
    if (is_on(actor("use_kl_loss")) || is_on("algorithm.use_kl_in_reward")) {
      job_.notes.emplace_back(
          "The parameters of the reference model are in host memory, and pass through the GPU unit by unit in its "
          "turn.");
    }
    if (moves_parameters || moves_states) {
      job_.notes.push_back(fmt::format("{} are in host memory between updates of the actor, and on the GPU in them.",
                                       moves_parameters && moves_states ? "Parameters and optimizer states"
                                       : moves_parameters               ? "Parameters"
                                                                        : "Optimizer states"));
    }
  }
};

class SftReader : VerlReader {
 public:
  SftReader(JobKeys& keys, Job& job) : VerlReader(keys, job, kSft) {}

  void read(const JsonDocument& machines, const TypedBesideJob& typed) {
    say_torchrun(machines, job_);
    const auto number = [&](PlanChoice choice) {
      const JobWord* word = word_of(job_, choice);
      const double value = word == nullptr ? 1 : parse_number(word->text).value_or(1);
      return static_cast<std::int64_t>(std::min(value, kMostRanks));
    };
    if (word_of(job_, PlanChoice::Gpus) == nullptr && !typed.gpus) {
      keys_.refuse("trainer.n_gpus_per_node", "The line does not count its processes.",
                   "Write torchrun --nproc_per_node 8 in front of -m verl.trainer.sft_trainer.");
    }
    const std::int64_t ranks = typed.gpus.value_or(product(number(PlanChoice::Gpus), number(PlanChoice::Nodes)));
    say_engine("engine.strategy", ranks);
    RowsOfStep step{.rows_key = "data.train_batch_size",
                    .most_key = "data.max_token_len_per_gpu",
                    .micro_key = "data.micro_batch_size_per_gpu",
                    .longest_key = "data.max_length"};
    step.rows = keys_.integer(step.rows_key).value_or(256);
    step.longest = keys_.integer(step.longest_key).value_or(1024);
    step.is_dynamic = keys_.flag("data.use_dynamic_bsz").value_or(true);
    step.most = keys_.integer(step.most_key).value_or(8192);
    step.of_micro = keys_.integer(step.micro_key).value_or(4);
    say_rows(step, ranks);
  }
};

constexpr std::string_view kInstead =
    "A rehearsal runs it: fsdp-plan rehearse -- and the line that starts the training.";

Job new_job() {
  return {.program = std::string(kProgram), .model = {}, .trainer = {}, .words = {}, .notes = {}};
}

Result<Job> ppo_job(const JobLaunch& launch) {
  Errors errors;
  Job job = new_job();
  JobKeys keys({{&launch.line, verl_ppo_keys()}}, std::string(kInstead), errors);
  PpoReader(keys, job).read(launch.typed);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

Result<Job> sft_job(const JobLaunch& launch) {
  Errors errors;
  Job job = new_job();
  JobKeys keys({{&launch.line, verl_sft_keys()}}, std::string(kInstead), errors);
  SftReader(keys, job).read(launch.launch_line, launch.typed);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return job;
}

constexpr KeyChange kPpoChanges[] = {
    {PlanChoice::Reshard, "actor_rollout_ref.actor.fsdp_config.reshard_after_forward: true"},
    {PlanChoice::Reshard, "actor_rollout_ref.actor.fsdp_config.reshard_after_forward: false"},
    {PlanChoice::Checkpoint, "actor_rollout_ref.model.enable_gradient_checkpointing: true"},
    {PlanChoice::Checkpoint, "actor_rollout_ref.model.enable_gradient_checkpointing: false"},
    {PlanChoice::GradientSync, "actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation: true"},
    {PlanChoice::GradientSync, "actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation: false"},
    {PlanChoice::Prefetch, "actor_rollout_ref.actor.fsdp_config.forward_prefetch: true"},
};
constexpr KeyChange kSftChanges[] = {
    {PlanChoice::Reshard, "engine.reshard_after_forward: true"},
    {PlanChoice::Reshard, "engine.reshard_after_forward: false"},
    {PlanChoice::Checkpoint, "model.enable_gradient_checkpointing: true"},
    {PlanChoice::Checkpoint, "model.enable_gradient_checkpointing: false"},
    {PlanChoice::GradientSync, "engine.use_no_sync_for_gradient_accumulation: true"},
    {PlanChoice::GradientSync, "engine.use_no_sync_for_gradient_accumulation: false"},
    {PlanChoice::Prefetch, "engine.forward_prefetch: true"},
};
constexpr JobProgram kPpoProgram = {ppo_job, kPpoChanges, {}, 1, OptionName::Override};
constexpr JobProgram kSftProgram = {sft_job, kSftChanges, {}, 1, OptionName::Override};

/// The place of a module of verl after -m. 0 for other lines.
std::size_t place_of_module(std::span<const std::string> words) {
  for (std::size_t w = 1; w < words.size(); ++w) {
    if ((words[w] == kPpoModule || words[w] == kSftModule) && words[w - 1] == "-m") return w;
  }
  return 0;
}

}  // namespace

bool is_verl_line(std::span<const std::string> words) {
  return place_of_module(words) > 0;
}

Result<JobSource> find_verl_line(std::span<const std::string> words) {
  const std::size_t place = place_of_module(words);
  const bool is_ppo = words[place] == kPpoModule;
  JobSource source{.program = is_ppo ? &kPpoProgram : &kSftProgram,
                   .launch = {},
                   .words = {words.begin(), words.end()},
                   .is_line = true,
                   .own = {place + 1, words.size()},
                   .of_launch = std::nullopt};
  source.launch.launch_line = machines_of_torchrun(words, place);
  FSDP_TRY(source.launch.line, ArgumentLine(words).overrides(place + 1, words.size()));
  return source;
}

}  // namespace fsdp::planner
