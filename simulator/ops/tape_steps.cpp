// The backward of a Python Function whose code we follow step by step (Kernel::backward_steps). What it makes without
// dropping is in variables of its own, which go when it returns; the engine then drops the gradient of the output and
// what the Function saved.

#include <utility>

#include "simulator/ops/tape_recorder.h"

namespace fsdp::simulator {

void TapeRecorder::run_steps(const Kernel& kernel, const Grad& grad_out) {
  std::vector<int> variables;
  if (must_flatten(kernel, grad_out)) {
    const std::int64_t bytes = program_.slots[kernel.outputs.front()].bytes();
    variables.push_back(make_temporary(bytes, kernel.op, MemoryCategory::Temp));
  }
  std::vector<int> made;  // [num Make steps] -1 once it is dropped.
  std::vector<std::pair<int, Grad>> gradients;
  for (const BackwardStep& step : kernel.backward_steps) {
    switch (step.kind) {
      case BackwardStep::Kind::Make:
        made.push_back(make_temporary(step.bytes, kernel.op, MemoryCategory::Temp));
        break;
      case BackwardStep::Kind::Drop:
        drop_temporary(std::exchange(made[static_cast<std::size_t>(step.index)], -1));
        break;
      case BackwardStep::Kind::Workspace:
        emit(Kind::Workspace, step.index);
        break;
      case BackwardStep::Kind::Gradient: {
        const KernelInput& input = kernel.inputs[static_cast<std::size_t>(step.index)];
        if (flow_.requires_grad[input.slot]) {
          gradients.emplace_back(input.slot, gradient_of(kernel, input, grad_out));
        } else {
          variables.push_back(make_temporary(program_.slots[input.slot].bytes(), kernel.op, MemoryCategory::Temp));
        }
        break;
      }
    }
  }
  for (const int temporary : made) {
    if (temporary >= 0) drop_temporary(temporary);
  }
  for (const int variable : variables) drop_temporary(variable);
  const auto release_all_saved = [&] {
    for (const SavedSlot& saved : kernel.saved) {
      if (is_saved(kernel, saved)) release_saved(storage_of(saved.slot));
    }
  };
  if (is_checkpointed()) release_all_saved();
  for (const int slot : kernel.outputs) {
    if (grad_of_slot_[slot].storage >= 0) release(grad_of_slot_[slot].storage);
    grad_of_slot_[slot] = {};
  }
  if (!is_checkpointed()) release_all_saved();
  leave_inner(static_cast<std::size_t>(&kernel - program_.kernels.data()));
  for (const auto& [slot, grad] : gradients) accumulate(slot, grad, kernel.op);
}

}  // namespace fsdp::simulator
