// What axolotl makes of its FSDP.
//
// Version 2 is a function of its own (fsdp2_prepare_model): each matrix of an adapter is a unit, and the classes are.
// The root is resharded like them, and gathered again in backward. Version 1 is accelerate's: the Trainer hands it
// PEFT's policy if there are adapters, reads backward_prefetch from a key that axolotl's schema drops, and so
// prefetches nothing. Trained flat parameters become float32, and the model runs under autocast.
//
// Sources: axolotl 0.19.0, monkeypatch/accelerate/fsdp2.py, utils/schemas/fsdp.py, utils/trainer.py (setup_fsdp_envs);
// transformers 5.16.1, training_args.py (_process_fsdp_args) and trainer.py; accelerate 1.13.0, accelerator.py
// (prepare_model), utils/dataclasses.py (FullyShardedDataParallelPlugin); peft 0.20.0 (fsdp_auto_wrap_policy).

#include "planner/jobs/axolotl_fsdp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/jobs/job_reader.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kVersionKey = "fsdp_config.fsdp_version";
constexpr std::string_view kClassesKey = "fsdp_config.transformer_layer_cls_to_wrap";
constexpr std::string_view kPolicyKey = "fsdp_config.auto_wrap_policy";
constexpr std::string_view kReshardKey = "fsdp_config.reshard_after_forward";
constexpr std::string_view kLoadingOfFsdp = "fsdp_config.cpu_ram_efficient_loading";
constexpr std::string_view kOffloadKey = "fsdp_config.offload_params";

class FsdpReader : JobReader {
 public:
  FsdpReader(JobKeys& keys, Job& job) : JobReader(keys, job) {}

  void read(AxolotlFsdp fsdp, bool has_adapters) {
    say_options();
    if (fsdp == AxolotlFsdp::Version2) {
      say_version_2();
      say_mesh();
    } else {
      say_version_1();
    }
    say_units(has_adapters);
    const bool is_quantized = keys_.flag("load_in_4bit").value_or(false);
    const bool loads_on_cpu = !keys_.flag(kLoadingOfFsdp).value_or(false) || fsdp == AxolotlFsdp::Version1;
    add(PlanChoice::Initialization, is_quantized ? "device" : loads_on_cpu ? "cpu" : "meta", kLoadingOfFsdp);
    add(PlanChoice::Offload, keys_.flag(kOffloadKey).value_or(false) ? "yes" : "no", kOffloadKey);
  }

 private:
  /// The older list.
  void say_options() {
    for (const std::string& option : keys_.words("fsdp")) {
      if (option == "full_shard" || option == "auto_wrap") continue;
      keys_.refuse("fsdp", fmt::format("The option \"{}\" was not compared with a run.", option),
                   "Write full_shard and auto_wrap, and the rest into fsdp_config.");
    }
  }

  void say_version_2() {
    add(PlanChoice::Runtime, "fsdp2", keys_.has("fsdp_version") ? "fsdp_version" : kVersionKey);
    add(PlanChoice::Reshard, keys_.flag(kReshardKey).value_or(true) ? "all" : "false", kReshardKey);
    if (keys_.flag(kOffloadKey).value_or(false)) {
      keys_.refuse(kOffloadKey, "Offloaded parameters of version 2 were not compared with a run.", "Write false.");
    }
    // What FSDP2 does if it is not told otherwise.
    add(PlanChoice::Prefetch, "0", "fsdp_config");
    add(PlanChoice::BackwardPrefetch, "1", "fsdp_config");
  }

  void say_mesh() {
    const std::int64_t copies = keys_.integer("dp_replicate_size").value_or(1);
    if (copies > 1) keys_.refuse("dp_replicate_size", "Copies of the model were not compared with a run.");
    add(PlanChoice::Replicate, "1", "dp_replicate_size");
    const auto shards = keys_.integer("dp_shard_size");
    if (shards && *shards > 1) add(PlanChoice::Shard, std::to_string(*shards), "dp_shard_size");
  }

  void say_version_1() {
    add(PlanChoice::Runtime, "fsdp1", "fsdp_config");
    add(PlanChoice::Strategy, "FULL_SHARD", "fsdp_config");
    for (const std::string_view key : {"dp_shard_size", "dp_replicate_size"}) {
      if (keys_.integer(key).value_or(1) > 1) keys_.refuse(key, "Version 1 has no mesh.", "Write fsdp_version: 2.");
    }
    add(PlanChoice::BackwardPrefetch, "0", "fsdp_config");
    if (keys_.has(kReshardKey)) {
      keys_.refuse(kReshardKey, "Under version 1 accelerate 1.13 takes a strategy's name, and axolotl true or false.",
                   "Remove it, or write fsdp_version: 2.");
    }
    if (keys_.flag("fsdp_config.use_orig_params").value_or(false)) {
      keys_.refuse("fsdp_config.use_orig_params", "Original parameters under version 1 were not compared with a run.",
                   "Write false.");
    } else if (!keys_.has("fsdp_config.use_orig_params")) {
      keys_.refuse("fsdp_config.use_orig_params",
                   "transformers switches it on under version 1, which was not compared "
                   "with a run.",
                   "Write false.");
    }
  }

  void say_units(bool has_adapters) {
    if (keys_.word(kPolicyKey).value_or("TRANSFORMER_BASED_WRAP") != "TRANSFORMER_BASED_WRAP") {
      return keys_.refuse(kPolicyKey, "Units by their size were not compared with a run.",
                          "Write TRANSFORMER_BASED_WRAP.");
    }
    const std::vector<std::string> classes = keys_.words(kClassesKey);
    if (classes.empty()) {
      return keys_.refuse(kClassesKey, "No class is named, and then accelerate 1.13 makes one unit of the whole model.",
                          "Write the class of the blocks, such as LlamaDecoderLayer.");
    }
    add(PlanChoice::Wrap, fmt::format("class:{}{}", fmt::join(classes, ","), has_adapters ? ",adapters" : ""),
        kClassesKey);
  }
};

}  // namespace

AxolotlFsdp fsdp_of_axolotl(JobKeys& keys) {
  if (keys.has("deepspeed")) return AxolotlFsdp::None;
  if (!keys.has("fsdp_config")) {
    keys.refuse(keys.has("fsdp") ? "fsdp" : "fsdp_config",
                keys.has("fsdp")
                    ? "Without fsdp_config axolotl 0.19 has no version of FSDP."
                    : "Without FSDP axolotl trains embeddings, head and norms in float32 beside weights in "
                      "bfloat16, which is not predicted.",
                "Write fsdp_config.");
    return AxolotlFsdp::None;
  }
  const std::string_view key = keys.has("fsdp_version") ? "fsdp_version" : kVersionKey;
  const std::int64_t version = keys.integer(key).value_or(1);
  if (version == 2) return AxolotlFsdp::Version2;
  if (version == 1) return AxolotlFsdp::Version1;
  keys.refuse(key, fmt::format("FSDP has no version {}.", version), "Write 1 or 2.");
  return AxolotlFsdp::None;
}

void say_fsdp_of_axolotl(JobKeys& keys, AxolotlFsdp fsdp, bool has_adapters, Job& job) {
  FsdpReader(keys, job).read(fsdp, has_adapters);
}

}  // namespace fsdp::planner
