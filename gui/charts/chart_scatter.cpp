#include "gui/charts/chart_scatter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace fsdp::gui {

ScatterGrid::ScatterGrid(std::vector<ScatterPoint> points, double cell) : points_(std::move(points)), cell_(cell) {
  if (points_.empty()) return;
  double right = left_ = points_.front().x;
  double bottom = top_ = points_.front().y;
  for (const ScatterPoint& point : points_) {
    left_ = std::min(left_, point.x);
    right = std::max(right, point.x);
    top_ = std::min(top_, point.y);
    bottom = std::max(bottom, point.y);
  }
  // Far outliers must not cost memory.
  constexpr double kMostCells = 512;
  cell_ = std::max({cell_, (right - left_) / kMostCells, (bottom - top_) / kMostCells});
  columns_ = static_cast<std::int64_t>((right - left_) / cell_) + 1;
  rows_ = static_cast<std::int64_t>((bottom - top_) / cell_) + 1;
  begin_.assign(static_cast<std::size_t>(columns_ * rows_) + 1, 0);
  const auto cell_of = [&](const ScatterPoint& point) {
    return static_cast<std::size_t>(row(point.y) * columns_ + column(point.x));
  };
  for (const ScatterPoint& point : points_) ++begin_[cell_of(point) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<std::int32_t> next(begin_.begin(), begin_.end() - 1);
  order_.resize(points_.size());
  for (std::size_t i = 0; i < points_.size(); ++i) {
    order_[next[cell_of(points_[i])]++] = static_cast<std::int32_t>(i);
  }
}

std::int64_t ScatterGrid::column(double x) const {
  return std::clamp(static_cast<std::int64_t>(std::floor((x - left_) / cell_)), std::int64_t{0}, columns_ - 1);
}

std::int64_t ScatterGrid::row(double y) const {
  return std::clamp(static_cast<std::int64_t>(std::floor((y - top_) / cell_)), std::int64_t{0}, rows_ - 1);
}

std::int32_t ScatterGrid::nearest(double x, double y, double reach) const {
  std::int32_t best = -1;
  double least = reach * reach;
  if (points_.empty()) return best;
  for (std::int64_t r = row(y - reach); r <= row(y + reach); ++r) {
    for (std::int64_t c = column(x - reach); c <= column(x + reach); ++c) {
      const auto cell = static_cast<std::size_t>(r * columns_ + c);
      for (std::int32_t i = begin_[cell]; i < begin_[cell + 1]; ++i) {
        const std::int32_t number = order_[i];
        const ScatterPoint& point = points_[number];
        const double distance = (point.x - x) * (point.x - x) + (point.y - y) * (point.y - y);
        if (distance > least || (distance == least && best >= 0 && number > best)) continue;
        best = number;
        least = distance;
      }
    }
  }
  return best;
}

std::vector<std::int32_t> pareto_front(const std::vector<ScatterPoint>& points) {
  std::vector<std::int32_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const ScatterPoint& first = points[a];
    const ScatterPoint& second = points[b];
    return first.x != second.x ? first.x < second.x : first.y < second.y;
  });
  std::vector<std::int32_t> front;
  double lowest = std::numeric_limits<double>::infinity();
  for (const std::int32_t i : order) {
    const double y = points[i].y;
    if (y >= lowest) continue;
    front.push_back(i);
    lowest = y;
  }
  return front;
}

std::int32_t neighbor(const std::vector<ScatterPoint>& points, std::int32_t from, Direction direction) {
  std::int32_t best = -1;
  double least = std::numeric_limits<double>::infinity();
  const ScatterPoint& here = points[from];
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double dx = points[i].x - here.x;
    const double dy = points[i].y - here.y;
    const bool is_sideways = direction == Direction::Left || direction == Direction::Right;
    const double sign = direction == Direction::Right || direction == Direction::Down ? 1 : -1;
    const double ahead = sign * (is_sideways ? dx : dy);
    const double aside = std::abs(is_sideways ? dy : dx);
    if (ahead <= 0) continue;
    const double distance = ahead + 2 * aside;
    if (distance < least) {
      best = static_cast<std::int32_t>(i);
      least = distance;
    }
  }
  return best;
}

}  // namespace fsdp::gui
