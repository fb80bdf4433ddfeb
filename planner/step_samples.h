#pragma once

// How the samples of a step are shared out over micro-batches of a size that somebody chose.

#include <algorithm>
#include <cstdint>

namespace fsdp::planner {

/// The micro-batches of a step that come nearest to so many samples of a GPU.
constexpr std::int64_t accumulation_of(std::int64_t samples, std::int64_t micro_batch) {
  return std::max<std::int64_t>(1, (samples + micro_batch / 2) / micro_batch);
}

}  // namespace fsdp::planner
