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

namespace fsdp::planner {

/// Where a recorded event came from.
struct RecordedOrigin {
  std::optional<std::int64_t> time_us;
  std::vector<PythonFrame> stack;  ///< Innermost first; empty when it was not recorded.
};

struct Recording {
  simulator::AllocatorTrace trace;  ///< The device is the recorded one, if that is known.
  std::string text;                 ///< Text of the trace, with the ids of the file.
  bool is_snapshot = false;
  bool knows_device = false;      ///< How much memory there was: by the file, or by what was refused.
  std::size_t device_number = 0;  ///< In a snapshot.
  /// The first steps of `trace` make what was there before the recording began.
  std::size_t num_before = 0;
  Bytes bytes_before{0};
  /// Steps in place of those first ones that also make the free memory of that moment, under the recorded settings;
  /// empty where it is not known.
  std::vector<simulator::TraceStep> exact_before;
  Bytes reserved_before{0};  ///< More than the blocks, by what the cache held.
  /// Reserved bytes that the recording itself has, after each step; empty when it has none.
  std::vector<Bytes> reserved;
  std::vector<std::string> notes;  ///< Uncertainties, a sentence each.

  /// The origin of a step. Reads the snapshot again, which is kept.
  RecordedOrigin origin(std::size_t step) const;

  std::shared_ptr<const PickleDocument> snapshot;
  std::vector<std::uint32_t> event_of_step;  ///< In the device's list of events; kNoEvent: none.
  static constexpr std::uint32_t kNoEvent = 0xFFFFFFFF;
};

/// Reads either kind of file; "-" is the standard input. Errors: what cannot be read, each with its place.
Result<Recording> read_recording(const std::string& path);

/// The two kinds of content.
Result<Recording> read_recorded_trace(std::string text, const std::string& name);
Result<Recording> read_recorded_snapshot(std::string data, const std::string& name);

}  // namespace fsdp::planner
