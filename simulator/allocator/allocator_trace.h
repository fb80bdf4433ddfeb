#pragma once

// A list of requests to the caching allocator: the requests of a program, in order, with the device and the settings.
// tests/golden/allocator/README.md describes the text format.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "simulator/allocator/allocator_settings.h"
#include "simulator/allocator/caching_allocator.h"

namespace fsdp::simulator {

enum class TraceOperation : std::uint8_t {
  Malloc,
  Free,
  RecordStream,
  Synchronize,     ///< One stream.
  SynchronizeAll,  ///< Every stream.
  EmptyCache,
  ChangeSettings,
  LimitMemory,  ///< set_per_process_memory_fraction
  ResetPeak,
};

struct TraceStep {
  std::int64_t bytes = 0;   ///< Malloc: as requested. ChangeSettings, LimitMemory: index into the trace's lists.
  std::int32_t id = 0;      ///< Malloc, Free, RecordStream: dense, from 0; reused after its free.
  std::int16_t stream = 0;  ///< Malloc, RecordStream, Synchronize.
  TraceOperation operation = TraceOperation::Malloc;

  bool operator==(const TraceStep&) const = default;
};
static_assert(sizeof(TraceStep) == 16, "four steps share a cache line");

/// Streams are numbered from 0 to this one.
inline constexpr std::int32_t kMostTraceStream = (1 << 15) - 2;

struct AllocatorTrace {
  AllocatorDevice device;
  std::string settings_text;   ///< PYTORCH_ALLOC_CONF at the start. Empty for the defaults.
  AllocatorSettings settings;  ///< The parsed settings_text.
  std::vector<TraceStep> steps;
  std::vector<std::string> settings_changes;  ///< For ChangeSettings.
  std::vector<double> fractions;              ///< For LimitMemory, each from 0 to 1.

  bool operator==(const AllocatorTrace&) const = default;
};

/// Reads a trace; skips results after '|', the lines of '=' and '@', and comments.
/// Errors, each with its place "name:line:column": an unknown operation or header, an invalid number, a word too many
/// or too few, an id that is live already or not live, settings that PyTorch would refuse.
Result<AllocatorTrace> read_allocator_trace(std::string_view text, std::string_view name);

/// The trace as text, without results. Reading it gives the same trace, if its ids are numbered as by the reader.
std::string to_text(const AllocatorTrace& trace);

/// The result of a step.
struct StepResult {
  AllocationOutcome outcome = AllocationOutcome::Allocated;
  std::int64_t address = 0;  ///< Address of a successful Malloc.
  Bytes block_bytes{0};

  bool operator==(const StepResult&) const = default;
};

/// Walks a trace on the model of the allocator.
class AllocatorReplay {
 public:
  /// Starts with the device and the settings of the trace. REQUIRES: the trace outlives this object.
  explicit AllocatorReplay(const AllocatorTrace& trace);
  /// Other settings or another device instead.
  AllocatorReplay(const AllocatorTrace& trace, const AllocatorDevice& device, const AllocatorSettings& settings);

  /// Executes one step. The outcome is that of a Malloc; Allocated for other operations.
  AllocationOutcome apply(const TraceStep& step) {
    switch (step.operation) {
      case TraceOperation::Malloc:
        return allocator_.malloc(static_cast<AllocationId>(step.id), Bytes(step.bytes),
                                 static_cast<AllocatorStream>(step.stream));
      case TraceOperation::Free:
        allocator_.free(static_cast<AllocationId>(step.id));
        return AllocationOutcome::Allocated;
      default:
        apply_rare(step);
        return AllocationOutcome::Allocated;
    }
  }

  /// The same, with the block.
  StepResult result_of(const TraceStep& step);

  const CachingAllocator& allocator() const { return allocator_; }

 private:
  void apply_rare(const TraceStep& step);

  const AllocatorTrace& trace_;
  CachingAllocator allocator_;
};

/// The whole visible state of an allocator at one moment.
struct AllocatorState {
  AllocatorStatistics statistics;
  DriverCalls driver_calls;
  Bytes device_used{0};
  std::vector<SegmentSnapshot> segments;
};
AllocatorState state_of(const CachingAllocator& allocator);

/// The lines of `=` and `@` at the end of a replay: every statistic, and every segment with its blocks.
std::string summary_text(const AllocatorState& state);

/// The text after an operation: " | ADDRESS BLOCK_BYTES allocated ...", without a line's end.
std::string result_text(TraceOperation operation, const StepResult& result, const AllocatorStatistics& statistics);

/// An allocator that executes the steps of a trace: ours, or in a test the original.
struct TraceRunner {
  std::function<StepResult(const TraceStep&)> result_of;
  std::function<AllocatorStatistics()> statistics;
  std::function<AllocatorState()> state;
};

TraceRunner runner_of(AllocatorReplay& replay);

/// Runs the text of `trace`, and returns it with the results after each operation and the summary at its end. Running a
/// recorded output gives the same output.
std::string annotated_text(const AllocatorTrace& trace, std::string_view text, const TraceRunner& runner);

/// `annotated_text` of the model.
std::string replay_to_text(const AllocatorTrace& trace, std::string_view text);
std::string replay_to_text(const AllocatorTrace& trace, std::string_view text, const AllocatorDevice& device,
                           const AllocatorSettings& settings);

}  // namespace fsdp::simulator
