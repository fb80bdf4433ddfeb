#include "core/plan/unit_windows.h"

#include <algorithm>

namespace fsdp {

namespace {

bool takes_gradient_input(const ModelIndex& index, const Block& block, int call, int begin, int end) {
  std::vector<bool> made_inside(block.values.size(), false);
  for (int o = begin; o < end; ++o) {
    const Op& op = block.ops[o];
    for (const int value : op.inputs) {
      const bool flows = index.flow.requires_grad[call][value] && index.flow.reaches_loss[call][value];
      if (flows && !made_inside[value]) return true;
    }
    for (const int value : op.outputs) made_inside[value] = true;
  }
  return false;
}

// The inputs of a module reach the ops of its first call; what later calls take, earlier ones made.
bool an_input_requires_grad(const ModelIndex& index, const Window& window) {
  const Model& model = *index.model;
  const int call = index.call_at(window.begin);
  const int first = index.call_begin[call];
  const int end = std::min(window.end, index.call_begin[call + 1]);
  const Block& block = model.blocks[model.calls[call].block];
  return takes_gradient_input(index, block, call, window.begin - first, end - first);
}

// A unit of several modules is unsharded when the first of them runs and left when each has run.
std::vector<Window> joined_runs(const ShardedUnit& unit, const ModelIndex& index) {
  struct Run {
    Span span;
    int module;
  };
  std::vector<Run> runs;
  for (const int module : unit.modules) {
    for (const Span& span : index.runs[module]) runs.push_back({span, module});
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.span.begin < b.span.begin; });
  std::vector<Window> windows;
  std::vector<int> to_run;  // FSDP2's _modules_to_run_forward.
  for (const Run& run : runs) {
    if (to_run.empty()) {
      to_run = unit.modules;
      windows.push_back({run.span.begin, run.span.end});
    }
    std::erase(to_run, run.module);
    windows.back().end = run.span.end;
    windows.back().runs_post_forward = to_run.empty();
  }
  return windows;
}

// The pre-backward hook hangs on the root's result, whose gradient comes before that of the root's last op.
void leave_with_root(Window& window, const ModelIndex& index) {
  window.is_left_by_root = true;
  window.further_pre_backwards.clear();
  for (const Span& run : index.runs.front()) {
    if (window.begin < run.begin || window.begin >= run.end) continue;
    window.pre_backward = -1;
    for (int p = run.end - 1; p >= run.begin && window.pre_backward < 0; --p) {
      if (index.in_backward[p]) window.pre_backward = p;
    }
  }
}

}  // namespace

std::vector<Window> windows_of(const ShardedUnit& unit, const ModelIndex& index, bool completes_partial) {
  std::vector<Window> windows;
  if (unit.modules.size() == 1) {
    for (const Span& run : index.runs[unit.modules.front()]) windows.push_back({run.begin, run.end});
  } else {
    windows = joined_runs(unit, index);
  }
  for (Window& window : windows) {
    for (int p = window.end - 1; p >= window.begin && window.pre_backward < 0; --p) {
      if (index.in_backward[p]) window.pre_backward = p;
    }
    for (int p = window.begin; p < window.pre_backward; ++p) {
      if (index.in_backward[p] && index.last_read[p] >= window.end) window.further_pre_backwards.push_back(p);
    }
    window.has_post_backward = !unit.is_root && an_input_requires_grad(index, window);
    if (completes_partial && !window.runs_post_forward) leave_with_root(window, index);
  }
  return windows;
}

}  // namespace fsdp
