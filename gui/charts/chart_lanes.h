#pragma once

// Spans of time on lanes: what is drawn of them at a scale, and what lies under the pointer. No Qt.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gui/charts/chart_axis.h"

namespace fsdp::gui {

struct LaneSpan {
  double begin = 0;
  double end = 0;
  std::int32_t item = -1;  ///< The item that it stands for.
  std::uint8_t kind = 0;   ///< Its kind of work: below kMostKinds.
  std::uint8_t group = 0;  ///< Spans of different groups are never joined.
};
inline constexpr std::size_t kMostKinds = 5;

/// A drawn span: one, or several that are too small to be drawn one by one.
struct LaneRun {
  double begin = 0;  ///< Pixels.
  double end = 0;
  double busy = 1;         ///< Share of it that spans cover: how strong its color is.
  std::int32_t count = 1;  ///< Spans in it.
  std::int32_t item = -1;  ///< The first of them.
  /// How the time that spans cover is shared out over their kinds; adds up to 1.
  std::array<double, kMostKinds> shares{};

  bool operator==(const LaneRun&) const = default;
};

/// Spans narrower than this are joined, in pixels.
inline constexpr double kNarrowestSpan = 2;

/// The runs of one lane in the axis' range. `spans` in order of begin, none before another has ended. Narrow neighbors
/// of a group become one run, from the begin of the first to the end of the last, as long as no gap of a pixel or more
/// lies between; wide spans are runs of their own.
std::vector<LaneRun> runs_of(const std::vector<LaneSpan>& spans, const ChartAxis& axis);

/// The item whose span holds the position, or the nearest within `reach`; -1: none.
std::int32_t span_at(const std::vector<LaneSpan>& spans, double position, double reach);

/// The length that ranges cover together; where they overlap it counts once.
double covered_length(std::vector<ValueRange> ranges);

}  // namespace fsdp::gui
