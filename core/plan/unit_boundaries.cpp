#include "core/plan/unit_boundaries.h"

#include <algorithm>

namespace fsdp {

namespace {

int length_of(const Layout& layout, const UnitBoundary& boundary) {
  const Window& window = window_of(layout, boundary);
  return window.end - window.begin;
}

}  // namespace

std::vector<UnitBoundary> unit_passes(const Layout& layout) {
  std::vector<UnitBoundary> passes;
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const std::vector<Window>& windows = layout.units[u].windows;
    for (std::size_t w = 0; w < windows.size(); ++w) {
      passes.push_back({windows[w].begin, static_cast<int>(u), static_cast<int>(w)});
    }
  }
  return passes;
}

std::vector<UnitBoundary> unit_begins(const Layout& layout) {
  std::vector<UnitBoundary> begins = unit_passes(layout);
  sort_outer_first(begins, layout);
  return begins;
}

std::vector<UnitBoundary> unit_ends(const Layout& layout) {
  std::vector<UnitBoundary> ends = unit_passes(layout);
  for (UnitBoundary& end : ends) end.position = window_of(layout, end).end;
  std::stable_sort(ends.begin(), ends.end(), [&](const UnitBoundary& a, const UnitBoundary& b) {
    return a.position != b.position ? a.position < b.position : length_of(layout, a) < length_of(layout, b);
  });
  return ends;
}

void sort_outer_first(std::vector<UnitBoundary>& boundaries, const Layout& layout) {
  std::stable_sort(boundaries.begin(), boundaries.end(), [&](const UnitBoundary& a, const UnitBoundary& b) {
    return a.position != b.position ? a.position < b.position : length_of(layout, a) > length_of(layout, b);
  });
}

std::vector<int> distinct_units(const std::vector<UnitBoundary>& boundaries, const Layout& layout) {
  std::vector<int> order;
  std::vector<bool> is_known(layout.units.size(), false);
  for (const UnitBoundary& boundary : boundaries) {
    if (is_known[boundary.unit] || layout.units[boundary.unit].parameters.empty()) continue;
    is_known[boundary.unit] = true;
    order.push_back(boundary.unit);
  }
  return order;
}

HookOrder hook_order(const Layout& layout) {
  HookOrder order{.begins = unit_begins(layout), .ends = unit_ends(layout)};
  for (const UnitBoundary& pass : unit_passes(layout)) {
    const Window& window = window_of(layout, pass);
    // The pre-backward hooks are hung on the outputs by the post-forward hook.
    if (window.runs_post_forward || window.is_left_by_root) {
      if (window.pre_backward >= 0) order.pre_backwards.push_back({window.pre_backward, pass.unit, pass.window});
      for (const int position : window.further_pre_backwards)
        order.pre_backwards.push_back({position, pass.unit, pass.window});
    }
    if (window.has_post_backward) order.post_backwards.push_back(pass);
  }
  // Hooks on one tensor run in the order in which they were registered: the inner unit's first, as in post-forward.
  // An outer unit whose own ops follow is reached first because its last op lies later.
  sort_outer_first(order.pre_backwards, layout);
  sort_outer_first(order.post_backwards, layout);
  order.forward_order = distinct_units(order.begins, layout);
  order.backward_order = distinct_units(order.ends, layout);
  std::reverse(order.backward_order.begin(), order.backward_order.end());
  return order;
}

std::vector<int> units_in_module_order(const Layout& layout) {
  std::vector<int> order(layout.units.size());
  for (std::size_t u = 0; u < order.size(); ++u) order[u] = static_cast<int>(u);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return layout.units[a].modules.front() < layout.units[b].modules.front(); });
  return order;
}

}  // namespace fsdp
