#pragma once

// A run of many steps whose micro-batches have different lengths, through one allocator that keeps its cache.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "simulator/allocator/allocator_settings.h"
#include "simulator/allocator/caching_allocator.h"
#include "simulator/lengths/recorded_lengths.h"
#include "simulator/memory/pool_sink.h"

namespace fsdp::simulator {

/// The allocator at one step.
struct LengthStep {
  Bytes allocated;        ///< The highest in the step: sizes of blocks.
  Bytes reserved;         ///< The same of reserved memory.
  Bytes allocated_after;  ///< At its end, before the next micro-batch arrives.
  Bytes reserved_after;
  std::int64_t flushes = 0;  ///< How often the allocator returned its cache to the device and asked again
                             ///< (`num_alloc_retries`).

  bool operator==(const LengthStep&) const = default;
};

struct LengthRun {
  std::vector<LengthStep> steps;  ///< Up to the one that runs out of memory, that one included.
  /// True if the last of `steps` ran out of memory, or initialization did if there are none.
  bool is_out_of_memory = false;
  OutOfMemory refused;  ///< The request that failed.
  Bytes peak_reserved;  ///< With initialization.
  Bytes peak_allocated;
  std::int64_t flushes = 0;

  bool operator==(const LengthRun&) const = default;
};

/// The reusable parts of runs.
struct LengthAllocators {
  PoolSink pools;
  CachingAllocator allocator;
};

/// Runs the steps one after the other. `lengths` [steps * micro-batches of a step]: that of each micro-batch, in order.
/// `device`: of PyTorch's allocator, without what others use.
/// REQUIRES: all of them are recorded, those of the first two steps with their start.
LengthRun run_lengths(const RecordedLengths& recorded, const std::vector<std::int64_t>& lengths,
                      const AllocatorSettings& settings, const AllocatorDevice& device, LengthAllocators& allocators);

}  // namespace fsdp::simulator
