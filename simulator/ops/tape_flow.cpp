// A value requires a gradient if a kernel makes it from one that does, or if somebody requested it. The backward
// reaches a node if its output leads to an output of the block that leads to the loss. The others are nodes of a graph
// that is never traversed.

#include "simulator/ops/tape_flow.h"

namespace fsdp::simulator {

TapeFlow find_flow(const Block& block, const KernelProgram& program, const TapeContext& context) {
  TapeFlow flow;
  flow.requires_grad.assign(program.slots.size(), false);
  flow.recorded.assign(program.kernels.size(), false);
  flow.active.assign(program.kernels.size(), false);
  for (int v = 0; v < block.num_inputs; ++v) {
    const int slot = program.value_slot[v];
    flow.requires_grad[slot] = context.input_requires_grad[v] && program.slots[slot].differentiable;
  }
  for (std::size_t p = 0; p < program.parameter_slot.size(); ++p) {
    flow.requires_grad[program.parameter_slot[p]] = context.parameter_requires_grad[p];
  }
  std::vector<bool> is_leaf(program.slots.size(), false);
  for (std::size_t v = 0; v < block.values.size(); ++v) {
    if (block.values[v].requires_grad && program.value_slot[v] >= 0) is_leaf[program.value_slot[v]] = true;
  }
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    bool any = false;
    for (const KernelInput& input : kernel.inputs) {
      any = any || (input.grad != GradRule::None && flow.requires_grad[input.slot]);
    }
    for (const int slot : kernel.outputs) {
      any = any || is_leaf[slot];
      flow.requires_grad[slot] = any && program.slots[slot].differentiable;
    }
    flow.recorded[k] = any;
  }
  std::vector<bool> reached(program.slots.size(), false);
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    if (context.output_reaches_loss[o]) reached[program.value_slot[block.outputs[o]]] = true;
  }
  for (std::size_t k = program.kernels.size(); k-- > 0;) {
    const Kernel& kernel = program.kernels[k];
    if (!flow.recorded[k]) continue;
    for (const int slot : kernel.outputs)
      flow.active[k] = flow.active[k] || (reached[slot] && flow.requires_grad[slot]);
    if (!flow.active[k]) continue;
    for (const KernelInput& input : kernel.inputs) {
      if (input.grad != GradRule::None) reached[input.slot] = true;
    }
  }
  return flow;
}

}  // namespace fsdp::simulator
