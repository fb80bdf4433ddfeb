// Sources: trl 1.16.0, cli/commands/training.py, cli/accelerate_config.py and accelerate_configs/*.yaml; accelerate
// 1.15.0, commands/launch.py (launch_command_parser).

#include "planner/jobs/launch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/formats/yaml_document.h"
#include "planner/jobs/job_builder.h"

namespace fsdp::planner {

namespace {

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

Result<JsonDocument> launcher_named(const std::string& name, const std::string& where, const FileReader& read_file) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name, ignored)) return read_file(name);
  std::vector<std::string_view> known;
  for (const ShippedLaunch& each : kShipped) {
    if (each.name == name) {
      FSDP_TRY(JsonDocument shipped, parse_yaml(fmt::format("{}{}", kOfAll, each.text), "TRL's " + name));
      shipped.is_translated = true;
      return shipped;
    }
    known.push_back(each.name);
  }
  return failure(where, fmt::format("\"{}\" is neither a file nor a launch configuration of TRL.", name),
                 suggest_name(name, known));
}

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

std::string same_key(const std::string& name) {
  return name;
}

std::string own_key_of_trl(const std::string& name) {
  return is_of_launch(name) ? "" : name;
}

std::string launch_key_of_trl(const std::string& name) {
  return is_of_launch(name) ? key_of_launch(name) : "";
}

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

std::optional<TakenMember> taken(JsonDocument& document, std::string_view key) {
  auto& members = document.root.members;
  const auto found = std::find_if(members.begin(), members.end(), [&](const JsonMember& m) { return m.key == key; });
  if (found == members.end()) return std::nullopt;
  TakenMember result{found->value.text, document.where(found->value.offset)};
  members.erase(found);
  return result;
}

std::size_t options_of_accelerate(std::span<const std::string> words) {
  if (words.size() > 2 && words[0] == "accelerate" && words[1] == "launch") return 2;
  if (words.size() > 3 && words[1] == "-m" && words[2] == "accelerate.commands.launch") return 3;
  return 0;
}

JsonDocument machines_of_torchrun(std::span<const std::string> words, std::size_t end) {
  JsonDocument document{.name = "command", .text = {}, .root = {}};
  document.root.type = JsonType::Object;
  for (std::size_t w = 0; w < end; ++w) {
    const std::size_t equals = words[w].find('=');
    std::string name = words[w].substr(0, equals);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name != "__nproc_per_node" && name != "__nnodes") continue;
    JsonValue value;
    value.type = JsonType::String;
    if (equals != std::string::npos) {
      value.text = words[w].substr(equals + 1);
    } else if (w + 1 < end) {
      value.text = words[w + 1];
    }
    document.root.members.push_back({name.substr(2), 0, std::move(value)});
  }
  document.is_translated = true;
  return document;
}

void say_torchrun(const JsonDocument& machines, Job& job) {
  for (const auto& [key, choice] :
       {std::pair("nproc_per_node", PlanChoice::Gpus), std::pair("nnodes", PlanChoice::Nodes)}) {
    const JsonValue* value = find_in(machines.root, key);
    if (value == nullptr || value->text.find_first_not_of("0123456789") != std::string::npos) continue;
    say(job, choice, value->text, machines.where(value->offset));
  }
}

}  // namespace fsdp::planner
