#pragma once

// What a suggestion costs beside bytes and seconds, and when it is worth a word.

#include <cstdint>

#include "planner/search/search.h"

namespace fsdp::planner {

enum class RemedyKind : std::uint8_t {
  Free,             ///< The same training on the same machine.
  ChangesTraining,  ///< Other numbers come out: precision, samples, lengths, what is trained.
  OtherMachine,
};
RemedyKind kind_of(const Remedy& remedy);

/// What a step must be shorter by, as a part of it, for a change to be worth a word: less than that no prediction tells
/// apart.
inline constexpr double kLeastSavedTime = 0.01;

}  // namespace fsdp::planner
