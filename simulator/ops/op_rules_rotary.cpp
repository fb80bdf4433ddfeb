// Rotary embeddings.
//
// Hugging Face rotates halves: x * cos + rotate_half(x) * sin, in the dtype of x. torchtitan multiplies complex numbers
// in fp32, for q and k side by side. The order of the calls decides the memory order of gradients.
//
// Sources: transformers modeling_llama.py (LlamaRotaryEmbedding, apply_rotary_pos_emb), torchtitan models/llama3
// (apply_rotary_emb), derivatives.yaml (mul, view_as_complex), torch 2.11; checked event by event by
// tests/rehearsal/op_rules_test.py.

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// freqs = inv_freq @ positions.float(), a batched product; emb = cat(freqs, freqs), then cos and sin in fp32, scaled,
// cast. No gradients. The local variables live until the function returns.
void write_rotary_table(KernelWriter& w) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  const auto plain = [&](int from, std::int64_t count, Dtype dtype, KernelKind kind = KernelKind::Elementwise) {
    const int y = w.make(count, dtype, false);
    w.add(kind, {{from, GradRule::None}}, {y});
    return y;
  };
  int positions = w.input(0);
  if (w.slot(positions).dtype != Dtype::Float32) positions = plain(positions, w.elements(positions), Dtype::Float32);
  const int freqs = plain(positions, elements / 2, Dtype::Float32, KernelKind::Gemm);
  if (w.context().implementations.rotary == RotaryImplementation::Complex) {
    // polar(ones_like(freqs), freqs): complex numbers, as many bytes as cos and sin.
    const int ones = plain(freqs, elements / 2, Dtype::Float32);
    const int table = plain(freqs, elements, Dtype::Float32);
    w.last_kernel().holds = {ones, freqs, positions};
    w.set_output(0, table);
    w.set_output(1, table);
    return;
  }
  const int angles = plain(freqs, elements, Dtype::Float32);
  const int cos = plain(plain(angles, elements, Dtype::Float32), elements, Dtype::Float32);
  const int sin = plain(plain(angles, elements, Dtype::Float32), elements, Dtype::Float32);
  w.set_output(0, w.activation() == Dtype::Float32 ? cos : plain(cos, elements, w.activation()));
  w.set_output(1, w.activation() == Dtype::Float32 ? sin : plain(sin, elements, w.activation()));
  w.last_kernel().holds = {sin, cos, angles, freqs, positions};
}

// x * t for a table t that needs no gradient.
int mul_table(KernelWriter& w, int x, int table) {
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}, {table, GradRule::None}}, {y}).saved = {{table, 0}};
  return y;
}

// x * cos + cat(-x2, x1) * sin.
int rotate_halves(KernelWriter& w, int x, int cos, int sin) {
  const std::int64_t half = w.elements(x) / 2;
  const int by_cos = mul_table(w, x, cos);
  const int first = w.slice(x, half);
  const int second = w.slice(x, half);
  const int negated = w.scale(second);
  const int turned = w.cat({negated, first});
  const int by_sin = mul_table(w, turned, sin);
  const int y = w.sum_of(by_cos, by_sin);
  w.lay_as(y, x);
  return y;
}

// The same for [batch, heads, seq, dim]: x has another order, and so has y, but the gradient of a half is written to a
// new contiguous tensor.
int rotate_heads_first(KernelWriter& w, int x, const Shape& shape, int cos, int sin) {
  const int y = rotate_halves(w, w.transpose(x, shape, 1, 2), cos, sin);
  return w.transpose(y, {shape[0], shape[2], shape[1], shape[3]}, 1, 2);
}

// view_as_complex(x.float()) * freqs for q and k, then both are cast back: the local variables live until then.
void rotate_complex(KernelWriter& w, int q, int k, int table) {
  const auto turn = [&](int wide) {
    const int turned = mul_table(w, wide, table);
    // The backward multiplies by the conjugate table, which it writes to memory.
    w.last_kernel().backward_temps = {{8 * w.elements(table) / 2, TempLife::Whole}};
    w.last_kernel().order.kind = GradientOrder::Kind::Dense;  // As complex numbers.
    return turned;
  };
  const int wide_q = w.cast(q, Dtype::Float32);
  const int wide_k = w.cast(k, Dtype::Float32);
  const int turned_q = turn(wide_q);
  const int turned_k = turn(wide_k);
  w.set_output(0, w.cast(turned_q, w.slot(q).dtype));
  w.set_output(1, w.cast(turned_k, w.slot(k).dtype));
  w.last_kernel().holds = {wide_q, wide_k, turned_q, turned_k};
}

void write_rotary(KernelWriter& w) {
  const RotaryImplementation kind = w.context().implementations.rotary;
  if (kind == RotaryImplementation::Complex) return rotate_complex(w, w.input(0), w.input(1), w.input(2));
  for (int i = 0; i < 2; ++i) {
    w.set_output(i, kind == RotaryImplementation::HalvesSeqFirst
                        ? rotate_halves(w, w.input(i), w.input(2), w.input(3))
                        : rotate_heads_first(w, w.input(i), w.input_shape(i), w.input(2), w.input(3)));
  }
}

}  // namespace

void write_rotary_op(KernelWriter& w) {
  if (w.op().kind == OpKind::RotaryTable) return write_rotary_table(w);
  write_rotary(w);
}

}  // namespace fsdp::simulator
