#pragma once

// Times of single collectives and kernels, for people and for scripts.

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/report/report.h"
#include "simulator/nccl/collective_cost.h"
#include "simulator/time/kernel_clock.h"
#include "text/document.h"

namespace fsdp::render {

/// One size of a collective, with its measured time if there is one.
struct ClockedSize {
  Bytes total;
  std::optional<Seconds> measured = {};
};

/// A collective among all GPUs of a cluster.
struct CollectiveClock {
  CollectiveKind kind = CollectiveKind::AllGather;
  std::string machine;  ///< "8x H100 SXM"
  simulator::CollectiveCost cost;
  std::vector<ClockedSize> sizes;
  std::vector<std::string> assumptions;  ///< Assumptions of the machine.
};

/// The name of a product or attention, and its time.
struct KernelClockAnswer {
  std::string what;     ///< "matmul 4096x4096x4096 in bf16"
  std::string machine;  ///< "H100 SXM"
  simulator::KernelClock clock;
};

text::Document document_of(const CollectiveClock& clock, bool only_verdict);
text::Document document_of(const KernelClockAnswer& answer, bool only_verdict);

/// The text of `--json`; docs/file_formats.md describes the keys.
std::string to_json(const CollectiveClock& clock);
std::string to_json(const KernelClockAnswer& answer);

/// Bus bandwidth as nccl-tests defines it: the traffic of each link in a ring.
BytesPerSecond bus_bandwidth(CollectiveKind kind, Bytes total, int ranks, Seconds time);

}  // namespace fsdp::render
