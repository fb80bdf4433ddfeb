// Views, copies and indexing.
//
// A view costs nothing forward. Backward, a view of all elements passes its gradient on; a view of some of them
// (a slice, one part of a split) fills a tensor of the full size.
//
// Source: tools/autograd/derivatives.yaml (slice, select, split, unbind, expand, index, cat, stack), torch 2.11.

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// The parts share one storage. Their gradients are joined into one new tensor by one node.
void write_split(KernelWriter& w) {
  const int x = w.input(0);
  std::vector<int> parts;
  for (int i = 0; i < static_cast<int>(w.op().outputs.size()); ++i) {
    parts.push_back(w.alias(x, num_elements(w.output_shape(i))));
  }
  Kernel& kernel = w.add(KernelKind::View, {{x, GradRule::Fresh}}, parts);
  if (w.input_shape(0).size() == 4) kernel.order = {GradientOrder::Kind::Joined, w.input_shape(0)};
  for (std::size_t i = 0; i < parts.size(); ++i) w.set_output(static_cast<int>(i), parts[i]);
}

int index(KernelWriter& w) {
  const int x = w.input(0);
  const int y = w.make(num_elements(w.output_shape(0)), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  if (w.has_input(1)) kernel.saved = {{w.input(1), 0}};
  // index_put_ with accumulation sorts its indices.
  const std::int64_t rows = w.has_input(1) ? w.elements(w.input(1)) : 0;
  if (rows > 0) {
    kernel.backward_temps = {
        {8 * rows, TempLife::Brief}, {8 * rows, TempLife::Handed}, {8 * rows}, {8 * rows}, {8 * rows}, {1}};
  }
  return y;
}

int dimension(std::int64_t dim, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  return static_cast<int>((dim + rank) % rank);
}

int joined(KernelWriter& w) {
  std::vector<int> parts;
  for (int i = 0; w.has_input(i); ++i) parts.push_back(w.input(i));
  const Shape& whole = w.output_shape(0);
  return w.cat(parts, {GradientOrder::Kind::Cut, {}, whole, dimension(w.op().attributes.dim, whole)});
}

void write_kv_cache(KernelWriter& w) {
  for (int i = 0; i < 2; ++i) {
    if (!w.context().implementations.use_cache) {
      w.set_output(i, w.input(i));
      continue;
    }
    const Shape& shape = w.input_shape(i);
    const Shape cached = {shape[0], shape[2], shape[1], shape[3]};
    const int all = w.cat({w.transpose(w.input(i), shape, 1, 2)}, {GradientOrder::Kind::Cut, {}, cached, 2});
    w.set_output(i, w.transpose(all, cached, 1, 2));
  }
}

// A node of its own (CopySlices) copies the gradient of the whole, and uses a copy of the part.
int set_slice(KernelWriter& w) {
  const int x = w.input(0), part = w.input(1);
  w.require_wide(x, "A change of a part");
  w.require_wide(part, "A change of a part");
  const int y = w.slot(part).differentiable ? w.written_in_place(x) : w.alias(x);
  const bool is_new = !w.slot(x).differentiable;  // Its gradient is copied all the same, and dropped.
  Kernel& kernel =
      w.add(KernelKind::Elementwise, {{x, is_new ? GradRule::None : GradRule::Fresh}, {part, GradRule::Fresh}}, {y});
  if (is_new) kernel.backward_temps.push_back({w.bytes(x), TempLife::Whole});
  // The copy of the part becomes its gradient.
  for (int i = 0; i < (is_new ? 0 : 2); ++i) kernel.backward_temps.push_back({w.bytes(part), TempLife::Late});
  return y;
}

// transformers 5.24, masking_utils.py: find_packed_sequence_indices numbers the tokens by document, and sdpa_mask
// gathers positions and numbers of queries and keys, compares each pair, and combines both results in a mask that
// begins as one element. `position_ids[batch, queries]` is int64, as the numbers are.
int document_mask(KernelWriter& w, std::int64_t elements) {
  const auto tokens = static_cast<std::int64_t>(w.output_shape(0).back());
  const std::int64_t row = size_of(Dtype::Int64).count() * tokens;
  const int numbers = w.make(tokens, Dtype::Int64, false);
  Kernel& number = w.add(KernelKind::Elementwise, {}, {numbers});
  number.forward_temps = {row + size_of(Dtype::Int64).count(), row, tokens};
  number.late_outputs = 1;
  const int mask = w.make(elements, Dtype::Bool, false);
  Kernel& combine = w.add(KernelKind::Elementwise, {{numbers, GradRule::None}}, {mask});
  combine.forward_temps = {row, row, elements, elements, row, row};
  combine.late_outputs = 1;
  combine.extra_bytes = 5.0 * static_cast<double>(elements);
  return mask;
}

int write_shape(KernelWriter& w) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  switch (w.op().kind) {
    case OpKind::Constant: {
      if (w.op().attributes.fill == ConstantFill::DocumentMask) return document_mask(w, elements);
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
    case OpKind::Expand:
      // The gradient of an expanded tensor is summed over the new dimensions.
      if (elements != w.elements(w.input(0))) return w.expand(w.input(0), w.input_shape(0), w.output_shape(0));
      return w.reshape(w.input(0), w.input_shape(0), w.output_shape(0));
    case OpKind::SetSlice:
      return set_slice(w);
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
    case OpKind::Stack:
      return joined(w);
    case OpKind::Reshape:
      return w.reshape(w.input(0), w.input_shape(0), w.output_shape(0));
    default: {  // Transpose.
      const Shape& shape = w.input_shape(0);
      const OpAttributes& attributes = w.op().attributes;
      return w.transpose(w.input(0), shape, dimension(attributes.dim, shape), dimension(attributes.other_dim, shape));
    }
  }
}

}  // namespace

void write_shape_op(KernelWriter& w) {
  if (w.op().kind == OpKind::KvCache) return write_kv_cache(w);
  if (w.op().kind == OpKind::Split) return write_split(w);
  w.set_output(0, write_shape(w));
}

}  // namespace fsdp::simulator
