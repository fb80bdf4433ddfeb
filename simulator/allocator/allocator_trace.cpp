#include "simulator/allocator/allocator_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace fsdp::simulator {

namespace {

using Out = std::back_insert_iterator<std::string>;

void add_stats(Out out, std::string_view name, const AllocatorStats& stats) {
  for (const auto& [pool, stat] :
       {std::pair{"all", &stats.all}, std::pair{"small", &stats.small}, std::pair{"large", &stats.large}}) {
    fmt::format_to(out, "= {} {} {} {} {} {}\n", name, pool, stat->current, stat->peak, stat->allocated, stat->freed);
  }
}

void add_segment(Out out, const SegmentSnapshot& segment) {
  fmt::format_to(out, "@ {:x} {} {} {}", segment.address, static_cast<int>(segment.stream),
                 segment.is_large ? "large" : "small", segment.is_expandable ? "expandable" : "plain");
  for (const BlockSnapshot& block : segment.blocks) {
    const char state = block.state == SnapshotState::Allocated     ? 'a'
                       : block.state == SnapshotState::PendingFree ? 'p'
                                                                   : '-';
    fmt::format_to(out, " {}{}", block.size.count(), state);
  }
  fmt::format_to(out, "\n");
}

/// The line up to '|', without trailing blanks.
std::string_view asked_of(std::string_view line) {
  line = line.substr(0, line.find('|'));
  const std::size_t last = line.find_last_not_of(" \t\r");
  return line.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

}  // namespace

AllocatorReplay::AllocatorReplay(const AllocatorTrace& trace) : AllocatorReplay(trace, trace.device, trace.settings) {}

AllocatorReplay::AllocatorReplay(const AllocatorTrace& trace, const AllocatorDevice& device,
                                 const AllocatorSettings& settings)
    : trace_(trace), allocator_(device, settings) {}

StepResult AllocatorReplay::result_of(const TraceStep& step) {
  StepResult result{.outcome = apply(step)};
  if (step.operation == TraceOperation::Malloc && result.outcome == AllocationOutcome::Allocated) {
    result.address = allocator_.address(static_cast<AllocationId>(step.id));
    result.block_bytes = allocator_.block_bytes(static_cast<AllocationId>(step.id));
  }
  return result;
}

void AllocatorReplay::apply_rare(const TraceStep& step) {
  switch (step.operation) {
    case TraceOperation::Malloc:
    case TraceOperation::Free:
      break;
    case TraceOperation::RecordStream:
      allocator_.record_stream(static_cast<AllocationId>(step.id), static_cast<AllocatorStream>(step.stream));
      break;
    case TraceOperation::Synchronize:
      allocator_.synchronize(static_cast<AllocatorStream>(step.stream));
      break;
    case TraceOperation::SynchronizeAll:
      allocator_.synchronize();
      break;
    case TraceOperation::EmptyCache:
      allocator_.empty_cache();
      break;
    case TraceOperation::ChangeSettings: {
      const std::string& text = trace_.settings_changes[step.bytes];
      const Result<AllocatorSettings> settings = parse_allocator_settings(text, allocator_.settings());
      // The reader accepted it. A replay that started with other settings may still refuse it; then it keeps its
      // settings.
      if (settings) allocator_.set_settings(*settings);
      break;
    }
    case TraceOperation::LimitMemory:
      allocator_.set_memory_fraction(trace_.fractions[step.bytes]);
      break;
    case TraceOperation::ResetPeak:
      allocator_.reset_peak();
      break;
  }
}

AllocatorState state_of(const CachingAllocator& allocator) {
  return {.statistics = allocator.statistics(),
          .driver_calls = allocator.driver_calls(),
          .device_used = allocator.device_used_bytes(),
          .segments = allocator.snapshot()};
}

std::string result_text(TraceOperation operation, const StepResult& result, const AllocatorStatistics& statistics) {
  const AllocatorStatistics& s = statistics;
  std::string place = "- -";
  if (operation == TraceOperation::Malloc) {
    place = result.outcome == AllocationOutcome::Empty ? "null 0"
            : result.outcome == AllocationOutcome::OutOfMemory
                ? "oom -"
                : fmt::format("{:x} {}", result.address, result.block_bytes.count());
  }
  return fmt::format(" | {} {} {} {} {} {} {} {} {}", place, s.allocated_bytes.all.current,
                     s.reserved_bytes.all.current, s.active_bytes.all.current, s.requested_bytes.all.current,
                     s.inactive_split_bytes.all.current, s.segment.all.current, s.num_device_alloc, s.num_device_free);
}

std::string summary_text(const AllocatorState& state) {
  std::string text;
  const Out out(text);
  const AllocatorStatistics& s = state.statistics;
  add_stats(out, "allocation", s.allocation);
  add_stats(out, "segment", s.segment);
  add_stats(out, "active", s.active);
  add_stats(out, "inactive_split", s.inactive_split);
  add_stats(out, "allocated_bytes", s.allocated_bytes);
  add_stats(out, "reserved_bytes", s.reserved_bytes);
  add_stats(out, "active_bytes", s.active_bytes);
  add_stats(out, "inactive_split_bytes", s.inactive_split_bytes);
  add_stats(out, "requested_bytes", s.requested_bytes);
  const DriverCalls& calls = state.driver_calls;
  const std::pair<const char*, std::int64_t> numbers[] = {{"num_alloc_retries", s.num_alloc_retries},
                                                          {"num_ooms", s.num_ooms},
                                                          {"num_sync_all_streams", s.num_sync_all_streams},
                                                          {"num_device_alloc", s.num_device_alloc},
                                                          {"num_device_free", s.num_device_free},
                                                          {"oversize_allocations", s.oversize_allocations.current},
                                                          {"oversize_segments", s.oversize_segments.current},
                                                          {"device_cudaMalloc_ok", calls.num_malloc},
                                                          {"device_cudaMalloc_fail", calls.num_malloc_failed},
                                                          {"device_cudaFree", calls.num_free},
                                                          {"device_cuMemCreate_ok", calls.num_create},
                                                          {"device_cuMemCreate_fail", calls.num_create_failed},
                                                          {"device_cuMemUnmap", calls.num_unmap},
                                                          {"device_cuMemAddressReserve", calls.num_reserve},
                                                          {"device_cudaEventRecord", calls.num_event_record},
                                                          {"device_used_bytes", state.device_used.count()},
                                                          {"device_peak_used_bytes", calls.peak_used.count()}};
  for (const auto& [name, value] : numbers) fmt::format_to(out, "= {} {}\n", name, value);
  for (const SegmentSnapshot& segment : state.segments) add_segment(out, segment);
  return text;
}

std::string replay_to_text(const AllocatorTrace& trace, std::string_view text) {
  return replay_to_text(trace, text, trace.device, trace.settings);
}

std::string replay_to_text(const AllocatorTrace& trace, std::string_view text, const AllocatorDevice& device,
                           const AllocatorSettings& settings) {
  AllocatorReplay replay(trace, device, settings);
  return annotated_text(trace, text, runner_of(replay));
}

TraceRunner runner_of(AllocatorReplay& replay) {
  return {.result_of = [&](const TraceStep& step) { return replay.result_of(step); },
          .statistics = [&] { return replay.allocator().statistics(); },
          .state = [&] { return state_of(replay.allocator()); }};
}

std::string annotated_text(const AllocatorTrace& trace, std::string_view text, const TraceRunner& runner) {
  std::string result;
  std::size_t next = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with('=') || line.starts_with('@')) continue;
    const std::string_view asked = line.starts_with('#') ? line : asked_of(line);
    result += asked;
    if (asked.empty() || asked[0] == '#' || asked[0] == '!') {
      result += '\n';
      continue;
    }
    const TraceStep& step = trace.steps[next++];
    const StepResult given = runner.result_of(step);
    result += result_text(step.operation, given, runner.statistics()) + "\n";
  }
  return result + summary_text(runner.state());
}

