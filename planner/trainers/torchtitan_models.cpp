// A model is torchtitan's if its name and its number of parameters are those of one of its flavors. We exclude mixtures
// of experts, whose code differs.
//
// Sources: torchtitan/models/llama3/__init__.py and models/qwen3/__init__.py of v0.2.2 and v0.3.0, and the
// config_registry.py beside them of v0.3.0.

#include <fmt/format.h>

#include <array>
#include <string>

#include "planner/trainers/trainers.h"

namespace fsdp::planner {

namespace {

struct TitanFlavor {
  std::string_view model;  ///< `Model::name`
  std::int64_t parameters;
  TorchtitanModel named;
  std::string_view library;
};

// A flavor without a configuration of its own starts from that of another one.
constexpr std::array kTitanFlavors = {
    TitanFlavor{"Llama-3.1-8B", 8'030'261'248, {"llama3", "8B", "llama3_8b"}, "llama3_1_8b"},
    TitanFlavor{"Llama-3.1-70B", 70'553'706'496, {"llama3", "70B", "llama3_70b"}, "llama3_1_70b"},
    TitanFlavor{"Llama-3.1-405B", 405'853'388'800, {"llama3", "405B", "llama3_405b"}, "llama3_1_405b"},
    TitanFlavor{"Llama-3.2-1B", 1'235'814'400, {"llama3", "1B", "llama3_8b", true}, "llama3_2_1b"},
    TitanFlavor{"Llama-3.2-3B", 3'212'749'824, {"llama3", "3B", "llama3_8b", true}, "llama3_2_3b"},
    TitanFlavor{"Qwen3-0.6B", 596'049'920, {"qwen3", "0.6B", "qwen3_0_6b", true}, "qwen3_0_6b"},
    TitanFlavor{"Qwen3-1.7B", 1'720'574'976, {"qwen3", "1.7B", "qwen3_1_7b", true}, "qwen3_1_7b"},
    TitanFlavor{"Qwen3-4B", 4'022'468'096, {"qwen3", "4B", "qwen3_14b", true}, "qwen3_4b"},
    TitanFlavor{"Qwen3-8B", 8'190'735'360, {"qwen3", "8B", "qwen3_14b"}, "qwen3_8b"},
    TitanFlavor{"Qwen3-14B", 14'768'307'200, {"qwen3", "14B", "qwen3_14b"}, "qwen3_14b"},
    TitanFlavor{"Qwen3-32B", 32'762'123'264, {"qwen3", "32B", "qwen3_32b"}, "qwen3_32b"},
};

}  // namespace

std::optional<TorchtitanModel> torchtitan_model_of(const Model& model) {
  for (const TitanFlavor& flavor : kTitanFlavors) {
    if (flavor.model == model.name && flavor.parameters == num_parameters(model)) return flavor.named;
  }
  return std::nullopt;
}

std::optional<TorchtitanInLibrary> library_model_of_torchtitan(std::string_view name, std::string_view flavor) {
  for (const TitanFlavor& each : kTitanFlavors) {
    if (each.named.name == name && each.named.flavor == flavor) {
      return TorchtitanInLibrary{each.library, each.named.is_tied};
    }
  }
  return std::nullopt;
}

std::string torchtitan_models_in_library(bool newest) {
  std::string known;
  for (const TitanFlavor& each : kTitanFlavors) {
    if (each.named.is_tied && !newest) continue;
    known += fmt::format("{}{} {}", known.empty() ? "" : ", ", each.named.name, each.named.flavor);
  }
  return known;
}

}  // namespace fsdp::planner
