// Views, copies and indexing.
//
// A view costs nothing forward. Backward, a view of all elements passes its gradient on; a view of some of them
// (a slice, one part of a split) fills a tensor of the full size.
//
// Source: tools/autograd/derivatives.yaml (slice, select, split, unbind, expand, index, cat, stack), torch 2.11.

#include "simulator/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// The parts share one storage. Their gradients are joined into one new tensor by one node.
void write_split(KernelWriter& w) {
  const int x = w.input(0);
  const std::int64_t part = num_elements(w.output_shape(0));
  std::vector<int> parts;
  for (std::size_t i = 0; i < w.op().outputs.size(); ++i) parts.push_back(w.alias(x, part));
  w.add(KernelKind::View, {{x, GradRule::Fresh}}, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) w.set_output(static_cast<int>(i), parts[i]);
}

int index(KernelWriter& w) {
  const int x = w.input(0);
  const int y = w.make(num_elements(w.output_shape(0)), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  if (w.has_input(1)) kernel.saved = {{w.input(1), 0}};
  // index_put_ with accumulation sorts its indices.
  const std::int64_t rows = w.has_input(1) ? w.elements(w.input(1)) : 0;
  if (rows > 0) kernel.backward_temps = {{8 * rows}, {8 * rows}, {8 * rows}, {8 * rows}, {1}};
  if (rows > 0) kernel.backward_temps.insert(kernel.backward_temps.begin(), {8 * rows, TempLife::Brief});
  return y;
}

// qkv.view(batch, seq, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind(0): the gradients of the parts are stacked in the
// order of the permuted shape, so that the view's backward must copy them into its own.
bool leads_to_permuted_split(const KernelWriter& w) {
  const Block& block = w.block();
  int value = w.op().outputs.front();
  bool permuted = false;
  for (const Op& op : block.ops) {
    if (op.inputs.empty() || op.inputs.front() != value) continue;
    if (op.kind == OpKind::Split) return permuted;
    if (op.kind != OpKind::Transpose) return false;
    permuted = true;
    value = op.outputs.front();
  }
  return false;
}

int compute(KernelWriter& w) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  switch (w.op().kind) {
    case OpKind::Constant: {
      const int y = w.make(elements, w.op().attributes.dtype.value_or(w.activation()), false);
      w.add(KernelKind::Elementwise, {}, {y});
      return y;
    }
    case OpKind::Detach: {
      const int y = w.alias(w.input(0));
      w.add(KernelKind::View, {{w.input(0), GradRule::None}}, {y});
      return y;
    }
    case OpKind::Slice:
    case OpKind::Select:
      return elements == w.elements(w.input(0)) ? w.view(w.input(0)) : w.slice(w.input(0), elements);
    case OpKind::Expand:
      // The gradient of an expanded tensor is summed over the new dimensions.
      return elements == w.elements(w.input(0)) ? w.view(w.input(0)) : w.slice(w.input(0), elements);
    case OpKind::Contiguous:
      return w.copy(w.input(0));
    case OpKind::Pad: {
      const int y = w.copy(w.input(0), elements);
      if (w.op().attributes.reflect) w.last_kernel().saved = {{w.input(0), 0}};
      return y;
    }
    case OpKind::Index:
      return index(w);
    case OpKind::Cat:
    case OpKind::Stack: {
      std::vector<int> parts;
      for (int i = 0; w.has_input(i); ++i) parts.push_back(w.input(i));
      return w.cat(parts);
    }
    case OpKind::Reshape:
      return leads_to_permuted_split(w) ? w.view_with_copied_gradient(w.input(0)) : w.view(w.input(0));
    default:  // Transpose.
      return w.view(w.input(0));
  }
}

}  // namespace

void write_shape_op(KernelWriter& w) {
  if (w.op().kind == OpKind::Split) return write_split(w);
  w.set_output(0, compute(w));
}

}  // namespace fsdp::simulator
