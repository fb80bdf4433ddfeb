// Decimation of a stack. The maximum of each series by itself would draw a stack that never existed: parameters from
// before a free on top of activations from after it. So a column shows one moment, the one with the highest total in
// it, and that moment's categories. The pyramid stores the maxima of the totals for blocks of 16, 32, 64, ... moments;
// a column asks for the range of its moments and looks at no more than two blocks of each size.

#include "gui/charts/chart_stack.h"

#include <algorithm>
#include <cmath>

namespace fsdp::gui {

StackPyramid::StackPyramid(const std::vector<std::int64_t>& totals) : totals_(&totals) {
  std::vector<std::uint32_t> level;
  for (std::size_t begin = 0; begin < totals.size(); begin += kBlock) {
    const auto first = totals.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = totals.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kBlock, totals.size()));
    level.push_back(static_cast<std::uint32_t>(std::max_element(first, last) - totals.begin()));
  }
  while (level.size() > 1) {
    std::vector<std::uint32_t> next;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      next.push_back(static_cast<std::uint32_t>(i + 1 < level.size() ? better(level[i], level[i + 1]) : level[i]));
    }
    levels_.push_back(std::move(level));
    level = std::move(next);
  }
  if (!level.empty()) levels_.push_back(std::move(level));
}

std::size_t StackPyramid::better(std::size_t a, std::size_t b) const {
  const std::int64_t of_a = (*totals_)[a];
  const std::int64_t of_b = (*totals_)[b];
  return of_a != of_b ? (of_a > of_b ? a : b) : std::min(a, b);
}

std::size_t StackPyramid::highest(std::size_t begin, std::size_t end) const {
  std::size_t best = begin;
  const auto look = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) best = better(best, i);
  };
  std::size_t first = (begin + kBlock - 1) / kBlock;
  std::size_t last = end / kBlock;
  if (first >= last) {
    look(begin, end);
    return best;
  }
  look(begin, first * kBlock);
  look(last * kBlock, end);
  for (std::size_t level = 0; first < last; ++level) {
    if (first % 2 == 1) best = better(best, levels_[level][first++]);
    if (first < last && last % 2 == 1) best = better(best, levels_[level][--last]);
    first /= 2;
    last /= 2;
  }
  return best;
}

std::size_t moment_at(const std::vector<double>& positions, double position) {
  const auto after = std::upper_bound(positions.begin(), positions.end(), position);
  return after == positions.begin() ? 0 : static_cast<std::size_t>(after - positions.begin()) - 1;
}

namespace {

// The first moment at a position, or the one that lasts until then.
std::size_t first_at(const std::vector<double>& positions, double position) {
  const auto at = std::lower_bound(positions.begin(), positions.end(), position);
  if (at != positions.end() && *at == position) return static_cast<std::size_t>(at - positions.begin());
  return at == positions.begin() ? 0 : static_cast<std::size_t>(at - positions.begin()) - 1;
}

}  // namespace

std::vector<StackColumn> decimate(const StackPyramid& pyramid, const std::vector<double>& positions,
                                  const ChartAxis& axis, int pixels) {
  std::vector<StackColumn> columns;
  if (pyramid.size() == 0 || pixels < 1) return columns;
  const auto add = [&](double begin, double end, std::size_t moment) {
    if (!columns.empty() && columns.back().moment == moment && columns.back().end == begin) {
      columns.back().end = end;
    } else {
      columns.push_back({begin, end, static_cast<std::uint32_t>(moment)});
    }
  };
  // All moments at the start belong to it, not only the last one.
  std::size_t next = first_at(positions, axis.values.begin);
  for (int p = 0; p < pixels; ++p) {
    const double begin = axis.left + axis.width * p / pixels;
    const double end = axis.left + axis.width * (p + 1) / pixels;
    const double until = axis.to_value(end);
    const auto from = positions.begin() + static_cast<std::ptrdiff_t>(next);
    // A pixel without a moment of its own shows the one that lasts into it.
    const bool is_last = p + 1 == pixels;
    auto after = std::lower_bound(from, positions.end(), until);
    if (is_last) after = std::upper_bound(after, positions.end(), until);
    const auto stop = static_cast<std::size_t>(after - positions.begin());
    const std::size_t first = std::min(next, pyramid.size() - 1);
    add(begin, end, pyramid.highest(first, std::max(first + 1, stop)));
    next = first_at(positions, until);
  }
  return columns;
}

}  // namespace fsdp::gui
