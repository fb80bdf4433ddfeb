#pragma once

// The measurements of a run, in the shape in which the charts show it over the prediction.

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
  std::optional<StepReport> report;  ///< Its measurements as a report; nothing is known of fields left at zero.
  /// The comparison by the command that did the run: with its prediction on the devices that it ran on.
  std::optional<Comparison> own;
  std::optional<Plan> plan;             ///< The plan that ran, if this window started it.
  bool knows_traffic = false;           ///< Collectives were recorded; a memory snapshot has none.
  std::vector<std::int64_t> requests;   ///< [distinct] Sizes that a memory snapshot was asked for, in bytes; rises.
  std::vector<double> time;             ///< [moments] Seconds since the step began; never falls. Empty: no curve.
  std::vector<std::int64_t> allocated;  ///< [moments] Bytes.
  /// [categories][moments] Where the recording names categories; else all are empty.
  std::array<std::vector<std::int64_t>, kNumMemoryCategories> live;
  std::vector<StreamEvent> events;  ///< Events of one step; empty: none was recorded.
  Seconds step{0};                  ///< 0: not known.
  double stretch = 1;               ///< The factor of all times above, so that they lie over a prediction.
};

using OverlayPtr = std::shared_ptr<const Overlay>;

/// True when the run was on CPU over Gloo, and not on GPUs.
inline bool was_on_cpu(const Overlay& overlay) {
  return overlay.report && overlay.report->gpu == "CPU";
}

}  // namespace fsdp::gui
