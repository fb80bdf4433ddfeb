#pragma once

// Allocations of a run, phase by phase, as the golden files of tests/golden/stub_gpu cut them.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// Initialization, or the forward, backward, clip, optimizer or zero_grad of a step.
struct MemoryPhase {
  std::string name;                                         ///< "step1.backward"; with accumulation "step1.0.backward".
  std::map<std::pair<int, std::int64_t>, int> allocations;  ///< (stream, bytes) -> how often.
  std::int64_t peak = 0;                                    ///< Live bytes as requested.
  std::int64_t at_end = 0;

  bool operator==(const MemoryPhase&) const = default;
};

/// The phases of initialization and `steps` steps. Streams are numbered in order of appearance.
std::vector<MemoryPhase> walk_phases(const PreparedPlan& prepared, int steps);

/// Allocator peaks at the end of each such phase.
struct AllocatorPhase {
  std::int64_t peak_allocated = 0;
  std::int64_t peak_reserved = 0;
};
std::vector<AllocatorPhase> allocate_phases(const PreparedPlan& prepared, int steps, const std::string& settings);

/// What differs between two phases, one line per kind of allocation; empty when nothing does.
std::string differences(const MemoryPhase& recorded, const MemoryPhase& walked);

}  // namespace fsdp::simulator
