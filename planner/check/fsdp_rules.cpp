// Versions of FSDP and what each does with the other's keys.
//
// `accelerate launch` sets an environment variable for each key, also for those that are unset, and the plugin reads
// those that its version knows. So a key of the other version has no effect, and often no warning.
//
// Sources: accelerate 1.15.0, utils/launch.py (prepare_multi_gpu_env), utils/dataclasses.py
// (FullyShardedDataParallelPlugin.__post_init__, set_state_dict_type), accelerator.py (prepare_model: sharding_strategy
// counts before reshard_after_forward); transformers 5.24.0, training_args.py (_process_fsdp_args,
// _apply_legacy_fsdp_to_config); torch 2.11, distributed/fsdp/_init_utils.py (_init_intra_and_inter_node_groups).

#include <fmt/format.h>

#include <string>

#include "planner/check/rules.h"

namespace fsdp::planner {

namespace {

/// Whether a strategy of FSDP1, by its name or number, gathers parameters again in backward.
bool frees_after_forward(const Setting& strategy) {
  const std::string word = strategy.upper();
  return word == "FULL_SHARD" || word == "1" || word == "HYBRID_SHARD" || word == "4";
}

}  // namespace

void find_missing_version(const CheckedRun& run, Reporter& report) {
  const Setting section = run.launch("fsdp_config");
  if (!run.launches_fsdp() || run.trainer_has_fsdp() || !section || run.launch_fsdp("version")) return;
  Finding& found = report.add(Severity::Note, section, "Without fsdp_version accelerate runs FSDP1.");
  advise(found, "Add fsdp_version: 2 to fsdp_config, or fsdp_version: 1 to keep FSDP1.");
}

void find_keys_of_version_1(const CheckedRun& run, Reporter& report) {
  if (!run.launches_fsdp() || run.trainer_has_fsdp() || run.fsdp_version() != 2) return;
  if (const Setting strategy = run.launch_fsdp("sharding_strategy")) {
    const bool is_default = strategy.upper() == "FULL_SHARD" || strategy.is("1");
    const bool frees = frees_after_forward(strategy);
    Finding& found = report.add(
        is_default ? Severity::Note : Severity::Error, strategy,
        is_default ? "FSDP2 ignores fsdp_sharding_strategy; FULL_SHARD is its default."
                   : fmt::format("FSDP2 ignores fsdp_sharding_strategy without a word: {} becomes FULL_SHARD.",
                                 strategy.text()));
    if (is_default || frees) {
      remove(found, strategy);
    } else {
      advise(found, "Write fsdp_reshard_after_forward: false in its place.");
    }
  }
  if (const Setting forward = run.launch_fsdp("forward_prefetch"); forward.is_on()) {
    remove(report.add(Severity::Warning, forward,
                      "FSDP2 ignores fsdp_forward_prefetch without a word, and prefetches nothing more."),
           forward);
  }
  if (const Setting backward = run.launch_fsdp("backward_prefetch"); backward && backward.upper() != "NO_PREFETCH") {
    remove(report.add(Severity::Note, backward,
                      "FSDP2 ignores fsdp_backward_prefetch with a warning in the log; it prefetches by itself."),
           backward);
  }
  for (const std::string_view key : {"use_orig_params", "sync_module_states"}) {
    const Setting ignored = run.launch_fsdp(key);
    // sync-module-states-off has the other value.
    if (!ignored || (key == "sync_module_states" && !ignored.is_on())) continue;
    remove(report.add(Severity::Note, ignored, fmt::format("FSDP2 ignores fsdp_{}.", key)), ignored);
  }
}

void find_reshard_of_version_1(const CheckedRun& run, Reporter& report) {
  if (!run.uses_fsdp() || run.fsdp_version() != 2) return;
  const Setting reshard = run.fsdp("reshard_after_forward");
  if (!reshard || reshard.flag()) return;
  const bool frees = frees_after_forward(reshard);
  replace(report.add(Severity::Error, reshard,
                     fmt::format("FSDP2 takes true or false, and the launch ends with \"invalid truth value {}\".",
                                 reshard.text())),
          reshard, frees ? "true" : "false");
}

void find_reshard_that_is_ignored(const CheckedRun& run, Reporter& report) {
  if (!run.launches_fsdp() || run.trainer_has_fsdp() || run.fsdp_version() != 1) return;
  const Setting reshard = run.launch_fsdp("reshard_after_forward");
  const Setting strategy = run.launch_fsdp("sharding_strategy");
  if (!reshard) return;
  const std::string runs = strategy ? strategy.text() : "FULL_SHARD";
  const bool frees = reshard.flag() ? *reshard.flag() : frees_after_forward(reshard);
  const bool runs_so = strategy ? frees_after_forward(strategy) : true;
  if (frees == runs_so) return;
  Finding& found = report.add(Severity::Error, reshard,
                              fmt::format("FSDP1 ignores fsdp_reshard_after_forward, because accelerate always sets "
                                          "fsdp_sharding_strategy: {} runs.",
                                          runs));
  advise(found, frees ? "Write fsdp_sharding_strategy: FULL_SHARD, or fsdp_version: 2."
                      : "Write fsdp_sharding_strategy: SHARD_GRAD_OP in its place, or fsdp_version: 2.");
}

void find_sync_module_states_off(const CheckedRun& run, Reporter& report) {
  if (!run.launches_fsdp() || run.trainer_has_fsdp()) return;
  const Setting sync = run.launch_fsdp("sync_module_states");
  const Setting loading = run.launch_fsdp("cpu_ram_efficient_loading");
  // On a line both are texts, and any text counts as true there.
  const bool is_off = sync && sync.value->type == JsonType::Bool && !sync.value->boolean;
  const bool loads_once = !loading || loading.value->type != JsonType::Bool || loading.value->boolean;
  if (!is_off || !loads_once) return;
  replace(report.add(Severity::Error, sync,
                     "accelerate refuses to launch: fsdp_cpu_ram_efficient_loading, which is on unless it is false, "
                     "needs fsdp_sync_module_states."),
          sync, "true");
}

void find_checkpoint_offload_alone(const CheckedRun& run, Reporter& report) {
  if (!run.launches_fsdp() || run.trainer_has_fsdp()) return;
  const Setting offload = run.launch_fsdp("activation_checkpointing_offload");
  if (!offload.is_on()) return;
  if (!run.launch_fsdp("activation_checkpointing").is_on()) {
    advise(report.add(Severity::Error, offload, "accelerate refuses it without fsdp_activation_checkpointing: true."),
           "Write fsdp_activation_checkpointing: true.");
  } else if (run.fsdp_version() != 2) {
    advise(report.add(Severity::Error, offload, "accelerate refuses it with fsdp_version 1."),
           "Write fsdp_version: 2, or remove it.");
  }
}

void find_local_state_dict(const CheckedRun& run, Reporter& report) {
  const Setting type = run.fsdp("state_dict_type");
  if (run.fsdp_version() != 2 || (type.upper() != "LOCAL_STATE_DICT" && !type.is("2"))) return;
  replace(report.add(Severity::Error, type, "accelerate refuses LOCAL_STATE_DICT under FSDP2."), type,
          "SHARDED_STATE_DICT");
}

void find_hybrid_on_one_node(const CheckedRun& run, Reporter& report) {
  if (!run.launches_fsdp() || run.trainer_has_fsdp() || run.fsdp_version() != 1 || run.machines() > 1) return;
  const Setting strategy = run.launch_fsdp("sharding_strategy");
  const std::string word = strategy.upper();
  const bool is_hybrid = word == "HYBRID_SHARD" || word == "4" || word == "HYBRID_SHARD_ZERO2" || word == "5";
  if (!is_hybrid) return;
  replace(report.add(Severity::Warning, strategy,
                     "On one machine HYBRID_SHARD shards over all GPUs as FULL_SHARD does, and all-reduces each "
                     "gradient in a group of one GPU besides."),
          strategy, word == "HYBRID_SHARD" || word == "4" ? "FULL_SHARD" : "SHARD_GRAD_OP");
}

void find_trainer_fsdp_off(const CheckedRun& run, Reporter& report) {
  const Setting config = run.trainer("fsdp_config");
  if (!config || run.trainer_has_fsdp() || (config.value->members.empty() && config.text().empty())) return;
  advise(report.add(Severity::Error, config, "The Trainer ignores fsdp_config without fsdp, and shards nothing by it."),
         run.launches_fsdp() ? "Remove it: the launch configuration has FSDP." : "Add fsdp: true.");
}

void find_trainer_fsdp_text(const CheckedRun& run, Reporter& report) {
  const Setting fsdp = run.trainer("fsdp");
  if (!run.trainer_has_fsdp() || fsdp.flag()) return;
  std::string words = fsdp.text();
  for (const JsonValue& element : fsdp.value->elements) words += " " + element.text;
  if (run.fsdp_version() == 2 &&
      (words.find("hybrid_shard") != std::string::npos || words.find("no_shard") != std::string::npos)) {
    advise(report.add(Severity::Error, fsdp, "Under FSDP2, its default, the Trainer refuses this strategy."),
           "Write fsdp: true, or version: 1 in fsdp_config.");
    return;
  }
  replace(report.add(Severity::Note, fsdp, "Words in fsdp are deprecated; fsdp_config has the settings."), fsdp,
          "true");
}

}  // namespace fsdp::planner
