#pragma once

// A stack of step curves, decimated to pixel columns that still show every peak. No Qt.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gui/charts/chart_axis.h"

namespace fsdp::gui {

/// Stores, for each power of two of neighboring moments, the one with the highest total, so that the highest moment of
/// any range is found in a few steps.
class StackPyramid {
 public:
  StackPyramid() = default;
  /// `totals` [moments] belongs to the caller, who must not move it.
  explicit StackPyramid(const std::vector<std::int64_t>& totals);

  std::size_t size() const { return totals_ == nullptr ? 0 : totals_->size(); }
  /// The first of the highest moments in [begin, end). REQUIRES: begin < end <= size().
  std::size_t highest(std::size_t begin, std::size_t end) const;

 private:
  static constexpr std::size_t kBlock = 16;  // Moments below the lowest level, which are searched one by one.

  std::size_t better(std::size_t a, std::size_t b) const;

  const std::vector<std::int64_t>* totals_ = nullptr;
  std::vector<std::vector<std::uint32_t>> levels_;  // [levels][blocks] Moments; a level halves the one before.
};

/// A stretch of pixels that shows one moment: all categories of that moment, and of no other.
struct StackColumn {
  double begin = 0;  ///< Pixels.
  double end = 0;
  std::uint32_t moment = 0;

  bool operator==(const StackColumn&) const = default;
};

/// One column for each of `pixels` pixels of the axis; neighbors that show the same moment are joined. A moment lasts
/// until the next one. A pixel with several moments shows the one with the highest total, so that a peak of one event
/// has its full height and its categories were live together. `positions` [moments] never fall.
std::vector<StackColumn> decimate(const StackPyramid& pyramid, const std::vector<double>& positions,
                                  const ChartAxis& axis, int pixels);

/// The moment shown at a position: the last at or before it. REQUIRES: positions not empty.
std::size_t moment_at(const std::vector<double>& positions, double position);

}  // namespace fsdp::gui
