// Joining spans must not make a lane look busier than it is. A joined run therefore stores two figures: the share of
// its width that work covers, which sets the strength of its color, and the number of its spans, which is written on
// it.

#include "gui/charts/chart_lanes.h"

#include <algorithm>
#include <cmath>

namespace fsdp::gui {

namespace {

std::vector<LaneSpan>::const_iterator first_after(const std::vector<LaneSpan>& spans, double position) {
  return std::lower_bound(spans.begin(), spans.end(), position,
                          [](const LaneSpan& span, double at) { return span.end <= at; });
}

/// A span that takes no time has no width to share out.
double width_of(double begin, double end) {
  return std::max(end - begin, 1e-9);
}

}  // namespace

std::vector<LaneRun> runs_of(const std::vector<LaneSpan>& spans, const ChartAxis& axis) {
  std::vector<LaneRun> runs;
  double covered = 0;  // Width of the last run, in pixels, if it is a joined one.
  bool is_open = false;
  std::uint8_t group = 0;
  const auto close = [&] {
    if (is_open && runs.back().end > runs.back().begin) {
      runs.back().busy = std::min(1.0, covered / (runs.back().end - runs.back().begin));
    }
    if (is_open) {
      for (double& share : runs.back().shares) share /= covered;
    }
    is_open = false;
  };
  const auto begin_run = [&](const LaneSpan& span, double begin, double end, double share) {
    runs.push_back({begin, end, 1, 1, span.item, {}});
    runs.back().shares[span.kind] = share;
  };
  const double right = axis.left + axis.width;
  for (auto span = first_after(spans, axis.values.begin); span != spans.end(); ++span) {
    if (span->begin >= axis.values.end) break;
    const double begin = std::max(axis.left, axis.to_pixel(span->begin));
    const double end = std::min(right, axis.to_pixel(span->end));
    if (end - begin >= kNarrowestSpan) {
      close();
      begin_run(*span, begin, end, 1);
      continue;
    }
    if (is_open && begin - runs.back().end < 1 && span->group == group) {
      LaneRun& run = runs.back();
      run.end = std::max(run.end, end);
      run.shares[span->kind] += width_of(begin, end);
      ++run.count;
      covered += width_of(begin, end);
      continue;
    }
    close();
    begin_run(*span, begin, end, width_of(begin, end));
    covered = width_of(begin, end);
    group = span->group;
    is_open = true;
  }
  close();
  return runs;
}

std::int32_t span_at(const std::vector<LaneSpan>& spans, double position, double reach) {
  std::int32_t best = -1;
  double nearest = reach;
  auto span = first_after(spans, position);
  if (span != spans.begin()) --span;
  for (int tries = 0; tries < 3 && span != spans.end(); ++tries, ++span) {
    const double distance = std::max({0.0, span->begin - position, position - span->end});
    if (distance < nearest || (distance == 0 && best < 0)) {
      best = span->item;
      nearest = distance;
    }
  }
  return best;
}

double covered_length(std::vector<ValueRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const ValueRange& a, const ValueRange& b) { return a.begin < b.begin; });
  double length = 0;
  double end = -1e300;
  for (const ValueRange& range : ranges) {
    length += std::max(0.0, range.end - std::max(range.begin, end));
    end = std::max(end, range.end);
  }
  return length;
}

}  // namespace fsdp::gui
