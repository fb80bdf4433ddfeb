// Round labels: the distance of the ticks is the smallest of 1, 2, 5 times a power of ten (in the unit of the axis)
// that gives no more ticks than fit. Ticks are counted as integers and multiplied, so that rounding never adds up, and
// all ticks of an axis share one unit and one number of decimals.

#include "gui/charts/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace fsdp::gui {

namespace {

struct AxisUnit {
  double size = 1;
  const char* name = "";
};

// The least round distance at which no more than `most` ticks lie in the range.
double round_distance(double width, int most) {
  const double least = width / std::max(1, most);
  double distance = std::pow(10, std::floor(std::log10(least)));
  for (const double step : {1.0, 2.0, 5.0, 10.0}) {
    if (step * distance >= least * (1 - 1e-12)) return step * distance;
  }
  return 10 * distance;
}

int decimals_of(double distance) {
  return std::max(0, static_cast<int>(-std::floor(std::log10(distance) + 1e-9)));
}

std::vector<Tick> ticks_in(const ValueRange& range, int most, const AxisUnit& unit, double least_distance) {
  std::vector<Tick> ticks;
  if (!(range.width() > 0) || most < 1 || !std::isfinite(range.width())) return ticks;
  const double distance = std::max(least_distance, round_distance(range.width() / unit.size, most));
  const int decimals = decimals_of(distance);
  const auto first = static_cast<std::int64_t>(std::ceil(range.begin / unit.size / distance - 1e-9));
  const auto last = static_cast<std::int64_t>(std::floor(range.end / unit.size / distance + 1e-9));
  for (std::int64_t i = first; i <= last; ++i) {
    const double value = static_cast<double>(i) * distance;
    std::string label = fmt::format("{:.{}f}", i == 0 ? 0.0 : value, i == 0 ? 0 : decimals);
    if (*unit.name != '\0') label += fmt::format(" {}", unit.name);
    ticks.push_back({value * unit.size, std::move(label)});
  }
  return ticks;
}

template <std::size_t kSize>
AxisUnit unit_for(double largest, const std::array<AxisUnit, kSize>& units) {
  AxisUnit best = units.front();
  for (const AxisUnit& unit : units) {
    if (largest >= unit.size) best = unit;
  }
  return best;
}

}  // namespace

double ChartAxis::to_pixel(double value) const {
  if (!(values.width() > 0)) return left;
  return left + (value - values.begin) / values.width() * width;
}

double ChartAxis::to_value(double pixel) const {
  if (width == 0) return values.begin;
  return values.begin + (pixel - left) / width * values.width();
}

ValueRange clamped(const ValueRange& wanted, const ValueRange& full, double narrowest) {
  const double width = std::min(full.width(), std::max(wanted.width(), narrowest));
  const double middle = (wanted.begin + wanted.end) / 2;
  const double begin = wanted.width() < width ? middle - width / 2 : wanted.begin;
  const double kept = std::clamp(begin, full.begin, std::max(full.begin, full.end - width));
  return {kept, std::min(full.end, kept + width)};
}

ValueRange zoomed(const ValueRange& now, double factor, double at, const ValueRange& full, double narrowest) {
  const double width = std::clamp(now.width() / factor, std::min(narrowest, full.width()), full.width());
  const double share = now.width() > 0 ? (at - now.begin) / now.width() : 0.5;
  const double begin = at - share * width;
  return clamped({begin, begin + width}, full, narrowest);
}

ValueRange panned(const ValueRange& now, double distance, const ValueRange& full) {
  return clamped({now.begin + distance, now.end + distance}, full, now.width());
}

std::vector<Tick> count_ticks(const ValueRange& range, int most) {
  return ticks_in(range, most, {}, 1);
}

std::vector<Tick> byte_ticks(const ValueRange& range, int most) {
  constexpr double kKi = 1024;
  static constexpr std::array<AxisUnit, 5> kUnits = {
      {{1, "B"}, {kKi, "KiB"}, {kKi * kKi, "MiB"}, {kKi * kKi * kKi, "GiB"}, {kKi * kKi * kKi * kKi, "TiB"}}};
  const AxisUnit unit = unit_for(std::max(std::abs(range.begin), std::abs(range.end)), kUnits);
  return ticks_in(range, most, unit, unit.size == 1 ? 1 : 0);
}

std::vector<Tick> time_ticks(const ValueRange& range, int most) {
  static constexpr std::array<AxisUnit, 4> kUnits = {{{1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}, {1, "s"}}};
  return ticks_in(range, most, unit_for(std::max(std::abs(range.begin), std::abs(range.end)), kUnits), 0);
}

}  // namespace fsdp::gui
