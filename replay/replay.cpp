#include "replay/replay.h"

#include <algorithm>

namespace fsdp::replay {

ReplayRequest as_recorded(const Recording& recording) {
  return {.settings_text = recording.trace.settings_text,
          .settings = recording.trace.settings,
          .device = recording.trace.device};
}

std::vector<Bytes> highest_of_parts(const std::vector<Bytes>& values, std::size_t num_columns) {
  num_columns = std::min(num_columns, values.size());
  std::vector<Bytes> highest(num_columns);
  for (std::size_t column = 0; column < num_columns; ++column) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(column * values.size() / num_columns);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>((column + 1) * values.size() / num_columns);
    highest[column] = *std::max_element(begin, end);
  }
  return highest;
}

namespace {

/// Goes through the steps once. It computes the peaks itself, because a trace may reset those of the allocator.
class Run {
 public:
  Run(const Recording& recording, const ReplayRequest& request)
      : recording_(recording),
        steps_(recording.trace.steps),
        replay_(recording.trace, request.device, request.settings),
        is_as_recorded_(request.settings == recording.trace.settings &&
                        request.device.total >= recording.reserved_before) {}

  ReplayResult take() && {
    const std::size_t begin = make_what_was_before();
    const std::size_t num_steps = steps_.size() - begin;
    const std::size_t num_columns = std::min(kReplayColumns, num_steps);
    for (std::size_t column = 0; column < num_columns; ++column) {
      run_column(begin + column * num_steps / num_columns, begin + (column + 1) * num_steps / num_columns);
    }
    result_.statistics = replay_.allocator().statistics();
    result_.driver_calls = replay_.allocator().driver_calls();
    return std::move(result_);
  }

 private:
  /// Returns the first step of the recording. Memory taken only to make memory free does not count in a peak of the
  /// recording.
  std::size_t make_what_was_before() {
    const std::size_t num_before = recording_.num_before;
    if (!is_as_recorded_ || recording_.exact_before.empty() || num_before == steps_.size()) return 0;
    for (const simulator::TraceStep& step : recording_.exact_before) replay_.apply(step);
    result_.reserved_peak = replay_.allocator().reserved_bytes();
    result_.reserved_peak_step = std::max<std::size_t>(num_before, 1) - 1;
    result_.unused_at_peak = replay_.allocator().reserved_bytes() - replay_.allocator().active_bytes();
    result_.unused_peak = result_.unused_at_peak;
    return num_before;
  }

  void run_column(std::size_t begin, std::size_t end) {
    const simulator::CachingAllocator& allocator = replay_.allocator();
    Bytes allocated;
    Bytes reserved;
    for (std::size_t i = begin; i < end; ++i) {
      if (replay_.apply(steps_[i]) == simulator::AllocationOutcome::OutOfMemory) [[unlikely]]
        note_refusal(i);
      allocated = std::max(allocated, allocator.allocated_bytes());
      reserved = std::max(reserved, allocator.reserved_bytes());
      result_.active_peak = std::max(result_.active_peak, allocator.active_bytes());
      result_.requested_peak = std::max(result_.requested_peak, allocator.requested_bytes());
      result_.unused_peak = std::max(result_.unused_peak, allocator.reserved_bytes() - allocator.active_bytes());
      if (allocator.reserved_bytes() > result_.reserved_peak) {
        result_.reserved_peak = allocator.reserved_bytes();
        result_.reserved_peak_step = i;
        result_.unused_at_peak = allocator.reserved_bytes() - allocator.active_bytes();
      }
    }
    result_.allocated_peak = std::max(result_.allocated_peak, allocated);
    result_.allocated.push_back(allocated);
    result_.reserved.push_back(reserved);
  }

  void note_refusal(std::size_t step) {
    ++result_.num_refused;
    if (!result_.first_refusal) {
      result_.first_refusal = ReplayRefusal{step, replay_.allocator().last_out_of_memory()};
    }
  }

  const Recording& recording_;
  const std::vector<simulator::TraceStep>& steps_;
  simulator::AllocatorReplay replay_;
  bool is_as_recorded_;
  ReplayResult result_;
};

}  // namespace

ReplayResult replay(const Recording& recording, const ReplayRequest& request) {
  return Run(recording, request).take();
}

}  // namespace fsdp::replay
