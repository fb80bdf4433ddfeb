#pragma once

// Holds the model of the caching allocator against the original, step by step.

#include <cstdint>
#include <optional>
#include <string>

#include "simulator/allocator/allocator_trace.h"

namespace fsdp::simulator {

struct AllocatorDifference {
  enum class Kind { None, Differs, OriginalStopped };
  Kind kind = Kind::None;
  std::int64_t num_steps = 0;  ///< That were compared.
  std::int64_t num_ooms = 0;   ///< Requests that both refused.
  std::int64_t num_retries = 0;
  std::string text;  ///< The step, and the first line on which both differ.
};

/// Runs a trace on both, in a process of its own. After each step the block, every statistic and every call to the
/// driver have to be equal; after some steps and at the end the segments and their blocks too.
AllocatorDifference difference_of(const AllocatorTrace& trace);

/// The trace with as many steps gone as can be without losing the difference.
AllocatorTrace shortest_with_difference(AllocatorTrace trace);

/// `digest_of` the original, in a process of its own; nothing when it stopped.
std::optional<std::uint64_t> digest_of_original(const AllocatorTrace& trace);

}  // namespace fsdp::simulator
