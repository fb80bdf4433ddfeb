// Which program a file or a line is for, and the files that a line names. A file is told by its content: base_model is
// axolotl's key, model_name_or_path TRL's.
//
// Sources: trl 1.16.0, cli/commands/training.py, cli/accelerate_config.py and accelerate_configs/*.yaml; accelerate
// 1.15.0, commands/launch.py (launch_command_parser); axolotl 0.19.0, cli/main.py (train) and cli/utils/train.py.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/formats/yaml_document.h"
#include "planner/jobs/argument_object.h"
#include "planner/jobs/axolotl_job.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_builder.h"
#include "planner/jobs/trl_job.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kScript = "sft.py";
constexpr std::string_view kModule = "trl.scripts.sft";
constexpr std::string_view kAxolotlModule = "axolotl.cli.train";

/// The launch configurations in TRL's package. What they share is `kOfAll`.
struct ShippedLaunch {
  std::string_view name;
  std::string_view text;
};
constexpr std::string_view kOfAll = "{mixed_precision: bf16, num_machines: 1, num_processes: 8, ";
constexpr ShippedLaunch kShipped[] = {
    {"single_gpu", "distributed_type: 'NO'}"},
    {"multi_gpu", "distributed_type: MULTI_GPU}"},
    {"fsdp1",
     "distributed_type: FSDP, fsdp_config: {fsdp_version: 1, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
     "fsdp_sharding_strategy: FULL_SHARD, fsdp_forward_prefetch: true, fsdp_cpu_ram_efficient_loading: true}}"},
    {"fsdp2",
     "distributed_type: FSDP, fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
     "fsdp_reshard_after_forward: true, fsdp_cpu_ram_efficient_loading: true}}"},
    {"zero1", "distributed_type: DEEPSPEED, deepspeed_config: {zero_stage: 1}}"},
    {"zero2", "distributed_type: DEEPSPEED, deepspeed_config: {zero_stage: 2}}"},
    {"zero3", "distributed_type: DEEPSPEED, deepspeed_config: {zero_stage: 3, zero3_init_flag: true}}"},
};

}  // namespace

Result<JsonDocument> launcher_named(const std::string& name, const std::string& where) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name, ignored)) return read_yaml_file(name);
  std::vector<std::string_view> known;
  for (const ShippedLaunch& each : kShipped) {
    if (each.name == name) return parse_yaml(fmt::format("{}{}", kOfAll, each.text), "TRL's " + name);
    known.push_back(each.name);
  }
  return failure(where, fmt::format("\"{}\" is neither a file nor a launch configuration of TRL.", name),
                 suggest_name(name, known));
}

namespace {

std::string same_key(const std::string& name) {
  return name;
}

}  // namespace

std::string key_of_launch(const std::string& name) {
  for (const auto& [beginning, object] :
       {std::pair("fsdp_", "fsdp_config."), std::pair("deepspeed_", "deepspeed_config."),
        std::pair("zero_", "deepspeed_config."), std::pair("zero3_", "deepspeed_config."),
        std::pair("offload_", "deepspeed_config."), std::pair("parallelism_config_", "parallelism_config."),
        std::pair("dynamo_", "dynamo_config.")}) {
    if (name.starts_with(beginning)) return object + name;
  }
  return name;
}

bool is_of_launch(const std::string& name) {
  const std::string key = key_of_launch(name);
  if (key != name || name == "config_file" || name == "multi_gpu" || name == "use_fsdp") return true;
  const auto keys = accelerate_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const JobKey& row) { return row.name == name; });
}

namespace {

std::string own_key_of_trl(const std::string& name) {
  return is_of_launch(name) ? "" : name;
}

std::string launch_key_of_trl(const std::string& name) {
  return is_of_launch(name) ? key_of_launch(name) : "";
}

/// Moves what only says which kind of launch it is: --multi_gpu, --use_fsdp, --use_deepspeed.
void set_kind(JsonDocument& launch) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"multi_gpu", "MULTI_GPU"}, {"use_fsdp", "FSDP"}, {"use_deepspeed", "DEEPSPEED"}};
  for (JsonMember& member : launch.root.members) {
    for (const auto& [flag, kind] : kKinds) {
      if (member.key != flag) continue;
      member.key = "distributed_type";
      member.value.type = JsonType::String;
      member.value.text = kind;
    }
  }
}

JsonDocument no_arguments() {
  JsonDocument document;
  document.root.type = JsonType::Object;
  return document;
}

/// Takes a member out of an object: its text, and the place.
std::optional<std::pair<std::string, std::string>> taken(JsonDocument& document, std::string_view key) {
  auto& members = document.root.members;
  const auto found = std::find_if(members.begin(), members.end(), [&](const JsonMember& m) { return m.key == key; });
  if (found == members.end()) return std::nullopt;
  std::pair result(found->value.text, document.where(found->value.offset));
  members.erase(found);
  return result;
}

/// The files that the lines name.
Result<Job> with_files(TrlLaunch launch) {
  if (const auto config = taken(launch.line, "config")) {
    FSDP_TRY(launch.file, read_yaml_file(config->first));
  }
  if (const auto file = taken(launch.launch_line, "config_file")) {
    FSDP_TRY(launch.launcher, read_yaml_file(file->first));
  }
  for (JsonDocument* document : {&launch.line, launch.file ? &*launch.file : nullptr}) {
    if (document == nullptr || launch.launcher) continue;
    const auto named = taken(*document, "accelerate_config");
    if (named) {
      FSDP_TRY(launch.launcher, launcher_named(named->first, named->second));
    }
  }
  return trl_job(launch);
}

