#include "core/model/model_index.h"

#include <algorithm>

namespace fsdp {

namespace {

std::vector<int> last_descendants(const Model& model) {
  const int count = static_cast<int>(model.modules.size());
  std::vector<int> last(model.modules.size());
  for (int m = count - 1; m >= 0; --m) {
    last[m] = std::max(last[m], m);
    const int parent = model.modules[m].parent;
    if (parent >= 0) {
      auto& of_parent = last[parent];
      of_parent = std::max(of_parent, last[m]);
    }
  }
  return last;
}

// Modules with calls below them: their forward continues from one call to the next.
std::vector<bool> modules_above_calls(const Model& model) {
  std::vector<bool> above(model.modules.size(), false);
  if (!above.empty()) above.front() = true;
  for (const Call& call : model.calls) {
    if (call.module <= 0) continue;
    int module = model.modules[call.module].parent;
    for (; module >= 0; module = model.modules[module].parent) {
      above[module] = true;
    }
  }
  return above;
}

// A module runs once per call that contains it. A module above several calls runs once over all consecutive ones,
// including ops of its own forward between them.
void add_runs(const Model& model, ModelIndex& index) {
  index.runs.resize(model.modules.size());
  const std::vector<bool> above_calls = modules_above_calls(model);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Call& call = model.calls[c];
    const Block& block = model.blocks[call.block];
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const int position = index.call_begin[c] + static_cast<int>(o);
      int module = call.modules[block.ops[o].module];
      for (; module >= 0; module = model.modules[module].parent) {
        auto& runs = index.runs[module];
        const bool goes_on = o > 0 || above_calls[module];
        if (goes_on && !runs.empty() && runs.back().end == position) {
          runs.back().end = position + 1;
        } else {
          runs.push_back({position, position + 1});
        }
      }
    }
  }
}

// Per value of the model: the position of the op that makes it; -1 for the model's inputs.
std::vector<int> makers_of_values(const Model& model, const ModelIndex& index) {
  std::vector<int> makers(model.values.size(), -1);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Block& block = model.blocks[model.calls[c].block];
    for (std::size_t out = 0; out < block.outputs.size(); ++out) {
      int& maker = makers[model.calls[c].outputs[out]];
      for (std::size_t o = 0; o < block.ops.size(); ++o) {
        const std::vector<int>& made = block.ops[o].outputs;
        const bool is_made = std::find(made.begin(), made.end(), block.outputs[out]) != made.end();
        if (is_made) maker = index.call_begin[c] + static_cast<int>(o);
      }
    }
  }
  return makers;
}

// The model's value for a value of a call's block, if it is visible to others; -1 if not.
int model_value(const Model& model, const Call& call, int value) {
  const Block& block = model.blocks[call.block];
  if (value < block.num_inputs) return call.inputs[value];
  const auto found = std::find(block.outputs.begin(), block.outputs.end(), value);
  return found == block.outputs.end() ? -1 : call.outputs[found - block.outputs.begin()];
}

void hold_arguments_of(const Model& model, int module, const Span& run, const std::vector<int>& makers,
                       ModelIndex& index) {
  std::vector<int> held;
  for (int c = index.call_at(run.begin); c <= index.call_at(run.end - 1); ++c) {
    const Call& call = model.calls[c];
    const std::vector<Op>& ops = model.blocks[call.block].ops;
    for (std::size_t o = 0; o < ops.size(); ++o) {
      const int position = index.call_begin[c] + static_cast<int>(o);
      if (position < run.begin || position >= run.end) continue;
      for (const int input : ops[o].inputs) {
        const int value = model_value(model, call, input);
        if (value < 0) continue;
        const int maker = makers[value];
        const bool is_new = maker >= 0 && maker < run.begin && std::find(held.begin(), held.end(), value) == held.end();
        if (is_new) held.push_back(value);
      }
    }
  }
  for (const int value : held) index.held_arguments.push_back({value, run.end, module});
}

// Values that the root names belong to no module.
void hold_named_value(const Model& model, const NamedValue& named, int maker, ModelIndex& index) {
  const int call_end = index.call_begin[index.call_at(maker) + 1];
  for (int module = named.module; module > 0; module = model.modules[module].parent) {
    if (!model.modules[module].called) continue;
    for (const Span& run : index.runs[module]) {
      if (run.begin > maker || run.end <= call_end) continue;
      index.held_arguments.push_back({named.value, run.end, module});
      return;
    }
  }
}

