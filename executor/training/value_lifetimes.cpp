// Where a module's forward runs over the ops [begin, end), each value that is read inside and made outside is an
// argument of it, and lives to op end - 1 at least; so do the values of its local variables. The simulator holds them
// alike (simulator/ops/op_rules.cpp).

#include "executor/training/value_lifetimes.h"

#include <algorithm>

namespace fsdp::executor {

namespace {

constexpr int kNever = -1;

bool lies_below(const Block& block, int module, int ancestor) {
  while (module > ancestor) module = block.modules[module].parent;
  return module == ancestor;
}

// One run of a module, from an op on: how far it goes.
int end_of_run(const Block& block, int module, int op) {
  while (static_cast<std::size_t>(op) < block.ops.size() && lies_below(block, block.ops[op].module, module)) ++op;
  return op;
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

std::vector<int> ends_of_unused(const ModelIndex& index, const std::vector<int>& last_use) {
  const Model& model = *index.model;
  std::vector<int> ends(model.calls.size());
  for (std::size_t c = model.calls.size(); c-- > 0;) {
    ends[c] = static_cast<int>(c);
    const Block& block = model.blocks[model.calls[c].block];
    for (std::size_t o = 0; o < block.outputs.size(); ++o) {
      const bool is_unused = index.flow.requires_grad[c][block.outputs[o]] && !index.flow.output_reaches_loss[c][o];
      const int user = last_use[model.calls[c].outputs[o]];
      if (is_unused && user != kNever) ends[c] = std::max(ends[c], ends[user]);
    }
  }
  return ends;
}

}  // namespace fsdp::executor
