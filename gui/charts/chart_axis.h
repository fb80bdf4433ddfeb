#pragma once

// An axis of a chart: maps values to pixels and back, zooms, and finds round values for labels. No Qt: tested without a
// display.

#include <string>
#include <vector>

namespace fsdp::gui {

/// A range of values. Empty unless its width is positive.
struct ValueRange {
  double begin = 0;
  double end = 0;

  double width() const { return end - begin; }
  bool operator==(const ValueRange&) const = default;
};

/// Maps `values` to the pixels [left, left + width). With a negative width values rise to the left, or, on a vertical
/// axis, to the top.
struct ChartAxis {
  ValueRange values;
  double left = 0;
  double width = 0;

  double to_pixel(double value) const;
  double to_value(double pixel) const;
};

/// The range after a zoom by `factor` (above 1: closer). `at` keeps its position on the screen. The result stays inside
/// `full` and is at least `narrowest` wide.
ValueRange zoomed(const ValueRange& now, double factor, double at, const ValueRange& full, double narrowest);
/// The range moved by `distance`, stopping at the ends of `full`.
ValueRange panned(const ValueRange& now, double distance, const ValueRange& full);
/// The range inside `full` that is nearest to `wanted`.
ValueRange clamped(const ValueRange& wanted, const ValueRange& full, double narrowest);

struct Tick {
  double value = 0;
  std::string label;
};

/// Multiples of 1, 2 or 5 times a power of ten, at most `most` of them, inside the range. For counts: never a fraction.
std::vector<Tick> count_ticks(const ValueRange& range, int most);
/// For bytes: round numbers of the binary unit that suits the end of the range, "12 GiB", all in one unit.
std::vector<Tick> byte_ticks(const ValueRange& range, int most);
/// For seconds: "12.5 ms", all in one unit, with as many decimals as the distance of the ticks needs.
std::vector<Tick> time_ticks(const ValueRange& range, int most);

}  // namespace fsdp::gui