std::string to_text(const AllocatorTrace& trace) {
  std::string text = fmt::format("!device_bytes {}\n", trace.device.total.count());
  if (!trace.settings_text.empty()) text += fmt::format("!config {}\n", trace.settings_text);
  text += fmt::format("!events {}\n!addresses bump\n",
                      trace.device.progress == StreamProgress::OnDemand ? "hold" : "instant");
  const Out out(text);
  for (const TraceStep& step : trace.steps) {
    switch (step.operation) {
      case TraceOperation::Malloc:
        fmt::format_to(out, "alloc {} {} {}\n", step.id, step.bytes, step.stream);
        break;
      case TraceOperation::Free:
        fmt::format_to(out, "free {}\n", step.id);
        break;
      case TraceOperation::RecordStream:
        fmt::format_to(out, "record {} {}\n", step.id, step.stream);
        break;
      case TraceOperation::Synchronize:
        fmt::format_to(out, "sync {}\n", step.stream);
        break;
      case TraceOperation::SynchronizeAll:
        fmt::format_to(out, "sync\n");
        break;
      case TraceOperation::EmptyCache:
        fmt::format_to(out, "empty_cache\n");
        break;
      case TraceOperation::ChangeSettings:
        fmt::format_to(out, "config {}\n", trace.settings_changes[step.bytes]);
        break;
      case TraceOperation::LimitMemory:
        fmt::format_to(out, "fraction {}\n", trace.fractions[step.bytes]);
        break;
      case TraceOperation::ResetPeak:
        fmt::format_to(out, "reset_peak\n");
        break;
    }
  }
  return text;
}

}  // namespace fsdp::simulator
