#pragma once

// The record that a rehearsed process writes at its end: one JSON file for each rank (python/fsdp_rehearsal).

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/report/report.h"

namespace fsdp::runs {

/// The major version of the format.
inline constexpr std::string_view kRecordFormatVersion = "1.0";

struct RecordedJob {
  std::vector<std::string> argv;
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;
  std::int64_t local_world_size = 1;

  bool operator==(const RecordedJob&) const = default;
};

/// One record. Parts that a process did not reach are empty: without CUDA there are no peaks.
struct RehearsalRecord {
  std::string end;                       ///< "steps_reached", "script_ended", "exception", "out_of_memory".
  std::vector<std::string> error_types;  ///< Classes of the exception and its causes: "builtins.ImportError".
  std::int64_t exit_status = 0;          ///< Exit status of a script that ended itself.
  bool torch_imported = false;
  bool cuda_initialized = false;
  RecordedJob job;
  Seconds seconds{0};
  Seconds step{0};                   ///< The median over the steps of a real run; 0 if unknown.
  Seconds exposed_communication{0};  ///< Time in a step on GPUs, as for `step`.
  Bytes host_peak;
  std::string gpu;
  Bytes gpu_total;
  std::int64_t parameters = 0;
  std::int64_t trainable_parameters = 0;
  MemoryReport memory;                  ///< Its device terms exclude the allocator's reserve, with only name and bytes.
  std::vector<Collective> collectives;  ///< Collectives of one steady step, in issue order.
  Rehearsal seen;  ///< Without ranks and command. Its error is any exception that ended the script.

  bool operator==(const RehearsalRecord&) const = default;
};

/// Whether the process did not run out of device memory.
bool fits(const RehearsalRecord& record);
/// Whether `a` is worse than `b`: it does not fit, or needs more device memory.
bool needs_more(const RehearsalRecord& a, const RehearsalRecord& b);

/// Error: all faults of the record. Ignores unknown keys.
Result<RehearsalRecord> read_record(const JsonDocument& document);

}  // namespace fsdp::runs
