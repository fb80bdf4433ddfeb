// When gradients are freed. Lowerings free them after the optimizer's step, which equals a zero_grad() before the next
// forward: nothing large happens in between. Scripts also call it between the loss and its backward. Then the gradients
// of a step still exist while the next forward saves its activations, and the peak is higher by all of them. With
// set_to_none=False they are never freed: a backward adds to them.
//
// The script clears gradients, not the framework, so this moves the clearing after any lowering. DeepSpeed's engines
// clear gradients by themselves, whatever the script does.
//
// Sources: torch/optim/optimizer.py (zero_grad), torch 2.11.
//
// Not modeled: gradients that are cleared for some parameters and kept for others.

#include "core/plan/gradient_clearing.h"

#include <algorithm>
#include <cstddef>

namespace fsdp {

namespace {

// The first instruction of the first micro-batch, with the frees that it begins with, at or after a call.
std::size_t place_of_call(const std::vector<Instruction>& steps, int call) {
  std::size_t begin = 0;
  while (begin < steps.size()) {
    const Action action = action_at(steps, begin);
    const Instruction& main = steps[action.main];
    const bool is_behind = main.kind == InstructionKind::Forward && main.call >= call;
    if (is_behind || main.phase != StepPhase::Forward) return begin;
    begin = action.end;
  }
  return begin;
}

}  // namespace

bool begins_with_gradients(const Model& model, const Plan& plan) {
  return begins_with_gradients(model) || plan.cuda_graphs;
}

void place_clearing(Schedule& schedule, const Model& model, const Plan& plan) {
  if (!begins_with_gradients(model, plan)) return;
  std::vector<Instruction>& steps = schedule.instructions;
  const auto is_clearing = [](const Instruction& step) { return step.kind == InstructionKind::ZeroGrad; };
  const auto found = std::find_if(steps.begin(), steps.end(), is_clearing);
  if (found == steps.end()) return;
  const Instruction clearing = *found;
  steps.erase(found);
  if (model.keeps_gradients || plan.cuda_graphs) return;
  const std::size_t place = place_of_call(steps, model.clears_gradients_at);
  steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(place), clearing);
}

}  // namespace fsdp
