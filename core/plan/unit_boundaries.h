#pragma once

// Where units are entered and left: what the lowerings of FSDP1 and FSDP2 share.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/plan/sharding.h"

namespace fsdp {

/// The pass of a boundary.
inline const Window& window_of(const Layout& layout, const UnitBoundary& boundary) {
  return layout.units[boundary.unit].windows[boundary.window];
}

/// [passes of all units] Where each pass begins, unit by unit.
std::vector<UnitBoundary> unit_passes(const Layout& layout);

/// [passes] Where units are entered, in that order: at one position outer units before those inside them.
std::vector<UnitBoundary> unit_begins(const Layout& layout);

/// [passes] Where units are left, in that order: at one position outer units after those inside them.
std::vector<UnitBoundary> unit_ends(const Layout& layout);

/// Sorts by position; at one position, outer units come before those inside them.
void sort_outer_first(std::vector<UnitBoundary>& boundaries, const Layout& layout);

/// The units of the boundaries that have parameters, each where it stands first.
std::vector<int> distinct_units(const std::vector<UnitBoundary>& boundaries, const Layout& layout);

/// The hooks of all units of a layout.
HookOrder hook_order(const Layout& layout);

/// [units] All units in the order of their first modules.
std::vector<int> units_in_module_order(const Layout& layout);

/// The first of these, in the order of their positions, at `position` or after it.
inline std::vector<UnitBoundary>::const_iterator first_from(const std::vector<UnitBoundary>& sorted, int position) {
  return std::partition_point(sorted.begin(), sorted.end(),
                              [&](const UnitBoundary& each) { return each.position < position; });
}

/// Walks over the forward of all calls: `enter` and `leave` are called with the boundaries of `unit_begins` and
/// `unit_ends`, what is left at a position before what is entered there, and `run` between them with a call and the
/// positions [begin, end) of its ops. Only in the calls [calls.begin, calls.end) if they are given: no pass of a
/// unit goes across their borders.
template <class Enter, class Run, class Leave>
void walk_forward(const ModelIndex& index, const std::vector<UnitBoundary>& begins,
                  const std::vector<UnitBoundary>& ends, Span calls, Enter enter, Run run, Leave leave) {
  const int first = index.call_begin[static_cast<std::size_t>(calls.begin)];
  auto next_begin = first_from(begins, first);
  auto next_end = first_from(ends, first + 1);
  const auto leave_units = [&](int position) {
    for (; next_end != ends.end() && next_end->position <= position; ++next_end) leave(*next_end);
  };
  for (auto c = static_cast<std::size_t>(calls.begin); c < static_cast<std::size_t>(calls.end); ++c) {
    int position = index.call_begin[c];
    while (position < index.call_begin[c + 1]) {
      leave_units(position);
      for (; next_begin != begins.end() && next_begin->position <= position; ++next_begin) enter(*next_begin);
      int stop = index.call_begin[c + 1];
      if (next_begin != begins.end()) stop = std::min(stop, next_begin->position);
      if (next_end != ends.end()) stop = std::min(stop, next_end->position);
      run(static_cast<int>(c), position, stop);
      position = stop;
    }
  }
  leave_units(index.call_begin[static_cast<std::size_t>(calls.end)]);
}

template <class Enter, class Run, class Leave>
void walk_forward(const ModelIndex& index, const std::vector<UnitBoundary>& begins,
                  const std::vector<UnitBoundary>& ends, Enter enter, Run run, Leave leave) {
  const Span all{0, static_cast<int>(index.call_begin.size()) - 1};
  walk_forward(index, begins, ends, all, enter, run, leave);
}

}  // namespace fsdp