/// `accelerate launch [options] SCRIPT [arguments]`, or the module that is the same: the places of its options and its
/// script.
struct AccelerateLine {
  std::size_t options = 0;
  std::size_t script = 0;
};
std::optional<AccelerateLine> accelerate_line(std::span<const std::string> words) {
  std::size_t options = 0;
  if (words.size() > 2 && words[0] == "accelerate" && words[1] == "launch") options = 2;
  if (words.size() > 3 && words[1] == "-m" && words[2] == "accelerate.commands.launch") options = 3;
  for (std::size_t w = options; options > 0 && w < words.size(); ++w) {
    const bool is_file = std::filesystem::path(words[w]).filename() == kScript;
    if (is_file || words[w] == kModule || words[w] == kAxolotlModule) return AccelerateLine{options, w};
  }
  return std::nullopt;
}

bool starts_with(std::span<const std::string> words, std::string_view first, std::string_view second) {
  return words.size() > 1 && words[0] == first && words[1] == second;
}
bool is_trl_line(std::span<const std::string> words) {
  return starts_with(words, "trl", "sft");
}
bool is_axolotl_line(std::span<const std::string> words) {
  return starts_with(words, "axolotl", "train");
}

/// The key of axolotl that an option sets; none for --launcher, which only says what starts the processes.
std::string key_of_axolotl(const std::string& name) {
  return name == "launcher" ? "" : name;
}

/// Some of the words of a line.
struct WordRange {
  std::size_t from = 0;
  std::size_t to = 0;
};

/// `own`: axolotl's arguments, the file first. `launcher`: those of `accelerate launch`.
Result<Job> axolotl_line_job(std::span<const std::string> words, WordRange own, WordRange launcher) {
  const ArgumentLine line(words);
  if (own.from == own.to || words[own.from].starts_with("--")) {
    return failure(line.where(words.size() - 1), "The line names no configuration.", "Write axolotl train FILE.");
  }
  AxolotlLaunch launch;
  FSDP_TRY(launch.file, read_yaml_file(words[own.from]));
  FSDP_TRY(launch.line, line.object(own.from + 1, own.to, key_of_axolotl));
  FSDP_TRY(launch.launch_line, line.object(launcher.from, launcher.to, key_of_launch));
  set_kind(launch.launch_line);
  return axolotl_job(std::move(launch));
}

/// `axolotl train FILE [options] [-- arguments of accelerate launch]`
Result<Job> read_axolotl_line(std::span<const std::string> words) {
  const auto rule = std::find(words.begin(), words.end(), "--");
  const auto end = static_cast<std::size_t>(rule - words.begin());
  return axolotl_line_job(words, {2, end}, {std::min(end + 1, words.size()), words.size()});
}

Error not_read(std::span<const std::string> words) {
  return {"--", fmt::format("\"{}\" starts no training that is read without running it.", words.front()),
          "Read are trl sft, axolotl train, and accelerate launch with TRL's sft.py or -m axolotl.cli.train. fsdp-plan "
          "plan -- COMMAND captures any script."};
}

}  // namespace

bool is_job_line(std::span<const std::string> words) {
  return is_trl_line(words) || is_axolotl_line(words) || accelerate_line(words).has_value();
}

Result<std::optional<Job>> read_job(const std::string& path) {
  if (!path.ends_with(".yaml") && !path.ends_with(".yml")) return std::nullopt;
  Result<JsonDocument> file = read_yaml_file(path);
  if (!file) return std::nullopt;
  if (file->root.find("base_model") != nullptr) {
    return axolotl_job({.line = no_arguments(), .file = std::move(*file), .launch_line = no_arguments()});
  }
  if (file->root.find("model_name_or_path") == nullptr) return std::nullopt;
  for (const std::string_view key : {"stage", "finetuning_type"}) {
    if (file->root.find(key) == nullptr) continue;
    return failure(path, fmt::format("It has {}, as configurations of LLaMA-Factory do, which are not read.", key),
                   "Read are those of TRL and axolotl. A rehearsal runs it: fsdp-plan rehearse -- COMMAND.");
  }
  return with_files(
      {.line = no_arguments(), .file = std::move(*file), .launch_line = no_arguments(), .launcher = std::nullopt});
}

Result<Job> read_job_line(std::span<const std::string> words) {
  if (is_axolotl_line(words)) return read_axolotl_line(words);
  const ArgumentLine line(words);
  TrlLaunch launch;
  if (is_trl_line(words)) {
    FSDP_TRY(launch.line, line.object(2, words.size(), own_key_of_trl));
    FSDP_TRY(launch.launch_line, line.object(2, words.size(), launch_key_of_trl));
    set_kind(launch.launch_line);
    return with_files(std::move(launch));
  }
  const std::optional<AccelerateLine> found = accelerate_line(words);
  if (!found) return tl::unexpected(Errors{not_read(words)});
  const bool is_module = words[found->script] == kModule || words[found->script] == kAxolotlModule;
  const std::size_t end_of_options = found->script - (is_module ? 1 : 0);
  if (words[found->script] == kAxolotlModule) {
    return axolotl_line_job(words, {found->script + 1, words.size()}, {found->options, end_of_options});
  }
  FSDP_TRY(launch.launch_line, line.object(found->options, end_of_options, key_of_launch));
  FSDP_TRY(launch.line, line.object(found->script + 1, words.size(), same_key));
  set_kind(launch.launch_line);
  return with_files(std::move(launch));
}

}  // namespace fsdp::planner
