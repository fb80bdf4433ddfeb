#pragma once

// Points of a scatter chart: the nearest to the pointer, the neighbor in a direction, the Pareto front. No Qt.

#include <cstdint>
#include <vector>

namespace fsdp::gui {

struct ScatterPoint {
  double x = 0;  ///< Pixels, or values: the caller chooses the unit.
  double y = 0;
};

/// Finds points in a grid of square cells, so that ten thousand of them cost no more than ten.
class ScatterGrid {
 public:
  ScatterGrid() = default;
  /// `cell` is the width of a cell in the points' unit.
  ScatterGrid(std::vector<ScatterPoint> points, double cell);

  /// The nearest point within `reach`, the first of equally near ones; -1 if there is none.
  std::int32_t nearest(double x, double y, double reach) const;
  const std::vector<ScatterPoint>& points() const { return points_; }

 private:
  std::int64_t column(double x) const;
  std::int64_t row(double y) const;

  std::vector<ScatterPoint> points_;
  double cell_ = 1;
  double left_ = 0;
  double top_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t rows_ = 0;
  std::vector<std::int32_t> begin_;  // [cells + 1] Offsets into `order_`.
  std::vector<std::int32_t> order_;  // [points] By cell.
};

/// The points that no other point beats in one coordinate without being worse in the other, in order of x. For equal
/// points, the first.
std::vector<std::int32_t> pareto_front(const std::vector<ScatterPoint>& points);

enum class Direction : std::uint8_t { Left, Right, Up, Down };
/// The point that an arrow key leads to from `from`: the nearest in that direction, with the sideways distance counted
/// double; -1 if there is none. Up is toward smaller y, as on a screen.
std::int32_t neighbor(const std::vector<ScatterPoint>& points, std::int32_t from, Direction direction);

}  // namespace fsdp::gui
