#pragma once

// NeMo Automodel's training of a model: which of its own classes are predicted, and under which plans.

#include <optional>
#include <span>
#include <string_view>

#include "core/base/result.h"
#include "core/model/model.h"

namespace fsdp {

struct Plan;

/// The release that the flavors "automodel" and "automodel-hf" predict.
inline constexpr std::string_view kAutomodelVersion = "0.7.0";

/// The architectures of a config.json that NeMo Automodel trains by classes of its own which are not predicted, sorted.
std::span<const std::string_view> unknown_classes_of_automodel();

/// Whether the architecture is one of its own classes that are predicted: those of Llama, Qwen2 and Qwen3.
bool is_class_of_automodel(std::string_view architecture);

/// Why a plan of one of its flavors is not predicted. `nullopt` if it is, or is of another flavor.
std::optional<Error> automodel_misfit(const Plan& plan, const Model& model);

}  // namespace fsdp
