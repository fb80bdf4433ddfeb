// Names and values that a program does not know.
//
// Sources: accelerate 1.15.0, commands/config/config_args.py (unknown keys of a file are refused, those of its sections
// are set and never read), utils/constants.py, utils/dataclasses.py (DistributedType); DeepSpeed 0.19.8,
// runtime/config_utils.py (extra="forbid" for sections, none for the file itself); trl 1.16.0, scripts/utils.py
// (TrlParser: unknown arguments are refused); transformers 5.24.0, training_args.py.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/split.h"
#include "core/formats/deepspeed_keys.h"
#include "planner/check/rules.h"
#include "planner/jobs/job_builder.h"
#include "planner/jobs/launch_line.h"
#include "planner/jobs/trl_keys.h"

namespace fsdp::planner {

namespace {

using Names = std::vector<std::string_view>;

/// Keys of accelerate's files that its jobs do not read: older spellings that it converts, and those of TPUs.
constexpr std::string_view kOlderLaunchKeys[] = {"fp16", "dynamo_backend", "command_file", "commands", "tpu_vm"};
constexpr std::string_view kLaunchDeepSpeedKeys[] = {"deepspeed_config_file",
                                                     "zero_stage",
                                                     "offload_optimizer_device",
                                                     "offload_param_device",
                                                     "offload_optimizer_nvme_path",
                                                     "offload_param_nvme_path",
                                                     "gradient_accumulation_steps",
                                                     "gradient_clipping",
                                                     "zero3_init_flag",
                                                     "zero3_save_16bit_model",
                                                     "deepspeed_hostfile",
                                                     "deepspeed_exclusion_filter",
                                                     "deepspeed_inclusion_filter",
                                                     "deepspeed_multinode_launcher",
                                                     "deepspeed_moe_layer_cls_names"};

constexpr std::string_view kSequenceKeys[] = {"parallelism_config_sp_seq_length",
                                              "parallelism_config_sp_seq_length_is_variable",
                                              "parallelism_config_sp_attn_implementation"};

/// An older name, which the release that was read no longer takes.
struct RenamedKey {
  std::string_view old;
  std::string_view now;
  std::string_view since;  ///< What became of it.
};
constexpr RenamedKey kRenamedTrainerKeys[] = {
    {"max_seq_length", "max_length", "TRL renamed it"},
    {"torch_dtype", "dtype", "TRL renamed it"},
    {"evaluation_strategy", "eval_strategy", "transformers renamed it"},
    {"warmup_ratio", "warmup_steps", "transformers takes a share below 1 as warmup_steps"},
    {"dataset_batch_size", "", "TRL removed it"},
    {"use_liger", "use_liger_kernel", "TRL renamed it"},
    {"group_by_length", "train_sampling_strategy", "transformers takes group_by_length as a strategy"},
    {"overwrite_output_dir", "", "transformers removed it"},
    {"no_cuda", "use_cpu", "transformers renamed it"},
};
constexpr RenamedKey kRenamedLaunchKeys[] = {
    {"fsdp_backward_prefetch_policy", "fsdp_backward_prefetch", "accelerate renamed it"},
};

Names names_below(std::span<const JobKey> table, std::string_view prefix) {
  Names names;
  for (const JobKey& row : table) {
    if (!row.name.starts_with(prefix)) continue;
    const std::string_view rest = row.name.substr(prefix.size());
    if (rest.find('.') == std::string_view::npos) names.push_back(rest);
  }
  return names;
}

Names names_of(std::span<const DeepSpeedKey> table) {
  Names names;
  for (const DeepSpeedKey& row : table) names.push_back(row.name);
  return names;
}

bool has_name(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const RenamedKey* renamed(std::span<const RenamedKey> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const RenamedKey& row) { return row.old == name; });
  return found == table.end() ? nullptr : &*found;
}

/// What a program does with an unknown key.
enum class Unknown : std::uint8_t {
  Refused,
  Ignored,   ///< Without a word: a slip is an error, another name is a note.
  OfScript,  ///< It may be an argument of the script's own: only a slip is worth a word.
};

/// Checks the members of one object.
void check_members(const JsonDocument& document, const JsonValue* object, const Names& known, Unknown unknown,
                   std::string_view program, Reporter& report) {
  if (object == nullptr) return;
  for (const JsonMember& member : object->members) {
    if (has_name(known, member.key) || (program == "TRL" && is_of_launch(member.key))) continue;
    const std::optional<std::string> nearest = nearest_name(member.key, known);
    if (unknown == Unknown::OfScript && !nearest) continue;
    const bool fails = unknown == Unknown::Refused;
    const Severity severity = fails                          ? Severity::Error
                              : unknown == Unknown::OfScript ? Severity::Warning
                              : nearest                      ? Severity::Error
                                                             : Severity::Note;
    Finding& found =
        report.add(severity, place_of(document, member),
                   unknown == Unknown::OfScript
                       ? fmt::format("{} is no argument of {}.", member.key, program)
                       : fmt::format("{} {} {}.", program,
                                     fails ? "refuses the unknown key" : "ignores the unknown key", member.key));
    if (nearest) {
      advise(found, fmt::format("Did you mean {}?", *nearest));
    } else {
      remove(found, {member.key, nullptr, nullptr});
    }
  }
}

void check_launch(const JsonDocument& document, Reporter& report) {
  const bool is_line = document.name == "command";
  const auto table = accelerate_keys();
  Names top = names_below(table, "");
  top.insert(top.end(), std::begin(kOlderLaunchKeys), std::end(kOlderLaunchKeys));
  if (!is_line) check_members(document, &document.root, top, Unknown::Refused, "accelerate", report);
  Names fsdp = names_below(table, "fsdp_config.");
  for (const RenamedKey& row : kRenamedLaunchKeys) fsdp.push_back(row.old);
  const std::size_t with_prefix = fsdp.size();
  for (std::size_t i = 0; i < with_prefix; ++i) fsdp.push_back(fsdp[i].substr(std::string_view("fsdp_").size()));
  check_members(document, document.root.find("fsdp_config"), fsdp, Unknown::Ignored, "accelerate", report);
  Names mesh = names_below(table, "parallelism_config.");
  mesh.insert(mesh.end(), std::begin(kSequenceKeys), std::end(kSequenceKeys));
  check_members(document, document.root.find("parallelism_config"), mesh, Unknown::Ignored, "accelerate", report);
  const Names deepspeed(std::begin(kLaunchDeepSpeedKeys), std::end(kLaunchDeepSpeedKeys));
  check_members(document, document.root.find("deepspeed_config"), deepspeed, Unknown::Ignored, "accelerate", report);
}

void check_deepspeed(const JsonDocument& document, Reporter& report) {
  check_members(document, &document.root, names_of(deepspeed_keys()), Unknown::Ignored, "DeepSpeed", report);
  const auto section = [&](const JsonValue& object, std::string_view key, std::span<const DeepSpeedKey> table) {
    check_members(document, object.find(key), names_of(table), Unknown::Refused, "DeepSpeed", report);
  };
  section(document.root, "zero_optimization", deepspeed_zero_keys());
  section(document.root, "bf16", deepspeed_bf16_keys());
  section(document.root, "fp16", deepspeed_fp16_keys());
  if (const JsonValue* zero = document.root.find("zero_optimization")) {
    section(*zero, "offload_optimizer", deepspeed_offload_optimizer_keys());
    section(*zero, "offload_param", deepspeed_offload_param_keys());
  }
}

struct KnownValues {
  std::string_view key;
  std::string_view values;  ///< "|" between them.
  bool is_fsdp = false;     ///< A key of fsdp_config.
  bool any_case = true;
};
constexpr KnownValues kValues[] = {
    {"distributed_type",
     "NO|MULTI_CPU|MULTI_GPU|MULTI_NPU|MULTI_MLU|MULTI_SDAA|MULTI_MUSA|MULTI_XPU|MULTI_HPU|MULTI_NEURON|DEEPSPEED|FSDP|"
     "XLA|MEGATRON_LM",
     false, false},
    {"mixed_precision", "no|fp8|fp16|bf16"},
    {"version", "1|2", true},
    {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP|NO_WRAP", true},
    {"state_dict_type", "FULL_STATE_DICT|LOCAL_STATE_DICT|SHARDED_STATE_DICT|1|2|3", true},
    {"backward_prefetch", "BACKWARD_PRE|BACKWARD_POST|NO_PREFETCH|1|2", true},
};
constexpr KnownValues kStrategies = {
    "sharding_strategy", "FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|HYBRID_SHARD_ZERO2|1|2|3|4|5", true};

void check_value(const CheckedRun& run, const KnownValues& row, Reporter& report) {
  const Setting setting = row.is_fsdp ? run.launch_fsdp(row.key) : run.launch(row.key);
  if (!setting || setting.value->type == JsonType::Bool) return;
  const std::string written = setting.text();
  Setting known_value = setting;
  for (const std::string_view known : split(row.values, '|')) {
    JsonValue value;
    value.type = JsonType::String;
    value.text = std::string(known);
    known_value.value = &value;
    if (written == known || (row.any_case && setting.upper() == known_value.upper())) return;
  }
  const Names names = split(row.values, '|');
  Finding& found =
      report.add(Severity::Error, setting,
                 fmt::format("accelerate ends with an error: \"{}\" is no value of {}.", written, setting.key));
  const std::optional<std::string> nearest = nearest_name(written, names);
  if (nearest) {
    replace(found, setting, *nearest);
  } else {
    advise(found, suggest_name(written, names));
  }
}

}  // namespace

void find_unknown_keys(const CheckedRun& run, Reporter& report) {
  for (const JsonDocument* document : run.layers_of(ConfigurationKind::Launch)) {
    if (!document->is_translated) check_launch(*document, report);
  }
  for (const JsonDocument* document : run.layers_of(ConfigurationKind::DeepSpeed)) check_deepspeed(*document, report);
  Names trainer = names_below(trl_sft_keys(), "");
  for (const RenamedKey& row : kRenamedTrainerKeys) trainer.push_back(row.old);
  trainer.push_back("config");
  for (const JsonDocument* document : run.layers_of(ConfigurationKind::Trainer)) {
    check_members(*document, &document->root, trainer, run.is_sft ? Unknown::Refused : Unknown::OfScript,
                  run.is_sft ? "TRL" : "the Trainer", report);
  }
}

void find_renamed_keys(const CheckedRun& run, Reporter& report) {
  for (const JsonDocument* document : run.layers_of(ConfigurationKind::Trainer)) {
    for (const JsonMember& member : document->root.members) {
      const RenamedKey* row = renamed(kRenamedTrainerKeys, member.key);
      if (row == nullptr || (row->since.starts_with("TRL") && !run.is_sft)) continue;
      Finding& found = report.add(Severity::Error, place_of(*document, member),
                                  fmt::format("The run ends at the unknown key {}: {}.", member.key, row->since));
      if (row->now.empty()) {
        remove(found, {member.key, nullptr, nullptr});
      } else {
        advise(found, fmt::format("Write {}.", row->now));
      }
    }
  }
  for (const RenamedKey& row : kRenamedLaunchKeys) {
    const Setting old = run.launch(fmt::format("fsdp_config.{}", row.old));
    if (!old) continue;
    advise(report.add(Severity::Note, old, fmt::format("accelerate ignores {}.", row.old)),
           fmt::format("Write {}.", row.now));
  }
}

void find_invalid_values(const CheckedRun& run, Reporter& report) {
  for (const KnownValues& row : kValues) check_value(run, row, report);
  if (run.fsdp_version() == 1) check_value(run, kStrategies, report);
  if (run.wrap_policy() != "SIZE_BASED_WRAP") return;  // Others do not read it.
  const Setting least = run.launch_fsdp("min_num_params");
  if (least && least.value->type != JsonType::Null &&
      (!least.integer() || least.text().find_first_not_of("0123456789") != std::string::npos)) {
    advise(report.add(Severity::Error, least,
                      fmt::format("accelerate ends with an error: it reads \"{}\" as no integer.", least.text())),
           "Write digits alone: 100000000.");
  }
}

}  // namespace fsdp::planner
