// Rotary embeddings.
//
// Hugging Face rotates halves: x * cos + rotate_half(x) * sin, in the dtype of x. torchtitan multiplies complex numbers
// in fp32, for q and k side by side. The order of the calls decides the memory order of gradients.
//
// Sources: transformers modeling_llama.py (LlamaRotaryEmbedding, apply_rotary_pos_emb),
// modeling_gpt_oss.py (_apply_rotary_emb), modeling_deepseek_v3.py (apply_rotary_pos_emb_interleave), torchtitan
// models/llama3 (apply_rotary_emb), derivatives.yaml (mul, view_as_complex), torch 2.11; checked event by event by
// tests/rehearsal/op_rules_test.py.

#include <array>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// torchtitan 0.3.0, models/common/rope.py: an assertion that no position is too large, then the cache's rows of the
// positions: complex numbers, as many bytes as cos in fp32, or cos and sin next to each other.
void pick_from_cache(KernelWriter& w, std::int64_t elements) {
  const auto made = [&](int from, std::int64_t count, Dtype dtype) {
    const int y = w.make(count, dtype, false);
    w.add(KernelKind::Elementwise, {{from, GradRule::None}}, {y});
    return y;
  };
  const int positions = w.input(0);
  made(made(positions, w.elements(positions), Dtype::Bool), 1, Dtype::Bool);
  const bool complex = w.op().attributes.as_complex;
  const int rows = made(positions, complex ? elements : 2 * elements, Dtype::Float32);
  if (complex) {
    w.set_output(0, rows);
    w.set_output(1, rows);
    return;
  }
  const int cos = w.alias(rows, elements);
  const int sin = w.alias(rows, elements);
  w.add(KernelKind::View, {{rows, GradRule::None}}, {cos, sin});
  w.set_output(0, cos);
  w.set_output(1, sin);
}

// nemo-automodel 0.7.0, components/models/llama/rope_utils.py: the largest position, then the cache's rows, cos and sin
// one after the other.
void pick_by_position(KernelWriter& w, std::int64_t elements) {
  const int positions = w.input(0);
  const auto made = [&](std::int64_t count, Dtype dtype) {
    const int y = w.make(count, dtype, false);
    w.add(KernelKind::Elementwise, {{positions, GradRule::None}}, {y});
    return y;
  };
  made(1, w.slot(positions).dtype);
  w.set_output(0, made(elements, Dtype::Float32));
  w.set_output(1, made(elements, Dtype::Float32));
}

// freqs = inv_freq @ positions.float(), a batched product, or with transformers 5 an elementwise one; emb = cat(freqs,
// freqs), then cos and sin in fp32, scaled, cast. No gradients. The local variables live until the function returns.
void write_rotary_table(KernelWriter& w) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  if (w.op().attributes.from_cache) return pick_from_cache(w, elements);
  if (w.op().attributes.of_positions) return pick_by_position(w, elements);
  const auto plain = [&](int from, std::int64_t count, Dtype dtype, KernelKind kind = KernelKind::Elementwise) {
    const int y = w.make(count, dtype, false);
    w.add(kind, {{from, GradRule::None}}, {y});
    return y;
  };
  int positions = w.input(0);
  if (w.slot(positions).dtype != Dtype::Float32) positions = plain(positions, w.elements(positions), Dtype::Float32);
  const bool by_halves = w.op().attributes.by_halves;
  const KernelKind product = by_halves || w.op().attributes.written_out ? KernelKind::Elementwise : KernelKind::Gemm;
  const int freqs = plain(positions, by_halves ? elements : elements / 2, Dtype::Float32, product);
  if (w.context().implementations.rotary == RotaryImplementation::Complex || w.op().attributes.as_complex) {
    // polar(ones_like(freqs), freqs): complex numbers, as many bytes as cos and sin.
    const int ones = plain(freqs, elements / 2, Dtype::Float32);
    const int table = plain(freqs, elements, Dtype::Float32);
    w.last_kernel().holds = {ones, freqs};
    if (!w.op().attributes.written_out) w.last_kernel().holds.push_back(positions);
    w.set_output(0, table);
    w.set_output(1, table);
    return;
  }
  const int angles = by_halves ? freqs : plain(freqs, elements, Dtype::Float32);
  const int cos = plain(plain(angles, elements, Dtype::Float32), elements, Dtype::Float32);
  const int sin = plain(plain(angles, elements, Dtype::Float32), elements, Dtype::Float32);
  const bool is_wide = w.activation() == Dtype::Float32 || w.op().attributes.wide;
  w.set_output(0, is_wide ? cos : plain(cos, elements, w.activation()));
  w.set_output(1, is_wide ? sin : plain(sin, elements, w.activation()));
  w.last_kernel().holds = {sin, cos, angles, freqs, positions};
}

