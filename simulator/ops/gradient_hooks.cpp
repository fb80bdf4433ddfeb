#include "simulator/ops/gradient_hooks.h"

#include <algorithm>

namespace fsdp::simulator {

namespace {

int end_of_first_module(const ModelIndex& index, const ShardedUnit& unit, const Window& window) {
  for (const int module : unit.modules) {
    for (const Span& run : index.runs[module]) {
      if (run.begin == window.begin) return run.end;
    }
  }
  return window.end;
}

}  // namespace

std::vector<HookedPass> hooked_passes(const ModelIndex& index, const Layout& layout) {
  std::vector<HookedPass> passes;
  if (layout.has_flat_units()) return passes;
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const ShardedUnit& unit = layout.units[u];
    if (unit.is_root || unit.parameters.empty()) continue;
    for (const Window& window : unit.windows) {
      passes.push_back({{window.begin, end_of_first_module(index, unit, window)}, static_cast<int>(u)});
    }
  }
  const auto length = [](const HookedPass& pass) { return pass.positions.end - pass.positions.begin; };
  std::stable_sort(passes.begin(), passes.end(),
                   [&](const HookedPass& a, const HookedPass& b) { return length(a) < length(b); });
  return passes;
}

std::vector<std::vector<Span>> hooks_inside_calls(const ModelIndex& index, const std::vector<HookedPass>& passes) {
  std::vector<std::vector<Span>> inside;
  for (const auto& [pass, unit] : passes) {
    const int call = index.call_at(pass.begin);
    const int begin = index.call_begin[call];
    if (pass.begin == begin || pass.end > index.call_begin[call + 1]) continue;
    inside.resize(index.call_begin.size() - 1);
    inside[call].push_back({pass.begin - begin, pass.end - begin});
  }
  return inside;
}

}  // namespace fsdp::simulator
