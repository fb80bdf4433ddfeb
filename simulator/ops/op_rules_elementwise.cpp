// Elementwise functions and reductions.
//
// One rule decides what autograd saves: a function whose derivative is a formula of its input saves the input (silu,
// gelu, a product), one whose derivative is a formula of its result saves the result (sigmoid, tanh, relu, softmax),
// and one whose derivative needs neither saves nothing (sums, casts, scaling).
//
// Source: tools/autograd/derivatives.yaml, torch 2.11.

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// True if the smaller of the op's first two operands is repeated along the last dimension.
bool is_per_row(const KernelWriter& w) {
  const std::int64_t a = w.input_shape(0).empty() ? 1 : w.input_shape(0).back();
  const std::int64_t b = !w.has_input(1) || w.input_shape(1).empty() ? 1 : w.input_shape(1).back();
  return a != b;
}

// Inputs in either order; the larger one gives the shape.
int product(KernelWriter& w, int x, int y) {
  const bool is_in_order = w.elements(x) >= w.elements(y);
  const int result = is_in_order ? w.mul(x, y, is_per_row(w)) : w.mul(y, x, is_per_row(w));
  w.last_kernel().sums_in_reverse = is_in_order;  // The engine goes through the gradients as x, y.
  if (!w.is_autocast() && w.slot(x).dtype != w.slot(y).dtype) w.note_cast_gradients(w.last_kernel());
  return result;
}

int sum(KernelWriter& w, int x, int y) {
  if (w.op().attributes.in_place) {
    const int result = w.alias(x);
    w.add(KernelKind::Elementwise, {{x, GradRule::Alias}, {y, GradRule::Alias}}, {result});
    return result;
  }
  const std::size_t rank = w.input_shape(0).size();
  const std::size_t other_rank = w.input_shape(1).size();
  const bool x_is_larger = w.elements(x) != w.elements(y) ? w.elements(x) > w.elements(y) : rank >= other_rank;
  const int result = x_is_larger ? w.sum_of(x, y, other_rank < rank) : w.sum_of(y, x, rank < other_rank);
  w.last_kernel().sums_in_reverse = !x_is_larger;
  return result;
}

int difference(KernelWriter& w, int x, int y) {
  return w.minus(x, y, is_per_row(w));
}

// torch.square: its backward computes x.pow(1) and twice that before the product.
int squared(KernelWriter& w, int x) {
  const int y = w.unary(x, true, false);
  w.last_kernel().backward_temps = {{w.bytes(x)}, {w.bytes(x)}};
  return y;
}

int softcap(KernelWriter& w, int x) {
  return w.scale(w.unary(w.scale(x), false, true));
}

// 0.5 * x * (1.0 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3)))): Hugging Face's NewGELUActivation.
int gelu_written_out(KernelWriter& w, int x) {
  const int half = w.scale(x);
  const int base = w.widened(x);
  const int cube = w.unary(base, true, false);
  const std::int64_t bytes = w.bytes(base);
  w.last_kernel().backward_temps = {{bytes}, {bytes}};  // 3 * x.pow(2), as the backward of pow builds it.
  const int inner = w.sum_of(x, w.scale(cube));
  const int tanh = w.unary(w.scale(inner), false, true);
  return w.mul(half, w.shifted(tanh));
}

// Along the dimension of the op's attribute.
int reduced(KernelWriter& w, int x, bool fresh_gradient) {
  const auto rank = static_cast<std::int64_t>(w.input_shape(0).size());
  const bool is_last = (w.op().attributes.dim + rank) % rank == rank - 1;
  return w.reduce(x, num_elements(w.output_shape(0)), fresh_gradient, is_last);
}

// sqrt(clamp(sum(weights * (x - mean)^2), eps)): ECAPA-TDNN's attentive statistics.
int deviation(KernelWriter& w) {
  w.require_wide(w.input(0), "A deviation");
  const int centered = difference(w, w.input(0), w.input(1));
  int squares = w.unary(centered, true, false);
  w.last_kernel().backward_temps = {{w.bytes(centered)}, {w.bytes(centered)}};  // 2 * x.pow(1)
  if (w.has_input(2)) squares = product(w, squares, w.input(2));
  const int total = reduced(w, squares, false);
  const std::int64_t bytes = w.bytes(total);
  const int floored = w.unary(total, true, false);
  // where(x >= floor, gradient, 0), and 2 * result below the gradient.
  w.last_kernel().backward_temps = {{size_of(w.slot(total).dtype).count(), TempLife::Whole},
                                    {w.elements(total), TempLife::Whole}};
  const int root = w.unary(floored, false, true);
  w.last_kernel().backward_temps = {{bytes, TempLife::Whole}};
  return root;
}

int max_pool(KernelWriter& w, int x) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  const int y = w.make(elements, w.slot(x).dtype);
  const int indices = w.make(elements, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y, indices}).saved = {{x, 0}, {indices, 0}};
  return y;
}

// AdaptiveAvgPool2d: to a single pixel it is a mean.
int average_pool(KernelWriter& w, int x) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  if (w.op().attributes.length == 1) return w.reduce(x, elements, true);
  const int y = w.make(elements, w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y}).saved = {{x, 0}};
  return y;
}

Dtype cast_dtype(const KernelWriter& w) {
  const OpAttributes& attributes = w.op().attributes;
  if (attributes.as_trained) return w.context().trained.value_or(w.activation());
  return attributes.dtype.value_or(w.activation());
}

int write_elementwise(KernelWriter& w) {
  const int x = w.input(0);
  switch (w.op().kind) {
    case OpKind::Silu:
      return w.unary(x, true, false);
    case OpKind::Gelu:
      return w.op().attributes.written_out ? gelu_written_out(w, x) : w.unary(x, true, false);
    case OpKind::Relu:
      return w.op().attributes.written_out ? squared(w, w.unary(x, false, true)) : w.unary(x, false, true);
    case OpKind::Sigmoid:
    case OpKind::Tanh:
      return w.unary(x, false, true);
    case OpKind::Softmax:
      return w.is_autocast() ? w.softmax(w.widened(x)) : w.softmax(x);
    case OpKind::Mul:
      return product(w, x, w.input(1));
    case OpKind::Add:
      return sum(w, x, w.input(1));
    case OpKind::Sub:
      return difference(w, x, w.input(1));
    case OpKind::Scale:
      return w.scale(x);
    case OpKind::Softcap:
      return softcap(w, x);
    case OpKind::Dropout:
      return w.dropout(x);
    case OpKind::Cast:
      return w.op().attributes.unless_autocast && w.is_autocast() ? x : w.cast(x, cast_dtype(w));
    case OpKind::Mean:
      return reduced(w, x, true);
    case OpKind::Sum:
      w.require_wide(x, "A sum");
      return reduced(w, x, w.op().attributes.written_out);
    case OpKind::Std:
      return deviation(w);
    case OpKind::MaxPool2d:
      return max_pool(w, x);
    default:
      return average_pool(w, x);
  }
}

}  // namespace

void write_elementwise_op(KernelWriter& w) {
  w.set_output(0, write_elementwise(w));
}

}  // namespace fsdp::simulator