// x * t for a table t that needs no gradient.
int mul_table(KernelWriter& w, int x, int table) {
  const int y = w.make(w.elements(x), w.wider_of(x, table));
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}, {table, GradRule::None}}, {y});
  kernel.saved = {{table, 0}};
  w.note_narrow_operands(kernel);
  return y;
}

// cat(a * cos - b * sin, b * cos + a * sin) of both halves, or of the even and odd numbers. x is [batch, heads, seq,
// dim] of `shape`.
int rotate_by_halves(KernelWriter& w, int x, const Shape& shape, int cos, int sin) {
  const std::int64_t half = w.elements(x) / 2;
  int a = -1;
  int b = -1;
  if (w.op().attributes.interleaved) {
    a = w.slice(x, half);
    b = w.slice(x, half);
  } else {
    a = w.alias(x, half);
    b = w.alias(x, half);
    w.add(KernelKind::View, {{x, GradRule::Fresh}}, {a, b});
  }
  const int a_cos = mul_table(w, a, cos);
  const int b_sin = mul_table(w, b, sin);
  const int first = w.make(half, w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{a_cos, GradRule::Alias}, {b_sin, GradRule::Fresh}}, {first});
  const int b_cos = mul_table(w, b, cos);
  const int second = w.sum_of(b_cos, mul_table(w, a, sin));
  return w.cat({first, second}, {GradientOrder::Kind::Cut, {}, shape, 3});
}

Dtype wider_dtype(const KernelWriter& w, int x, int y) {
  return size_of(w.slot(y).dtype) > size_of(w.slot(x).dtype) ? w.slot(y).dtype : w.slot(x).dtype;
}

// x * cos + cat(-x2, x1) * sin. Neighbors are cast to wider tables' dtype before each product (ERNIE 4.5).
int rotate_halves(KernelWriter& w, int x, int cos, int sin) {
  const std::int64_t half = w.elements(x) / 2;
  const bool casts = w.op().attributes.interleaved && !w.is_autocast();
  const auto as_table = [&](int part) { return casts ? w.cast(part, wider_dtype(w, part, cos)) : part; };
  const int by_cos = mul_table(w, as_table(x), cos);
  const int first = w.slice(x, half);
  const int second = w.slice(x, half);
  const int negated = w.scale(second);
  const int turned = w.cat({negated, first});
  const int by_sin = mul_table(w, as_table(turned), sin);
  const int y = w.sum_of(by_cos, by_sin);
  w.lay_as(y, x);
  return y;
}

// The first `turned` numbers of each head are turned, and the others kept, of which there may be none.
int rotate_part(KernelWriter& w, int x, const Shape& shape, std::int64_t turned, int cos, int sin) {
  const std::int64_t heads = w.elements(x) / shape.back();
  const int part = turned == shape.back() ? x : w.slice(x, heads * turned);
  const int kept = w.slice(x, heads * (shape.back() - turned));
  Shape narrow = shape;
  narrow.back() = turned;
  if (!w.slot(x).strides.empty()) w.lay(part, narrow, w.slot(x).strides);
  const int y = rotate_halves(w, part, cos, sin);
  return w.cat({y, kept}, {GradientOrder::Kind::Cut, {}, shape, 3});
}

// The same for [batch, heads, seq, dim]: x has another order, and so has y, but the gradient of a half is written to a
// new contiguous tensor.
int rotate_heads_first(KernelWriter& w, int x, const Shape& shape, int cos, int sin) {
  const Shape heads_first = {shape[0], shape[2], shape[1], shape[3]};
  const int turned = w.transpose(x, shape, 1, 2);
  const auto rotate = [&] {
    if (w.op().attributes.by_halves) return rotate_by_halves(w, turned, heads_first, cos, sin);
    if (!w.op().attributes.partial_rotary) return rotate_halves(w, turned, cos, sin);
    return rotate_part(w, turned, heads_first, w.input_shape(2).back(), cos, sin);
  };
  return w.transpose(rotate(), heads_first, 1, 2);
}

