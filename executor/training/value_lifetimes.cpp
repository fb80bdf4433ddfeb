// If a module's forward runs over the ops [begin, end), each value that is read inside and made outside is an argument
// of it, and lives at least to op end - 1; so do the values of its local variables. The simulator does the same
// (simulator/ops/op_rules.cpp).

#include "executor/training/value_lifetimes.h"

#include <algorithm>

namespace fsdp::executor {

namespace {

constexpr int kNever = -1;

bool lies_below(const Block& block, int module, int ancestor) {
  while (module > ancestor) module = block.modules[module].parent;
  return module == ancestor;
}

// The end of one run of a module, from an op on.
int end_of_run(const Block& block, int module, int op) {
  while (static_cast<std::size_t>(op) < block.ops.size() && lies_below(block, block.ops[op].module, module)) ++op;
  return op;
}

// Whether this value is in the history of the call's results.
bool carries_history(const ModelIndex& index, int call, int value) {
  const Call& reader = index.model->calls[call];
  const std::vector<bool>& requires_grad = index.flow.requires_grad[call];
  for (const Op& op : index.model->blocks[reader.block].ops) {
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(), [&](int input) {
      return input < static_cast<int>(reader.inputs.size()) && reader.inputs[input] == value;
    });
    const auto has_history = [&](int output) { return requires_grad[output]; };
    if (reads && std::any_of(op.outputs.begin(), op.outputs.end(), has_history)) return true;
  }
  return false;
}

// The position after the op of a call that releases a value.
int end_of_reading(const ModelIndex& index, int call, int value, const std::vector<std::vector<int>>& drops) {
  const std::vector<int>& inputs = index.model->calls[call].inputs;
  const auto is_it = [&](int local) { return local < static_cast<int>(inputs.size()) && inputs[local] == value; };
  for (std::size_t op = drops.size(); op-- > 0;) {
    if (std::any_of(drops[op].begin(), drops[op].end(), is_it))
      return index.call_begin[call] + static_cast<int>(op) + 1;
  }
  return index.call_begin[call + 1];
}

}  // namespace

std::vector<std::vector<int>> values_to_drop(const Block& block) {
  const auto num_ops = static_cast<int>(block.ops.size());
  std::vector<int> made(block.values.size(), kNever);
  std::vector<int> last(block.values.size(), kNever);
  for (int o = 0; o < num_ops; ++o) {
    for (const int output : block.ops[o].outputs) made[output] = last[output] = o;
    for (const int input : block.ops[o].inputs) last[input] = o;
  }
  for (int m = 1; m < static_cast<int>(block.modules.size()); ++m) {
    if (!block.modules[m].called) continue;
    for (int begin = 0; begin < num_ops; ++begin) {
      const int end = end_of_run(block, m, begin);
      for (int o = begin; o < end; ++o) {
        for (const int input : block.ops[o].inputs) {
          if (made[input] < begin) last[input] = std::max(last[input], end - 1);
        }
      }
      begin = std::max(begin, end - 1);
    }
  }
  for (const LocalVariable& local : block.locals) last[local.value] = std::max(last[local.value], local.until);
  std::vector<std::vector<int>> drops(block.ops.size());
  for (int value = 0; value < static_cast<int>(block.values.size()); ++value) {
    const bool is_output = std::find(block.outputs.begin(), block.outputs.end(), value) != block.outputs.end();
    if (last[value] != kNever && !is_output) drops[last[value]].push_back(value);
  }
  return drops;
}

std::vector<int> ends_of_unused(const ModelIndex& index, const std::vector<std::vector<std::vector<int>>>& drops,
                                const std::vector<bool>& is_part) {
  const Model& model = *index.model;
  const auto num_calls = static_cast<int>(model.calls.size());
  std::vector<std::vector<int>> readers(model.values.size());
  for (int c = 0; c < num_calls; ++c) {
    for (const int value : model.calls[c].inputs) readers[value].push_back(c);
  }
  std::vector<int> ends(model.calls.size());
  for (int c = num_calls; c-- > 0;) {
    ends[c] = index.call_begin[c + 1];
    const Block& block = model.blocks[model.calls[c].block];
    for (std::size_t o = 0; o < block.outputs.size(); ++o) {
      const bool is_unused = index.flow.requires_grad[c][block.outputs[o]] && !index.flow.output_reaches_loss[c][o];
      if (!is_unused) continue;
      const int value = model.calls[c].outputs[o];
      for (const int reader : readers[value]) {
        const bool goes_on = carries_history(index, reader, value);
        const int read = is_part[reader] ? end_of_reading(index, reader, value, drops[model.calls[reader].block])
                                         : index.call_begin[reader + 1];
        ends[c] = std::max({ends[c], read, goes_on ? ends[reader] : 0});
      }
    }
  }
  return ends;
}

}  // namespace fsdp::executor
