#pragma once

// The configurations of one run as their programs see them: values by key, from the first layer that has one.

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "planner/check/finding.h"

namespace fsdp::planner {

/// The value of a key, or the place where it is missing.
struct Setting {
  std::string key;                         ///< Its last part: "fsdp_version".
  const JsonValue* value = nullptr;        ///< Null if it is unset.
  const JsonDocument* document = nullptr;  ///< Null if no file could have it.

  explicit operator bool() const { return value != nullptr; }
  /// As its program prints it: "true", "2", "full_shard". Empty for lists, objects and unset keys.
  std::string text() const;
  /// `text` in capitals.
  std::string upper() const;
  /// True or false as Python's configurations read it; `nullopt` if it is neither.
  std::optional<bool> flag() const;
  std::optional<double> number() const;
  std::optional<std::int64_t> integer() const;
  bool is(std::string_view word) const { return value != nullptr && text() == word; }
  /// Whether it switches something on.
  bool is_on() const { return flag().value_or(false); }
  FindingPlace place() const;
};

/// What rules ask about the model.
struct CheckedModel {
  std::string name;
  std::int64_t parameters = 0;      ///< Elements, each once.
  std::int64_t largest_module = 0;  ///< Elements below the largest module that is not the root.
  std::set<std::string> classes;    ///< All modules have these.
};

enum class ConfigurationKind : std::uint8_t { Launch, Trainer, DeepSpeed, Axolotl };
inline constexpr std::size_t kNumConfigurationKinds = 4;

/// The documents of one run.
class CheckedRun {
 public:
  /// Adds a layer. Layers that were added before count first.
  const JsonDocument& add(ConfigurationKind kind, JsonDocument document);
  bool has(ConfigurationKind kind) const { return !layers_of(kind).empty(); }
  const std::vector<const JsonDocument*>& layers_of(ConfigurationKind kind) const;

  // Values by key, "fsdp_config.fsdp_version". A key whose value is null is unset.
  Setting launch(std::string_view key) const { return find(ConfigurationKind::Launch, key); }
  Setting trainer(std::string_view key) const { return find(ConfigurationKind::Trainer, key); }
  Setting deepspeed(std::string_view key) const { return find(ConfigurationKind::DeepSpeed, key); }
  Setting axolotl(std::string_view key) const { return find(ConfigurationKind::Axolotl, key); }
  /// A key of axolotl's `fsdp_config`, with or without "fsdp_", which axolotl removes.
  Setting axolotl_fsdp(std::string_view key) const;
  /// A key of accelerate's `fsdp_config`, without "fsdp_", which accelerate adds where it lacks.
  Setting launch_fsdp(std::string_view key) const;
  /// A key of whatever configures FSDP: the Trainer's own `fsdp_config` if it has `fsdp`, otherwise accelerate's.
  Setting fsdp(std::string_view key) const;
  /// The Trainer's "activation_checkpointing" or its older name.
  Setting checkpointing() const;

  // What the programs make of it.
  bool launches_fsdp() const;  ///< By accelerate's distributed_type.
  bool trainer_has_fsdp() const;
  bool uses_fsdp() const { return launches_fsdp() || trainer_has_fsdp(); }
  bool uses_deepspeed() const;
  int fsdp_version() const;                       ///< 1 or 2; 0 without FSDP.
  int zero_stage() const;                         ///< 0 to 3; -1 without DeepSpeed.
  std::optional<std::int64_t> processes() const;  ///< From 1 to a million.
  std::int64_t machines() const;
  /// The policy in capitals; empty if it is unset.
  std::string wrap_policy() const;
  bool checkpoints() const;             ///< The Trainer's own checkpointing, with TRL's default.
  bool trains_adapters() const;         ///< TRL's use_peft.
  std::string mixed_precision() const;  ///< "no", "fp16", "bf16" or "fp8", as the Trainer leaves it.

  bool is_trl = false;                ///< The Trainer's configuration is TRL's.
  bool is_sft = false;                ///< And of supervised fine-tuning.
  std::optional<CheckedModel> model;  ///< If it is named and known.
  std::vector<std::string> names;     ///< The files, for the verdict.
  std::vector<std::string> notes;     ///< Sentences: what was not read.

 private:
  Setting find(ConfigurationKind kind, std::string_view key) const;

  std::list<JsonDocument> documents_;
  std::vector<const JsonDocument*> layers_[kNumConfigurationKinds];
};

/// The place of a key or value in a document.
FindingPlace place_in(const JsonDocument& document, std::uint32_t offset);
FindingPlace place_of(const JsonDocument& document, const JsonMember& member);

}  // namespace fsdp::planner
