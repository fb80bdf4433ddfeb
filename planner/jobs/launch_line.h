#pragma once

// The words of lines that start a training: whose option a word is, and what `accelerate launch` makes of its own.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/formats/yaml_document.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// The place of the first option of `accelerate launch`, or of the module that is the same. 0 for other lines.
std::size_t options_of_accelerate(std::span<const std::string> words);

// For ArgumentLine::object: the key that an option sets, or "" to leave it out.

std::string same_key(const std::string& name);
/// The key of the launch configuration that an option of `accelerate launch` sets.
std::string key_of_launch(const std::string& name);
/// Whether `trl sft` hands an option to accelerate: those that its own classes do not have.
bool is_of_launch(const std::string& name);
/// The options of `trl sft` that are its own, and those that it hands to accelerate.
std::string own_key_of_trl(const std::string& name);
std::string launch_key_of_trl(const std::string& name);

/// The processes of a node and the nodes that the words of `torchrun` before `end` name.
JsonDocument machines_of_torchrun(std::span<const std::string> words, std::size_t end);
/// Says those that are numbers.
void say_torchrun(const JsonDocument& machines, Job& job);

/// Moves what only says which kind of launch it is to distributed_type: --multi_gpu, --use_fsdp, --use_deepspeed.
void set_kind(JsonDocument& launch);

/// A member that was taken out of an object: its text, and its place.
struct TakenMember {
  std::string text;
  std::string where;
};
/// `nullopt` if there is no such member.
std::optional<TakenMember> taken(JsonDocument& document, std::string_view key);

/// TRL's --accelerate_config, which `where` names: a file, or a launch configuration in TRL's package, without places.
/// Without places it is translated.
Result<JsonDocument> launcher_named(const std::string& name, const std::string& where,
                                    const FileReader& read_file = read_yaml_file);

}  // namespace fsdp::planner
