#pragma once

// The only place that decides whether a plan runs on a device, and with how much room.

#include <cstdint>

#include "core/base/units.h"
#include "core/report/report.h"

namespace fsdp {

/// The needs of a plan on a device, and the device's memory.
struct DeviceNeed {
  Bytes budget;  ///< Memory of the device.
  Bytes peak;    ///< The reserve of an allocator without a limit, and the memory outside of it.
  Bytes margin;  ///< The safety margin on top of the peak, including `held`.
  Bytes held;    ///< In the margin: memory that other streams may free later than the peak assumes.
  /// How often an allocator with the device's limit flushes its cache; -1 if it runs out of memory. Counts only if the
  /// peak is above the budget.
  std::int64_t flushes = 0;
};

struct DeviceVerdict {
  Verdict verdict = Verdict::Unknown;
  Tightness tightness = Tightness::None;

  bool has_room() const { return verdict == Verdict::Fits && tightness == Tightness::None; }
  bool operator==(const DeviceVerdict&) const = default;
};

/// It fits with room if the peak and the margin are within the budget. It runs, but is tight, if only the peak is, or
/// if the allocator survives below the budget. Otherwise it does not fit.
DeviceVerdict verdict_of(const DeviceNeed& need);

/// The same for a report's memory. Ignores host memory and drives.
DeviceVerdict device_verdict_of(const MemoryReport& memory);

/// Memory that a device lacks for room to spare; 0 if it has room.
Bytes missing_room(const MemoryReport& memory);

/// Whether it runs without room to spare.
inline bool is_tight(const StepReport& report) {
  return report.verdict == Verdict::Fits && report.memory.tightness != Tightness::None;
}
/// Whether it runs with room to spare.
inline bool has_room(const StepReport& report) {
  return report.verdict == Verdict::Fits && report.memory.tightness == Tightness::None;
}

}  // namespace fsdp