// Tables of neighbors are halves of the usual ones with each number twice (GLM).
int repeated_halves(KernelWriter& w, int table) {
  const int y = w.make(w.elements(table), w.slot(table).dtype, false);
  w.add(KernelKind::Elementwise, {{table, GradRule::None}}, {y});
  return y;
}

// q and k in fp32 by tables in fp32, then cast back; the local variables live until both are.
void rotate_wide(KernelWriter& w, int cos, int sin) {
  std::array<int, 2> wide{};
  for (int i = 0; i < 2; ++i) {
    const bool casts = w.op().attributes.interleaved;
    const int x = casts ? w.input(i) : w.seen_as(w.input(i), Dtype::Float32);
    wide[i] = rotate_heads_first(w, x, w.input_shape(i), cos, sin);
  }
  for (int i = 0; i < 2; ++i) w.set_output(i, w.cast(wide[i], w.slot(w.input(i)).dtype));
  w.last_kernel().holds = {wide[0], wide[1]};
}

// torchtitan's CosSinRoPE: q and k are cast to fp32 first, in the order [batch, seq, heads, dim], and back last.
void rotate_in_float(KernelWriter& w, int cos, int sin) {
  const int q = w.cast(w.input(0), Dtype::Float32);
  const int k = w.cast(w.input(1), Dtype::Float32);
  const int turned_q = rotate_halves(w, q, cos, sin);
  const int turned_k = rotate_halves(w, k, cos, sin);
  w.set_output(0, w.cast(turned_q, w.slot(w.input(0)).dtype));
  w.set_output(1, w.cast(turned_k, w.slot(w.input(1)).dtype));
  w.last_kernel().holds = {q, k, turned_q, turned_k};
}

// q and k are cast to fp32 first, and back last; the local variables live until then (Cohere).
void rotate_in_fp32(KernelWriter& w, int cos, int sin) {
  const std::array<int, 2> wide = {w.cast(w.input(0), Dtype::Float32), w.cast(w.input(1), Dtype::Float32)};
  std::array<int, 2> turned{};
  for (int i = 0; i < 2; ++i) turned[i] = rotate_heads_first(w, wide[i], w.input_shape(i), cos, sin);
  for (int i = 0; i < 2; ++i) w.set_output(i, w.cast(turned[i], w.slot(w.input(i)).dtype));
  w.last_kernel().holds = {wide[0], wide[1], turned[0], turned[1]};
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
  if (w.op().attributes.in_float) return rotate_in_float(w, w.input(2), w.input(3));
  if (kind == RotaryImplementation::Complex || w.op().attributes.as_complex)
    return rotate_complex(w, w.input(0), w.input(1), w.input(2));
  int cos = w.input(2);
  int sin = w.input(3);
  if (w.op().attributes.wide) return rotate_in_fp32(w, cos, sin);
  if (w.op().attributes.interleaved && !w.op().attributes.by_halves) {
    cos = repeated_halves(w, cos);
    sin = repeated_halves(w, sin);
  }
  // Under autocast nothing casts q and k before or after: they leave as wide as the tables.
  const bool is_wider = size_of(w.slot(cos).dtype) > size_of(w.slot(w.input(0)).dtype);
  if (is_wider && !w.is_autocast()) return rotate_wide(w, cos, sin);
  const bool is_plain = !w.op().attributes.partial_rotary && !w.op().attributes.by_halves;
  const bool seq_first = kind == RotaryImplementation::HalvesSeqFirst && is_plain;
  for (int i = 0; i < 2; ++i) {
    w.set_output(i, seq_first ? rotate_halves(w, w.input(i), cos, sin)
                              : rotate_heads_first(w, w.input(i), w.input_shape(i), cos, sin));
  }
}

}  // namespace

void write_rotary_op(KernelWriter& w) {
  if (w.op().kind == OpKind::RotaryTable) return write_rotary_table(w);
  write_rotary(w);
}

}  // namespace fsdp::simulator
