// Sources: accelerate 1.15.0, commands/launch.py (_validate_launch_command: a file counts after the line; its
// fsdp_config gets "fsdp_"), utils/dataclasses.py (fsdp_version 1 if it is unset); transformers 5.24.0,
// training_args.py (_process_fsdp_args: version 2 if it is unset; mixed_precision); trl 1.16.0,
// trainer/base_config.py (gradient_checkpointing and bf16 are on).

#include "planner/check/checked_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "core/base/parse_units.h"
#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

namespace {

/// A larger number is a slip, and products of it might overflow.
constexpr std::int64_t kMostProcesses = 1'000'000;

std::string last_part(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return std::string(dot == std::string_view::npos ? key : key.substr(dot + 1));
}

}  // namespace

FindingPlace place_in(const JsonDocument& document, std::uint32_t offset) {
  FindingPlace place{.file = document.name, .offset = offset, .pointer = document.pointer(offset)};
  if (document.is_translated) return place;
  const std::string position = document.position(offset);
  const std::size_t column = position.rfind(':');
  const std::size_t line = position.rfind(':', column - 1);
  place.line =
      static_cast<int>(parse_integer(std::string_view(position).substr(line + 1, column - line - 1)).value_or(1));
  place.column = static_cast<int>(parse_integer(std::string_view(position).substr(column + 1)).value_or(1));
  return place;
}

FindingPlace place_of(const JsonDocument& document, const JsonMember& member) {
  FindingPlace place = place_in(document, member.key_offset);
  // A block of YAML begins where its first key does.
  const std::string last = "/" + member.key;
  if (!place.pointer.ends_with(last)) place.pointer += last;
  return place;
}

std::string Setting::text() const {
  if (value == nullptr) return {};
  if (value->type == JsonType::Bool) return value->boolean ? "true" : "false";
  return value->type == JsonType::Number || value->type == JsonType::String ? value->text : "";
}

std::string Setting::upper() const {
  std::string word = text();
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return word;
}

std::optional<bool> Setting::flag() const {
  if (value == nullptr) return std::nullopt;
  const std::string word = upper();
  for (const std::string_view yes : {"TRUE", "YES", "1", "ON"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"FALSE", "NO", "0", "OFF"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<double> Setting::number() const {
  if (value == nullptr) return std::nullopt;
  return value->type == JsonType::Number ? std::optional(value->real) : parse_number(text());
}

std::optional<std::int64_t> Setting::integer() const {
  const std::optional<double> real = number();
  constexpr double kLargest = 1e15;
  if (!real || *real != std::floor(*real) || std::abs(*real) > kLargest) return std::nullopt;
  return static_cast<std::int64_t>(*real);
}

FindingPlace Setting::place() const {
  if (document == nullptr) return {};
  return place_in(*document, value != nullptr ? value->offset : document->root.offset);
}

const JsonDocument& CheckedRun::add(ConfigurationKind kind, JsonDocument document) {
  documents_.push_back(std::move(document));
  layers_[static_cast<std::size_t>(kind)].push_back(&documents_.back());
  return documents_.back();
}

const std::vector<const JsonDocument*>& CheckedRun::layers_of(ConfigurationKind kind) const {
  return layers_[static_cast<std::size_t>(kind)];
}

Setting CheckedRun::find(ConfigurationKind kind, std::string_view key) const {
  const auto& layers = layers_of(kind);
  for (const JsonDocument* layer : layers) {
    if (const JsonValue* value = find_in(layer->root, key)) return {last_part(key), value, layer};
  }
  return {last_part(key), nullptr, layers.empty() ? nullptr : layers.back()};
}

Setting CheckedRun::axolotl_fsdp(std::string_view key) const {
  const Setting plain = axolotl(fmt::format("fsdp_config.{}", key));
  return plain ? plain : axolotl(fmt::format("fsdp_config.fsdp_{}", key));
}

Setting CheckedRun::launch_fsdp(std::string_view key) const {
  const Setting with = launch("fsdp_config.fsdp_" + std::string(key));
  if (with) return with;
  const Setting without = launch("fsdp_config." + std::string(key));
  return without ? without : with;
}

Setting CheckedRun::fsdp(std::string_view key) const {
  if (!trainer_has_fsdp()) return launch_fsdp(key);
  const Setting without = trainer("fsdp_config." + std::string(key));
  if (without) return without;
  const Setting with = trainer("fsdp_config.fsdp_" + std::string(key));
  return with ? with : without;
}

Setting CheckedRun::checkpointing() const {
  const Setting newer = trainer("activation_checkpointing");
  return newer ? newer : trainer("gradient_checkpointing");
}

bool CheckedRun::launches_fsdp() const {
  return launch("distributed_type").upper() == "FSDP";
}

bool CheckedRun::trainer_has_fsdp() const {
  const Setting fsdp = trainer("fsdp");
  return fsdp && fsdp.flag().value_or(!fsdp.text().empty() || !fsdp.value->elements.empty());
}

bool CheckedRun::uses_deepspeed() const {
  return has(ConfigurationKind::DeepSpeed) || launch("distributed_type").upper() == "DEEPSPEED" || trainer("deepspeed");
}

int CheckedRun::fsdp_version() const {
  if (!uses_fsdp()) return 0;
  return static_cast<int>(fsdp("version").integer().value_or(trainer_has_fsdp() ? 2 : 1));
}

int CheckedRun::zero_stage() const {
  if (!uses_deepspeed()) return -1;
  constexpr std::int64_t kOfDeepSpeed = 0;
  constexpr std::int64_t kOfAccelerate = 2;
  if (has(ConfigurationKind::DeepSpeed)) {
    return static_cast<int>(deepspeed("zero_optimization.stage").integer().value_or(kOfDeepSpeed));
  }
  return static_cast<int>(launch("deepspeed_config.zero_stage").integer().value_or(kOfAccelerate));
}

std::optional<std::int64_t> CheckedRun::processes() const {
  const std::optional<std::int64_t> count = launch("num_processes").integer();
  return count && *count > 0 && *count <= kMostProcesses ? count : std::nullopt;
}

std::int64_t CheckedRun::machines() const {
  return std::clamp<std::int64_t>(launch("num_machines").integer().value_or(1), 1, kMostProcesses);
}

std::string CheckedRun::wrap_policy() const {
  const Setting policy = fsdp("auto_wrap_policy");
  if (policy) return policy.upper();
  return trainer_has_fsdp() ? "TRANSFORMER_BASED_WRAP" : "";
}

bool CheckedRun::checkpoints() const {
  return checkpointing().flag().value_or(is_trl);
}

bool CheckedRun::trains_adapters() const {
  return trainer("use_peft").is_on();
}

std::string CheckedRun::mixed_precision() const {
  if (has(ConfigurationKind::Trainer)) {
    const bool fp16 = trainer("fp16").is_on();
    if (fp16) return "fp16";
    if (trainer("bf16").flag().value_or(is_trl)) return "bf16";
  }
  const std::string word = launch("mixed_precision").text();
  return word.empty() || word == "false" ? "no" : word;
}

}  // namespace fsdp::planner
