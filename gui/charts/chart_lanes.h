#pragma once

// Spans of time on lanes: which runs to draw at a scale, and which span lies under the pointer. No Qt.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gui/charts/chart_axis.h"

namespace fsdp::gui {

struct LaneSpan {
  double begin = 0;
  double end = 0;
  std::int32_t item = -1;  ///< The item that the span represents.
  std::uint8_t kind = 0;   ///< Its kind of work, below kMostKinds.
  std::uint8_t group = 0;  ///< Spans of different groups are never joined.
};
inline constexpr std::size_t kMostKinds = 5;

/// A drawn span: one, or several that are too small to draw separately.
struct LaneRun {
  double begin = 0;  ///< Pixels.
  double end = 0;
  double busy = 1;         ///< Share of its width that spans cover: the strength of its color.
  std::int32_t count = 1;  ///< Number of spans in it.
  std::int32_t item = -1;  ///< The first of them.
  /// The shares of the covered time by kind of work; they add up to 1.
  std::array<double, kMostKinds> shares{};

  bool operator==(const LaneRun&) const = default;
};

/// Spans narrower than this are joined, in pixels.
inline constexpr double kNarrowestSpan = 2;

/// The runs of one lane in the axis' range. `spans` are in order of start and do not overlap. Narrow neighbors of a
/// group become one run, from the start of the first to the end of the last, if no gap between them reaches a pixel; a
/// wide span is a run by itself.
std::vector<LaneRun> runs_of(const std::vector<LaneSpan>& spans, const ChartAxis& axis);

/// The item whose span contains the position, or the nearest within `reach`; -1 if there is none.
std::int32_t span_at(const std::vector<LaneSpan>& spans, double position, double reach);

/// The length of the union of the ranges: an overlap counts once.
double covered_length(std::vector<ValueRange> ranges);

}  // namespace fsdp::gui
