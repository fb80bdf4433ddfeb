// Finds the values that require a gradient, and those on a path to the loss.
//
// Two walks over the calls. Forward, as in autograd: the output of an op requires a gradient if one of its inputs does
// or if it reads a trainable parameter; outputs of a detach and integer outputs (ids, routing indices) never do. A
// captured value for which the script itself requested a gradient requires one in any case. Backward from the loss: a
// value reaches the loss if some op that passes gradients makes from it a value that reaches the loss. A frozen
// parameter gets no gradient, but its op passes those of its inputs. In a step of several passes, such a walk starts at
// every loss, and no gradient passes from one call to another if different backwards run through them: the fake images
// of a GAN are detached for the training of its critic.
//
// Sources: PyTorch, "Autograd mechanics" (requires_grad, grad mode); torch/csrc/autograd/functions/accumulate_grad.cpp
// runs for a parameter exactly when a node on the path from the loss has an edge to it.
//
// Not modeled: no_grad regions, except for the effect of a detach. Ops before the detach do require gradients, as they
// do in PyTorch, where their saved tensors live until only the detach's output is left of them. A prediction frees them
// at the end of their own call (simulator/ops/tape_forward.cpp).

#include "core/model/model.h"

namespace fsdp {
namespace {

bool is_differentiable(const Value& value) {
  return !value.dtype || is_floating_point(*value.dtype);
}

/// Whether gradients pass from an op's outputs to its inputs.
bool passes_gradients(const Op& op) {
  if (op.kind == OpKind::Recorded) return op.attributes.backward;
  return op.kind != OpKind::Detach && op.kind != OpKind::Constant && op.kind != OpKind::RotaryTable;
}

/// [num values] The backward that runs through the call that makes a value; -1 for inputs.
std::vector<int> backwards_of_values(const Model& model) {
  std::vector<int> backwards(model.values.size(), -1);
  for (const Call& call : model.calls) {
    for (const int value : call.outputs) backwards[value] = call.backward;
  }
  return backwards;
}

/// Marks the values of one call that require a gradient.
void walk_forward(const Model& model, const Call& call, const std::vector<int>& backwards,
                  std::vector<bool>& model_values, std::vector<bool>& values) {
  const Block& block = model.blocks[call.block];
  values.assign(block.values.size(), false);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = block.values[i].requires_grad;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const bool comes = model_values[call.inputs[i]] && backwards[call.inputs[i]] == call.backward;
    values[i] = values[i] || comes;
  }
  for (const Op& op : block.ops) {
    if (!passes_gradients(op)) continue;
    bool requires_grad = false;
    for (const int input : op.inputs) requires_grad = requires_grad || values[input];
    for (const int parameter : op.parameters) {
      if (requires_grad) break;
      const int id = call.parameters[parameter];
      requires_grad = model.parameters[id].trainable;
    }
    if (!requires_grad) continue;
    for (const int output : op.outputs) {
      const auto index = static_cast<std::size_t>(output);
      values[index] = is_differentiable(block.values[index]);
    }
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    if (values[block.outputs[i]]) {
      model_values[call.outputs[i]] = true;
    }
  }
}

/// Marks the values of one call that reach the loss.
void walk_backward(const Model& model, const Call& call, const std::vector<int>& backwards,
                   std::vector<bool>& model_values, std::vector<bool>& values) {
  const Block& block = model.blocks[call.block];
  values.assign(block.values.size(), false);
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    if (model_values[call.outputs[i]]) values[block.outputs[i]] = true;
  }
  for (auto op = block.ops.rbegin(); op != block.ops.rend(); ++op) {
    if (!passes_gradients(*op)) continue;
    bool reaches = false;
    for (const int output : op->outputs) reaches = reaches || values[output];
    if (!reaches) continue;
    for (const int input : op->inputs) {
      const auto index = static_cast<std::size_t>(input);
      if (is_differentiable(block.values[index])) values[index] = true;
    }
  }
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (values[i] && backwards[call.inputs[i]] == call.backward) model_values[call.inputs[i]] = true;
  }
}

}  // namespace

GradientFlow gradient_flow(const Model& model) {
  GradientFlow flow;
  flow.requires_grad.resize(model.calls.size());
  flow.reaches_loss.resize(model.calls.size());
  std::vector<bool> values(model.values.size(), false);
  const std::vector<int> backwards = backwards_of_values(model);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    walk_forward(model, model.calls[c], backwards, values, flow.requires_grad[c]);
  }
  values.assign(model.values.size(), false);
  if (model.loss >= 0) values[model.loss] = true;
  for (const Pass& pass : model.passes) values[pass.loss] = true;
  flow.output_reaches_loss.resize(model.calls.size());
  for (std::size_t c = model.calls.size(); c-- > 0;) {
    for (const int value : model.calls[c].outputs) {
      flow.output_reaches_loss[c].push_back(values[value]);
    }
    walk_backward(model, model.calls[c], backwards, values, flow.reaches_loss[c]);
  }
  return flow;
}

void derive_gradient_flow(Model& model) {
  for (Parameter& parameter : model.parameters) parameter.receives_gradient = false;
  const GradientFlow flow = gradient_flow(model);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Call& call = model.calls[c];
    for (const Op& op : model.blocks[call.block].ops) {
      if (!passes_gradients(op)) continue;
      bool on_path = false;
      for (const int output : op.outputs) {
        const auto index = static_cast<std::size_t>(output);
        on_path = on_path || (flow.requires_grad[c][index] && flow.reaches_loss[c][index]);
      }
      if (!on_path) continue;
      for (const int index : op.parameters) {
        const int id = call.parameters[index];
        Parameter& parameter = model.parameters[id];
        parameter.receives_gradient = parameter.trainable;
      }
    }
  }
}

}  // namespace fsdp
