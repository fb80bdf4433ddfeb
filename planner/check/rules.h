#pragma once

// The rules: a row each, and what a rule may ask and say.
//
// A rule reads a run and reports places. A new one is a function here and a row of the table in rules.cpp, with the
// code of the library that was read. No rule runs anything, and each was seen to hold in the release that it names.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/check/checked_run.h"
#include "planner/check/finding.h"

namespace fsdp::planner {

/// Collects what one rule finds.
class Reporter {
 public:
  explicit Reporter(std::string_view rule) : rule_(rule) {}

  /// Adds a finding at a key, and returns it for its cost and mend.
  Finding& add(Severity severity, const Setting& at, std::string what) {
    return add(severity, at.place(), std::move(what));
  }
  Finding& add(Severity severity, FindingPlace at, std::string what) {
    Finding finding;
    finding.rule = rule_;
    finding.severity = severity;
    finding.place = std::move(at);
    finding.what = std::move(what);
    return findings.emplace_back(std::move(finding));
  }

  std::vector<Finding> findings;

 private:
  std::string_view rule_;
};

// The mends of a finding.
inline void advise(Finding& finding, std::string sentence) {
  finding.mend = {Mend::How::Advice, {}, std::move(sentence)};
}
inline void replace(Finding& finding, const Setting& at, std::string value) {
  finding.mend = {Mend::How::Replace, at.key, std::move(value)};
}
inline void remove(Finding& finding, const Setting& at) {
  finding.mend = {Mend::How::Remove, at.key, {}};
}
/// What it costs. `of` says of what: "on each GPU".
inline void costs(Finding& finding, std::int64_t bytes, std::string of) {
  finding.cost = Bytes(bytes);
  finding.cost_of = std::move(of);
}

struct Rule {
  std::string_view id;       ///< In kebab-case.
  std::string_view title;    ///< A sentence: the mistake.
  std::string_view release;  ///< The release whose code was read: "accelerate 1.15.0".
  std::string_view source;   ///< The file and function in it, or a public thread.
  void (*find)(const CheckedRun&, Reporter&);
};

/// In the order of a user's decisions.
std::span<const Rule> rules();
const Rule& rule_named(std::string_view id);

/// All findings of a run: errors first, then by file, line and column.
std::vector<Finding> check(const CheckedRun& run);

// key_rules.cpp
void find_unknown_keys(const CheckedRun& run, Reporter& report);
void find_renamed_keys(const CheckedRun& run, Reporter& report);
void find_invalid_values(const CheckedRun& run, Reporter& report);
// launcher_rules.cpp
void find_missing_launch_keys(const CheckedRun& run, Reporter& report);
void find_unquoted_no(const CheckedRun& run, Reporter& report);
void find_unused_sections(const CheckedRun& run, Reporter& report);
void find_uneven_processes(const CheckedRun& run, Reporter& report);
void find_few_gpu_ids(const CheckedRun& run, Reporter& report);
void find_mesh_mismatch(const CheckedRun& run, Reporter& report);
void find_mesh_without_shard(const CheckedRun& run, Reporter& report);
// fsdp_rules.cpp
void find_missing_version(const CheckedRun& run, Reporter& report);
void find_keys_of_version_1(const CheckedRun& run, Reporter& report);
void find_reshard_of_version_1(const CheckedRun& run, Reporter& report);
void find_reshard_that_is_ignored(const CheckedRun& run, Reporter& report);
void find_sync_module_states_off(const CheckedRun& run, Reporter& report);
void find_checkpoint_offload_alone(const CheckedRun& run, Reporter& report);
void find_local_state_dict(const CheckedRun& run, Reporter& report);
void find_hybrid_on_one_node(const CheckedRun& run, Reporter& report);
void find_trainer_fsdp_off(const CheckedRun& run, Reporter& report);
void find_trainer_fsdp_text(const CheckedRun& run, Reporter& report);
// wrapping_rules.cpp
void find_root_only(const CheckedRun& run, Reporter& report);
void find_unused_classes(const CheckedRun& run, Reporter& report);
void find_class_lists(const CheckedRun& run, Reporter& report);
void find_unknown_classes(const CheckedRun& run, Reporter& report);
// memory_rules.cpp
void find_every_rank_loads(const CheckedRun& run, Reporter& report);
void find_gathered_parameters(const CheckedRun& run, Reporter& report);
void find_unsharded_gradients(const CheckedRun& run, Reporter& report);
void find_full_state_dict(const CheckedRun& run, Reporter& report);
void find_float32_base(const CheckedRun& run, Reporter& report);
void find_packing_with_mask(const CheckedRun& run, Reporter& report);
void find_whole_quantized_base(const CheckedRun& run, Reporter& report);
void find_mixed_quantized_dtypes(const CheckedRun& run, Reporter& report);
// trainer_rules.cpp
void find_two_checkpointings(const CheckedRun& run, Reporter& report);
void find_optimizers_without_dtensors(const CheckedRun& run, Reporter& report);
void find_fp16_and_bf16(const CheckedRun& run, Reporter& report);
void find_overridden_precision(const CheckedRun& run, Reporter& report);
void find_save_only_model(const CheckedRun& run, Reporter& report);
void find_best_model_strategies(const CheckedRun& run, Reporter& report);
void find_auto_batch_under_zero3(const CheckedRun& run, Reporter& report);
void find_quantized_without_adapters(const CheckedRun& run, Reporter& report);
// trl_rules.cpp
void find_unbounded_padding_free(const CheckedRun& run, Reporter& report);
void find_refused_losses(const CheckedRun& run, Reporter& report);
void find_liger_loss(const CheckedRun& run, Reporter& report);
void find_selective_checkpointing(const CheckedRun& run, Reporter& report);
void find_forced_reentrant(const CheckedRun& run, Reporter& report);
void find_packing_under_context_parallel(const CheckedRun& run, Reporter& report);
void find_adapter_on_head(const CheckedRun& run, Reporter& report);
// axolotl_rules.cpp
void find_unknown_axolotl_keys(const CheckedRun& run, Reporter& report);
void find_axolotl_version_1(const CheckedRun& run, Reporter& report);
void find_axolotl_keys_of_version_1(const CheckedRun& run, Reporter& report);
void find_axolotl_wrapping(const CheckedRun& run, Reporter& report);
void find_axolotl_loading(const CheckedRun& run, Reporter& report);
void find_axolotl_packing(const CheckedRun& run, Reporter& report);
void find_axolotl_checkpoints_twice(const CheckedRun& run, Reporter& report);
void find_axolotl_optimizers(const CheckedRun& run, Reporter& report);
void find_axolotl_plugins(const CheckedRun& run, Reporter& report);
void find_axolotl_pinned_memory(const CheckedRun& run, Reporter& report);
// deepspeed_rules.cpp
void find_removed_keys(const CheckedRun& run, Reporter& report);
void find_zero3_init(const CheckedRun& run, Reporter& report);
void find_stage3_keys(const CheckedRun& run, Reporter& report);
void find_offload_without_stage3(const CheckedRun& run, Reporter& report);
void find_two_precisions(const CheckedRun& run, Reporter& report);
void find_launch_precision(const CheckedRun& run, Reporter& report);
void find_deepspeed_batches(const CheckedRun& run, Reporter& report);
void find_trainer_mismatch(const CheckedRun& run, Reporter& report);
void find_fields_beside_file(const CheckedRun& run, Reporter& report);
void find_second_bucket(const CheckedRun& run, Reporter& report);

}  // namespace fsdp::planner
