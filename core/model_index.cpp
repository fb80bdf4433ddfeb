#include "core/model_index.h"

#include <algorithm>

namespace fsdp {

namespace {

std::vector<int> last_descendants(const Model& model) {
  const int count = static_cast<int>(model.modules.size());
  std::vector<int> last(model.modules.size());
  for (int m = count - 1; m >= 0; --m) {
    const auto slot = static_cast<std::size_t>(m);
    last[slot] = std::max(last[slot], m);
    const int parent = model.modules[slot].parent;
    if (parent >= 0) {
      auto& of_parent = last[static_cast<std::size_t>(parent)];
      of_parent = std::max(of_parent, last[slot]);
    }
  }
  return last;
}

// Modules with calls below them: their forward goes on from one call to the next.
std::vector<bool> modules_above_calls(const Model& model) {
  std::vector<bool> above(model.modules.size(), false);
  if (!above.empty()) above.front() = true;
  for (const Call& call : model.calls) {
    if (call.module <= 0) continue;
    int module = model.modules[static_cast<std::size_t>(call.module)].parent;
    for (; module >= 0; module = model.modules[static_cast<std::size_t>(module)].parent) {
      above[static_cast<std::size_t>(module)] = true;
    }
  }
  return above;
}

// A module runs once per call that it lies in. A module above several calls runs once over all that follow each other,
// ops of its own forward between them included.
void add_runs(const Model& model, ModelIndex& index) {
  index.runs.resize(model.modules.size());
  const std::vector<bool> above_calls = modules_above_calls(model);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Call& call = model.calls[c];
    const Block& block = model.blocks[static_cast<std::size_t>(call.block)];
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const int position = index.call_begin[c] + static_cast<int>(o);
      int module = call.modules[static_cast<std::size_t>(block.ops[o].module)];
      for (; module >= 0; module = model.modules[static_cast<std::size_t>(module)].parent) {
        auto& runs = index.runs[static_cast<std::size_t>(module)];
        const bool goes_on = o > 0 || above_calls[static_cast<std::size_t>(module)];
        if (goes_on && !runs.empty() && runs.back().end == position) {
          runs.back().end = position + 1;
        } else {
          runs.push_back({position, position + 1});
        }
      }
    }
  }
}

void mark_backward(const Model& model, ModelIndex& index) {
  index.in_backward.assign(static_cast<std::size_t>(index.num_positions()), false);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Block& block = model.blocks[static_cast<std::size_t>(model.calls[c].block)];
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      bool takes_part = false;
      for (const int value : block.ops[o].outputs) {
        const auto v = static_cast<std::size_t>(value);
        takes_part = takes_part || (index.flow.requires_grad[c][v] && index.flow.reaches_loss[c][v]);
      }
      index.in_backward[static_cast<std::size_t>(index.call_begin[c]) + o] = takes_part;
    }
  }
}

}  // namespace

int ModelIndex::find(std::string_view name) const {
  const auto at = std::lower_bound(names.begin(), names.end(), name,
                                   [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  return at != names.end() && at->first == name ? at->second : -1;
}

int ModelIndex::call_at(int position) const {
  const auto after = std::upper_bound(call_begin.begin(), call_begin.end(), position);
  return static_cast<int>(after - call_begin.begin()) - 1;
}

ModelIndex index_of(const Model& model) {
  ModelIndex index;
  index.model = &model;
  index.call_begin.push_back(0);
  for (const Call& call : model.calls) {
    const auto ops = model.blocks[static_cast<std::size_t>(call.block)].ops.size();
    index.call_begin.push_back(index.call_begin.back() + static_cast<int>(ops));
  }
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    index.names.emplace_back(model.modules[m].name, static_cast<int>(m));
  }
  std::sort(index.names.begin(), index.names.end());
  index.last_descendant = last_descendants(model);
  index.buffers.resize(model.modules.size());
  for (std::size_t b = 0; b < model.buffers.size(); ++b) {
    const int module = index.find(parent_name(model.buffers[b].name));
    if (module >= 0) index.buffers[static_cast<std::size_t>(module)].push_back(static_cast<int>(b));
  }
  index.flow = gradient_flow(model);
  add_runs(model, index);
  mark_backward(model, index);
  return index;
}

}  // namespace fsdp
