#pragma once

// Measurements of one machine by `fsdp-plan calibrate`: the times of a model's ops, of the work between them, and of
// collectives. A section of a cluster file; predictions prefer these times to any formula.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/base/units.h"

namespace fsdp {

/// Times of one kind of work by size. Sizes rise; `depth` separates shapes of the same size.
struct WorkTimes {
  std::string work;                  ///< Its name, from `OpWorkload` or `ActionWorkload` (core/plan/workload.h).
  double depth = 0;                  ///< For attention, the length of the sequence; otherwise 0.
  std::vector<double> sizes;         ///< [points] Elements or bytes, rising.
  std::vector<double> microseconds;  ///< [points] For an op: of its forward.
  std::vector<double> backward_microseconds;  ///< [points] For an op; otherwise empty.

  bool operator==(const WorkTimes&) const = default;
};

/// Measurements with one number of processes, which share the machine's cores and links.
struct MachineTables {
  int ranks = 1;
  int threads = 1;               ///< Threads of each process on a CPU; 1 on a GPU.
  std::string device;            ///< "CPU", "NVIDIA H100 80GB HBM3".
  std::string processor;         ///< The host's.
  std::string libraries;         ///< "PyTorch 2.11.0, Gloo".
  std::string model;             ///< The model with the measured shapes.
  std::string measured_at;       ///< "2026-11-26 12:00 UTC"
  Seconds spent{0};              ///< Duration of the measurement.
  double load = 0;               ///< Cores that other programs used meanwhile, in the busiest run.
  double compute_share = 0;      ///< Time that computing loses while a collective runs, as a share of the collective's
                                 ///< time.
  std::optional<Bytes> context;  ///< Memory of a GPU's context,
  std::optional<Bytes> communicator;          ///< and a communicator of NCCL.
  std::optional<double> launch_microseconds;  ///< For a GPU: the host's time to start one kernel.
  std::optional<BytesPerSecond> host_to_gpu;  ///< For a GPU: copies out of pinned memory,
  std::optional<BytesPerSecond> gpu_to_host;  ///< and into it.
  std::vector<WorkTimes> ops;                 ///< Sorted by work, then depth.
  std::vector<WorkTimes> actions;             ///< Work of a schedule other than ops: copies, the optimizer. Sorted.
  /// By `work`: "all_gather" for a repeated collective alone, "all_gather in steps" for one inside training steps.
  /// Sizes are bytes of the whole buffer.
  std::vector<WorkTimes> collectives;

  bool operator==(const MachineTables&) const = default;
};

/// The tables of a machine, shared by copies of its cluster; compared by content.
class MeasuredMachine {
 public:
  MeasuredMachine() = default;
  explicit MeasuredMachine(std::vector<MachineTables> tables)
      : tables_(tables.empty() ? nullptr : std::make_shared<const std::vector<MachineTables>>(std::move(tables))) {}

  bool empty() const { return tables_ == nullptr; }
  std::span<const MachineTables> tables() const {
    return tables_ == nullptr ? std::span<const MachineTables>() : std::span<const MachineTables>(*tables_);
  }
  /// The tables of this many ranks; null if nobody measured them.
  const MachineTables* of_ranks(std::int64_t ranks) const;

  bool operator==(const MeasuredMachine& other) const {
    if (tables_ == other.tables_) return true;
    return tables_ != nullptr && other.tables_ != nullptr && *tables_ == *other.tables_;
  }

 private:
  std::shared_ptr<const std::vector<MachineTables>> tables_;
};

/// The direction of an op.
enum class WorkDirection : std::uint8_t { Forward, Backward };

/// The result of a table look-up.
struct LookedUp {
  Seconds time{0};
  /// Size over that of the nearest point; 1 inside the table. Outside, the caller extrapolates.
  double beyond = 1;
};

/// The time of a kind of work: log-log between the measured sizes, and between depths; that of the nearest point
/// outside. `nullopt` if no such work was measured. REQUIRES: positive size.
std::optional<LookedUp> look_up(const std::vector<WorkTimes>& tables, std::string_view work, double depth, double size,
                                WorkDirection direction = WorkDirection::Forward);

/// Merges the times of `from` into `into`. For the same work, depth and size the shorter time wins, because
/// disturbances only make a measurement longer.
void merge(MachineTables& into, const MachineTables& from);

/// The name of `work` if it was measured inside steps: "all_gather in steps".
std::string in_steps(std::string_view work);

/// One sentence for reports: the place and time of the measurement.
std::string describe(const MachineTables& tables);

/// Reads and writes the section of a cluster file, which is a list.
bool read_json(const JsonValue& value, MachineTables& tables, JsonErrors& errors);
std::string schema_of(const MachineTables& value);
void write_json(const MachineTables& tables, JsonWriter& json);

}  // namespace fsdp