// A run within one call is handled by its block.
void find_held_arguments(const Model& model, ModelIndex& index) {
  const std::vector<int>& makers = index.made_at;
  for (std::size_t m = 1; m < model.modules.size(); ++m) {
    if (!model.modules[m].called) continue;
    for (const Span& run : index.runs[m]) {
      if (index.call_at(run.begin) == index.call_at(run.end - 1)) continue;
      hold_arguments_of(model, static_cast<int>(m), run, makers, index);
    }
  }
  for (const NamedValue& named : model.named) {
    hold_named_value(model, named, makers[named.value], index);
  }
  std::stable_sort(index.held_arguments.begin(), index.held_arguments.end(),
                   [](const HeldArgument& a, const HeldArgument& b) { return a.end < b.end; });
}

void mark_backward(const Model& model, ModelIndex& index) {
  index.in_backward.assign(index.num_positions(), false);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Block& block = model.blocks[model.calls[c].block];
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      bool takes_part = false;
      for (const int value : block.ops[o].outputs) {
        takes_part = takes_part || (index.flow.requires_grad[c][value] && index.flow.reaches_loss[c][value]);
      }
      index.in_backward[index.call_begin[c] + o] = takes_part;
    }
  }
  index.alike_from.assign(index.num_positions(), 0);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    for (int p = index.call_begin[c]; p < index.call_begin[c + 1]; ++p) {
      const bool is_alike = p > index.call_begin[c] && index.in_backward[p - 1] == index.in_backward[p];
      index.alike_from[p] = is_alike ? index.alike_from[p - 1] : p;
    }
  }
}

// From the last call to the first, so that later reads of a call's outputs are known.
void note_last_reads(const Model& model, ModelIndex& index) {
  index.last_read.assign(index.num_positions(), -1);
  std::vector<int> of_value(model.values.size(), -1);
  // A backward other than the maker's has no gradient for it.
  const auto comes_from = [&](const Call& call, int value) {
    return index.made_at[value] < 0 || model.calls[index.call_at(index.made_at[value])].backward == call.backward;
  };
  const auto raise = [](int& to, int position) { to = std::max(to, position); };
  for (std::size_t c = model.calls.size(); c-- > 0;) {
    const Call& call = model.calls[c];
    const Block& block = model.blocks[call.block];
    const int begin = index.call_begin[c];
    std::vector<int> inside(block.values.size(), -1);
    for (std::size_t o = 0; o < block.outputs.size(); ++o) {
      raise(inside[block.outputs[o]], of_value[call.outputs[o]]);
    }
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const int position = begin + static_cast<int>(o);
      if (!index.in_backward[position]) continue;
      for (const int input : block.ops[o].inputs) raise(inside[input], position);
    }
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      int& last = index.last_read[begin + o];
      for (const int output : block.ops[o].outputs) raise(last, inside[output]);
    }
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (!has_passes(model) || comes_from(call, call.inputs[i])) raise(of_value[call.inputs[i]], inside[i]);
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
    const auto ops = model.blocks[call.block].ops.size();
    index.call_begin.push_back(index.call_begin.back() + static_cast<int>(ops));
  }
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    index.names.emplace_back(model.modules[m].name, static_cast<int>(m));
  }
  std::sort(index.names.begin(), index.names.end());
  index.last_descendant = last_descendants(model);
  index.own_parameters.resize(model.modules.size());
  std::vector<bool> is_named(model.parameters.size(), false);
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    for (const int p : model.modules[m].parameters) {
      if (is_named[p] || model.parameters[p].module != static_cast<int>(m)) continue;
      is_named[p] = true;
      index.own_parameters[m].push_back(p);
    }
  }
  index.buffers.resize(model.modules.size());
  for (std::size_t b = 0; b < model.buffers.size(); ++b) {
    const int module = index.find(parent_name(model.buffers[b].name));
    if (module >= 0) index.buffers[module].push_back(static_cast<int>(b));
  }
  index.flow = gradient_flow(model);
  add_runs(model, index);
  index.made_at = makers_of_values(model, index);
  find_held_arguments(model, index);
  mark_backward(model, index);
  note_last_reads(model, index);
  return index;
}

}  // namespace fsdp
