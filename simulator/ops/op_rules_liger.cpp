// The kernels of liger-kernel: Python autograd Functions around Triton kernels, for N rows of H numbers.
//
// RMSNorm keeps its input and a number in fp32 per row, 4 N beside its result. The backward sums the weight's gradient
// in fp32 on each of S multiprocessors, 4 S H, then over them, and casts the sum:
//
//   [a contiguous copy of the gradient], 4 S H, [the gradient of the input, unless in place], 4 H, the weight's
//   gradient
//
// GLU keeps both operands, makes its result alone, and writes their gradients over them: the backward takes no memory.
// Rotary positions are written over queries and keys, and their gradients over those of the results; only the tables
// are kept. An operand that is not contiguous is copied first, and the copy takes its place.
//
// Sources: liger_kernel/ops/rms_norm.py, swiglu.py, geglu.py, rope.py and utils.py (ensure_contiguous) of
// liger-kernel 0.8.5. Not modeled: the column tiles of Blackwell, which move the same bytes.

#include <vector>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

/// x.contiguous() within a call: parts of a larger tensor, and other orders, are copied.
struct Operand {
  int x = 0;
  bool is_copy = false;
};
Operand in_order(KernelWriter& w, int x) {
  const bool is_part = w.is_part(x);
  if (!is_part && w.slot(x).strides.empty()) return {x, false};
  return {w.make(w.elements(x), w.slot(x).dtype), true};
}

void require_gpu(KernelWriter& w) {
  if (!w.context().is_cpu()) return;
  w.refuse({"--liger", "Kernels of Liger are written in Triton, which runs on GPUs.",
            "Plan for a GPU, or leave --liger out."});
}

void write_norm(KernelWriter& w) {
  const std::int64_t width = w.input_shape(0).back();
  const std::int64_t rows = w.elements(w.input(0)) / width;
  const Operand x = in_order(w, w.input(0));
  const int y = w.make(w.elements(x.x), w.slot(x.x).dtype);
  const int inverse = w.make(rows, Dtype::Float32, false);
  const GradRule rule = w.op().attributes.in_place ? GradRule::InPlace : GradRule::FreshView;
  std::vector<int> made = {y, inverse};
  if (x.is_copy) made.insert(made.begin(), x.x);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{w.input(0), rule}}, made);
  kernel.inputs.front().of_output = x.is_copy ? 1 : 0;
  kernel.saved = {{x.x, -1}, {inverse, -1}};
  kernel.saves_when_done = true;
  if (rule == GradRule::FreshView) kernel.order.kind = GradientOrder::Kind::Copied;
  if (w.has_parameter(0)) {
    const std::int64_t sum = width * size_of(Dtype::Float32).count();
    kernel.saved.insert(kernel.saved.begin() + 1, {w.parameter(0), -1});
    kernel.inputs.push_back({w.parameter(0), GradRule::Fresh});
    kernel.backward_temps.push_back({w.context().num_sms * sum, TempLife::Whole, 1});
    const bool is_cast = w.slot(w.parameter(0)).dtype != Dtype::Float32;
    if (is_cast) kernel.backward_temps.push_back({sum, TempLife::Late, 1});
    kernel.backward_bytes = 2.0 * static_cast<double>(w.context().num_sms * sum);
    kernel.backward_launches = is_cast ? 3 : 2;
  }
  w.set_output(0, y);
}

void write_glu(KernelWriter& w) {
  const Operand gate = in_order(w, w.input(0));
  const Operand up = in_order(w, w.input(1));
  const int y = w.make(w.elements(gate.x), w.slot(gate.x).dtype);
  std::vector<int> made;
  for (const Operand& operand : {gate, up}) {
    if (operand.is_copy) made.push_back(operand.x);
  }
  made.push_back(y);
  Kernel& kernel = w.add(KernelKind::Elementwise, {}, made);
  kernel.inputs = {{.slot = w.input(0), .grad = GradRule::Kept, .kept = gate.x},
                   {.slot = w.input(1), .grad = GradRule::Kept, .kept = up.x}};
  kernel.saved = {{gate.x, -1}, {up.x, -1}};
  kernel.saves_when_done = true;
  kernel.order.kind = GradientOrder::Kind::Dense;
  w.set_output(0, y);
}

void write_rope(KernelWriter& w) {
  std::vector<int> turned;
  for (int i = 0; i < 2; ++i) {
    const Operand x = in_order(w, w.input(i));
    turned.push_back(x.is_copy ? x.x : w.alias(x.x));
  }
  Kernel& kernel = w.add(KernelKind::Elementwise, {}, turned);
  kernel.inputs = {{.slot = w.input(0), .grad = GradRule::InPlace, .of_output = 0},
                   {.slot = w.input(1), .grad = GradRule::InPlace, .of_output = 1},
                   {.slot = w.input(2), .grad = GradRule::None},
                   {.slot = w.input(3), .grad = GradRule::None}};
  kernel.saved = {{w.input(2), -1}, {w.input(3), -1}};
  kernel.saves_when_done = true;
  for (int i = 0; i < 2; ++i) w.set_output(i, turned[static_cast<std::size_t>(i)]);
}

}  // namespace

void write_liger_op(KernelWriter& w) {
  require_gpu(w);
  switch (w.op().kind) {
    case OpKind::RmsNorm:
      return write_norm(w);
    case OpKind::Rotary:
      return write_rope(w);
    default:
      return write_glu(w);
  }
}

}  // namespace fsdp::simulator
