#pragma once

// Whether a plan runs on a device, and with how much room: the one place that says so.

#include <cstdint>

#include "core/base/units.h"
#include "core/report/report.h"

namespace fsdp {

/// The needs of a plan on a device with so much memory.
struct DeviceNeed {
  Bytes budget;  ///< Memory of the device.
  Bytes peak;    ///< Reserved by an allocator without a limit, and what lies outside of it.
  Bytes margin;  ///< Kept free on top of the peak, with `held`.
  Bytes held;    ///< In the margin: what other streams may hold longer than the peak says.
  /// How often an allocator with the device's limit gives back its cache; -1: it runs out of memory. Counts where the
  /// peak is above the budget, and nowhere else.
  std::int64_t flushes = 0;
};

struct DeviceVerdict {
  Verdict verdict = Verdict::Unknown;
  Tightness tightness = Tightness::None;

  bool has_room() const { return verdict == Verdict::Fits && tightness == Tightness::None; }
  bool operator==(const DeviceVerdict&) const = default;
};

/// It fits with room where the peak and the margin are within the budget. It runs, and is tight, where the peak alone
/// is, or where the allocator survives below the budget. Everything else does not fit.
DeviceVerdict verdict_of(const DeviceNeed& need);

/// The same of a report's memory. For the device alone: host memory and drives are not looked at.
DeviceVerdict device_verdict_of(const MemoryReport& memory);

/// Memory that a device lacks for room to spare; 0: it has it.
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
