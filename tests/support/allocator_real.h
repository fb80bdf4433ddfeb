#pragma once

// The caching allocator of PyTorch itself, in this process, over a stand-in for the CUDA runtime.

#include <optional>
#include <string>
#include <unordered_map>

#include "simulator/allocator/allocator_trace.h"

namespace fsdp::simulator {

/// One a process, because libc10_cuda has one allocator: whoever wants several forks.
class RealAllocator {
 public:
  explicit RealAllocator(const AllocatorTrace& trace);

  /// Does one step. Nothing: PyTorch stopped with an error that is not out of memory, and is of no use any more.
  std::optional<StepResult> result_of(const TraceStep& step);
  AllocatorStatistics statistics() const;
  AllocatorState state() const;

 private:
  std::optional<StepResult> malloc(const TraceStep& step);
  void apply_rare(const TraceStep& step);

  const AllocatorTrace& trace_;
  std::unordered_map<std::int32_t, void*> live_;
};

/// For `digest_of` and `annotated_text`.
TraceRunner runner_of(RealAllocator& allocator);

}  // namespace fsdp::simulator
