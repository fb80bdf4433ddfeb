// Sources: peft/tuners/tuners_utils.py (_mark_only_adapters_as_trainable), peft/tuners/lora/layer.py
// (reset_lora_parameters), PEFT 0.21.2.

#include "core/spec/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/nearest.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, 3> kInserted = {".base_layer", ".original_module", ".modules_to_save.default"};

/// Where errors about adapters point.
constexpr std::string_view kWhere = "--lora";

void note_found(const std::vector<bool>& found, std::vector<bool>& all) {
  all.resize(std::max(all.size(), found.size()), false);
  for (std::size_t i = 0; i < found.size(); ++i) all[i] = all[i] || found[i];
}

}  // namespace

void FoundTargets::note(const BlockBuilder& builder) {
  note_found(builder.found_targets(), found_);
  note_found(builder.found_saved(), saved_);
  names_.insert(names_.end(), builder.linear_names().begin(), builder.linear_names().end());
}

Errors FoundTargets::check(const LoraOptions& lora, const ModelSpec& spec) const {
  Errors errors;
  std::vector<std::string> last_parts;
  for (const std::string& name : names_) {
    std::string last(split(name, '.').back());
    if (std::find(last_parts.begin(), last_parts.end(), last) == last_parts.end())
      last_parts.push_back(std::move(last));
  }
  for (std::size_t i = 0; i < lora.targets.size(); ++i) {
    if (i < found_.size() && found_[i]) continue;
    errors.push_back({std::string(kWhere), fmt::format("{} has no linear layer \"{}\".", spec.name, lora.targets[i]),
                      suggest_name(lora.targets[i], last_parts)});
  }
  for (std::size_t i = 0; i < lora.modules_to_save.size(); ++i) {
    if (i < saved_.size() && saved_[i]) continue;
    errors.push_back({std::string(kWhere),
                      fmt::format("{} has no linear layer or embedding \"{}\".", spec.name, lora.modules_to_save[i]),
                      "modules_to_save takes those, such as lm_head and embed_tokens."});
  }
  const auto is_target = [&](std::string_view layer) {
    const auto names_it = [&](const std::string& target) { return is_named(layer, target); };
    return std::any_of(lora.targets.begin(), lora.targets.end(), names_it) ||
           std::any_of(lora.modules_to_save.begin(), lora.modules_to_save.end(), names_it);
  };
  for (const SpecTie& tie : spec.tied) {
    for (const std::string& name : {tie.alias, tie.kept}) {
      if (!is_target(parent_name(name))) continue;
      errors.push_back({std::string(kWhere),
                        fmt::format("\"{}\" is tied, and adapters of a tied layer are not predicted.", name),
                        "Name other targets."});
    }
  }
  return errors;
}

bool is_of_adapter(std::string_view parameter) {
  return parameter.find("lora_") != std::string_view::npos ||
         parameter.find(".modules_to_save.") != std::string_view::npos;
}

void train_adapters_alone(Model& model) {
  for (Parameter& parameter : model.parameters) parameter.trainable = is_of_adapter(parameter.name);
}

Errors widen_base(const Workload& workload, Model& model) {
  if (workload.quantization) {
    return {{std::string(kWhere), "A base in four bits is not in float32.", "Leave base=float32 out."}};
  }
  for (Parameter& parameter : model.parameters) {
    if (!is_of_adapter(parameter.name) && is_floating_point(parameter.dtype)) parameter.dtype = Dtype::Float32;
  }
  return {};
}

void start_adapters(Model& model) {
  for (Parameter& parameter : model.parameters) {
    if (parameter.name.find(".lora_A.") != std::string::npos) {
      parameter.initial = {.std = 1 / std::sqrt(3 * static_cast<double>(parameter.shape.back()))};
    } else if (parameter.name.find(".lora_B.") != std::string::npos) {
      parameter.initial = {.distribution = Distribution::Constant};
    }
  }
}

std::string name_before_adapters(std::string_view parameter) {
  std::string name(parameter);
  for (const std::string_view inserted : kInserted) {
    const std::size_t at = name.find(inserted);
    if (at != std::string::npos) name.erase(at, inserted.size());
  }
  return name;
}

std::string note_of_adapters(const LoraOptions& lora, const Model& model) {
  const auto millions = [](std::int64_t count) { return static_cast<double>(count) / 1e6; };
  std::string note = fmt::format("{}: {:.1f} M of {:.1f} M parameters are trained.", sentence_of(lora),
                                 millions(num_trainable_parameters(model)), millions(num_parameters(model)));
  for (const Parameter& parameter : model.parameters) {
    if (parameter.trainable || size_of(parameter.dtype) >= size_of(Dtype::Float32)) continue;
    return note + fmt::format(" The frozen base stays in {}: load it so, as TRL's default is float32.",
                              name_of(parameter.dtype));
  }
  return note;
}

}  // namespace fsdp
