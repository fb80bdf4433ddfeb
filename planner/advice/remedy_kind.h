#pragma once

// The cost of a suggestion beside bytes and seconds, and the least effect worth reporting.

#include <cstdint>

#include "planner/search/search.h"

namespace fsdp::planner {

enum class RemedyKind : std::uint8_t {
  Free,             ///< The same training on the same machine.
  ChangesTraining,  ///< It changes results: precision, samples, lengths, trained parameters.
  OtherMachine,
};
RemedyKind kind_of(const Remedy& remedy);

/// The fraction of a step that a change must save to be worth reporting. Predictions cannot distinguish smaller ones.
inline constexpr double kLeastSavedTime = 0.01;

}  // namespace fsdp::planner
