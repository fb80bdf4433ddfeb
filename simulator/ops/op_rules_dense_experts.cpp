// Llama 4's experts: every token goes through every expert, as transformers runs them without a grouped product.
//
//   scores [T, E] -> the best k of each token, -inf for the others -> sigmoids in fp32
//   x repeated E times [E T, H], times its factors -> two batched products [E, T, ...] -> results [E T, H]
//
// So the tensors of a layer are E times those of one MLP, however few experts a token is sent to. The sum over the
// experts comes after the MLP that all tokens go through; until then the caller's variables hold the repeated inputs.
//
// Sources: transformers 5.24.0, models/llama4/modeling_llama4.py (Llama4Router, Llama4TextMoe, Llama4TextExperts);
// derivatives.yaml (topk, scatter, repeat, bmm), torch 2.11.

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// The sigmoids of the best scores of each token, 0 for its others.
int factors_of(KernelWriter& w, int scores, std::int64_t chosen) {
  const Dtype own = w.slot(scores).dtype;
  const int best = w.make(chosen, own);
  const int indices = w.make(chosen, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{scores, GradRule::Fresh}}, {best, indices}).saved = {{indices, 0}};
  const int lowest = w.make(w.elements(scores), own, false);
  w.add(KernelKind::Elementwise, {{scores, GradRule::None}}, {lowest});
  const int scattered = w.written_in_place(lowest);
  w.add(KernelKind::Elementwise, {{best, GradRule::Fresh}}, {scattered}).saved = {{indices, 0}};
  const int sigmoids = w.unary(w.cast(scattered, Dtype::Float32), false, true);
  const int factors = w.cast(sigmoids, own);
  w.last_kernel().holds = {best, indices, scattered};
  return factors;
}

// x.repeat(experts, 1)
int repeated(KernelWriter& w, int x, std::int64_t experts) {
  const int y = w.make(experts * w.elements(x), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  w.note_sum(kernel, 0, experts, false);
  return y;
}

}  // namespace

void write_dense_experts(KernelWriter& w) {
  const std::int64_t tokens = w.input_shape(0).front();
  const std::int64_t width = w.input_shape(0).back();
  const std::int64_t experts = w.op().attributes.num_experts;
  const std::int64_t inner = w.parameter_shape(1)[1];
  const int factors = factors_of(w, w.input(1), tokens * w.op().attributes.experts_per_token);
  const int inputs = repeated(w, w.input(0), experts);
  const int rows = w.mul(inputs, w.copy(factors), true);
  const int both = w.matmul(rows, w.parameter(0), experts, tokens, width, 2 * inner);
  const int gate = w.alias(both, w.elements(both) / 2);
  const int up = w.alias(both, w.elements(both) / 2);
  w.add(KernelKind::View, {{both, GradRule::Fresh}}, {gate, up});
  const int gated = w.mul(up, w.unary(gate, true, false));
  const int down = w.matmul(gated, w.parameter(1), experts, tokens, inner, width);
  w.last_kernel().holds = {both, rows, factors};
  w.set_output(0, down);
  w.set_output(1, rows);
  w.set_output(2, factors);
}

}  // namespace fsdp::simulator
