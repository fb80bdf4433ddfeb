// Autograd runs the op whose forward came last first, and the nodes that hand a gradient to a parameter before any
// other, so the order is that of the backward. Inside an op: addmm hands out the bias first, because its weight comes
// through the backward of a transposition; what other ops hand out at once is taken in the order of their arguments.
// Under autocast both come through the backward of a cast, and F.linear casts its bias before its weight.
//
// Sources: torch/csrc/autograd/engine.cpp, torch/csrc/distributed/c10d/reducer.cpp, torch 2.11.

#include "core/plan/ready_gradients.h"

#include <algorithm>

#include "core/model/recorded_block.h"

namespace fsdp {

namespace {

// The parameters of an op in the order in which its backward hands their gradients out, by their index in the block.
std::vector<int> order_inside(const Block& block, int op, bool zero3_linear, bool casts_weights) {
  std::vector<int> order = block.ops[op].parameters;
  const bool keeps_order = (zero3_linear || casts_weights) && !block.ops[op].attributes.transposed_weight;
  const OpKind kind = block.ops[op].kind;
  const bool turns = kind == OpKind::Experts || kind == OpKind::GroupedExperts || kind == OpKind::DenseExperts ||
                     (kind == OpKind::Linear && !keeps_order);
  if (turns) std::reverse(order.begin(), order.end());
  if (block.ops[op].kind != OpKind::Recorded || !block.recorded || block.recorded->tapes.empty()) return order;
  order.clear();
  for (const RecordedEvent& event : block.recorded->tapes.front().backward[op]) {
    if (event.kind == RecordedEvent::Kind::AddGrad) order.push_back(event.index);
  }
  return order;
}

}  // namespace

std::vector<ReadyGradient> gradients_as_they_are_ready(const ModelIndex& index, bool zero3_linear, bool casts_weights) {
  const Model& model = *index.model;
  std::vector<ReadyGradient> last_first;
  std::vector<bool> is_there(model.parameters.size(), false);
  // A parameter of several uses is ready after the one that comes first in forward.
  for (std::size_t c = 0; c + 1 < index.call_begin.size(); ++c) {
    const Call& call = model.calls[c];
    const Block& block = model.blocks[call.block];
    for (int op = 0; op < static_cast<int>(block.ops.size()); ++op) {
      const int position = index.call_begin[c] + op;
      if (!index.in_backward[position]) continue;
      std::vector<int> order = order_inside(block, op, zero3_linear, casts_weights);
      for (auto local = order.rbegin(); local != order.rend(); ++local) {
        const int p = call.parameters[*local];
        if (is_there[p] || !model.parameters[p].receives_gradient) continue;
        is_there[p] = true;
        last_first.push_back({p, position});
      }
    }
  }
  std::reverse(last_first.begin(), last_first.end());
  return last_first;
}

}  // namespace fsdp
