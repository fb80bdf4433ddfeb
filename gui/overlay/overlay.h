#pragma once

// The measurements of a run, in the form in which the charts show them over the prediction.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/report/compare.h"
#include "core/report/report.h"
#include "core/report/stream_event.h"

namespace fsdp::gui {

struct Overlay {
  std::string name;                  ///< Name of the file.
  std::string source;                ///< "run report", "Kineto trace", "memory snapshot".
  std::optional<StepReport> report;  ///< Its measurements as a report; a field left at zero is unknown.
  /// The comparison by the command that did the run, with its prediction for the devices that it ran on.
  std::optional<Comparison> own;
  std::optional<Plan> plan;             ///< The plan that ran, if this window started it.
  bool knows_traffic = false;           ///< Whether collectives were recorded; a memory snapshot has none.
  std::vector<std::int64_t> requests;   ///< [distinct] Sizes of the requests in a memory snapshot, in bytes; they rise.
  std::vector<double> time;             ///< [moments] Seconds since the step began; never falls. Empty if there is no
                                        ///< curve.
  std::vector<std::int64_t> allocated;  ///< [moments] Bytes.
  /// [categories][moments] All empty unless the recording names categories.
  std::array<std::vector<std::int64_t>, kNumMemoryCategories> live;
  std::vector<StreamEvent> events;  ///< Events of one step. Empty if none was recorded.
  Seconds step{0};                  ///< 0 if it is unknown.
  double stretch = 1;               ///< The factor of all times above, so that they cover a predicted step.
};

using OverlayPtr = std::shared_ptr<const Overlay>;

/// Whether the run was on CPU over Gloo, not on GPUs.
inline bool was_on_cpu(const Overlay& overlay) {
  return overlay.report && overlay.report->gpu == "CPU";
}

}  // namespace fsdp::gui
