#pragma once

// The allocator requests of a run, from a file: a memory snapshot of PyTorch, or a text trace.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/pickle.h"
#include "core/report/report_rehearsal.h"
#include "simulator/allocator/allocator_trace.h"

namespace fsdp::replay {

/// The origin of a recorded event.
struct RecordedOrigin {
  std::optional<std::int64_t> time_us;
  std::vector<PythonFrame> stack;  ///< Innermost first. Empty if it was not recorded.
};

struct Recording {
  simulator::AllocatorTrace trace;  ///< The device is the recorded one, if it is known.
  std::string text;                 ///< Text of the trace, with the ids of the file.
  bool is_snapshot = false;
  bool knows_device = false;      ///< Whether the device's memory is known, from the file or from a refused request.
  std::size_t device_number = 0;  ///< The device of the snapshot.
  /// The first steps of `trace` restore the memory from before the recording.
  std::size_t num_before = 0;
  Bytes bytes_before{0};
  /// Replacements of those first steps that also restore the free memory of that moment, under the recorded settings.
  /// Empty if it is unknown.
  std::vector<simulator::TraceStep> exact_before;
  Bytes reserved_before{0};  ///< Bytes reserved beyond the blocks: the cache.
  /// The recording's own reserved bytes after each step. Empty if it has none.
  std::vector<Bytes> reserved;
  std::vector<std::string> notes;  ///< Uncertainties, one sentence each.

  /// The origin of a step. Reads the stored snapshot again.
  RecordedOrigin origin(std::size_t step) const;

  std::shared_ptr<const PickleDocument> snapshot;
  std::vector<std::uint32_t> event_of_step;  ///< Index in the device's list of events; kNoEvent if there is none.
  static constexpr std::uint32_t kNoEvent = 0xFFFFFFFF;
};

/// Reads either kind of file; "-" is the standard input. Errors: everything that cannot be read, with its place.
Result<Recording> read_recording(const std::string& path);

/// The two kinds of content.
Result<Recording> read_recorded_trace(std::string text, const std::string& name);
Result<Recording> read_recorded_snapshot(std::string data, const std::string& name);

}  // namespace fsdp::replay
