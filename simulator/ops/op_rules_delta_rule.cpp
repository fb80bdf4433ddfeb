// The gated delta rule of Qwen3-Next and Qwen3.5, as transformers runs it without flash-linear-attention: by chunks of
// C positions, in fp32, in a loop of Python.
//
//   prepare   q, k, v, beta and the decay g in fp32, padded to whole chunks; norms of q and k
//   per chunk a system of C x C numbers is solved for all chunks at once: new values u and decayed keys w
//   loop      v' = u - w S;  y = q S + (q k^T) v';  S = decay S + k^T v'          for each chunk, one state S after
//   another
//
// For P padded tokens, H heads and heads of d numbers, autograd keeps eleven tensors of 4 P H d bytes, five of 4 P H C,
// and the state of each chunk. Each setting of a chunk of the output is a node (CopySlices) that copies the whole
// gradient, and the gradient of each read of a chunk is a tensor of all chunks.
//
// Sources: transformers 5.24 models/qwen3_5/modeling_qwen3_5.py (torch_chunk_gated_delta_rule, l2norm);
// aten/src/ATen/native/BatchLinearAlgebra.cpp (linalg_solve_triangular), native/cuda/linalg/BatchLinearAlgebra.cpp
// (triangular_solve_kernel), torch/csrc/autograd/FunctionsManual.cpp (linalg_solve_triangular_backward),
// functions/tensor.cpp (CopySlices, CopyBackwards), torch 2.11; checked event by event by
// tests/rehearsal/op_rules_test.py.

#include <fmt/format.h>

#include "simulator/ops/op_rules_attention.h"
#include "simulator/ops/op_rules_linear_attention.h"
#include "simulator/ops/strides.h"

namespace fsdp::simulator {

namespace {

struct DeltaSizes {
  std::int64_t batch = 0, seq = 0, key_heads = 0, heads = 0, key_dim = 0, value_dim = 0, chunk = 0;

  std::int64_t chunks() const { return (seq + chunk - 1) / chunk; }
  std::int64_t padded() const { return chunks() * chunk; }
  bool is_padded() const { return padded() != seq; }
  std::int64_t rows() const { return batch * heads * padded(); }     ///< All heads have these rows,
  std::int64_t systems() const { return batch * heads * chunks(); }  ///< these chunks,
  std::int64_t states() const { return batch * heads; }              ///< and a state each at a time.
  std::int64_t square() const { return systems() * chunk * chunk; }  ///< Numbers of a C x C matrix for each chunk.
  Shape by_row(std::int64_t dim) const { return {batch, heads, padded(), dim}; }
  Shape by_chunk(std::int64_t dim) const { return {batch, heads, chunks(), chunk, dim}; }
};

DeltaSizes delta_sizes(const KernelWriter& w) {
  const OpAttributes& a = w.op().attributes;
  const Shape& out = w.output_shape(0);
  return {out[0], out[1], a.kv_heads, a.heads, a.head_dim, out[3], a.length};
}

struct DeltaValues {
  int query = -1, key = -1, value = -1, beta = -1, decay = -1;
};

// The parts of the convolution's output as heads.
DeltaValues split_delta_inputs(KernelWriter& w, const DeltaSizes& s) {
  const int mixed = w.input(0);
  const Shape strides = w.slot(mixed).strides;
  const std::int64_t keys = s.key_heads * s.key_dim;
  const auto part = [&](std::int64_t width) {
    const int slot = w.alias(mixed, s.batch * s.seq * width);
    w.lay(slot, {s.batch, s.seq, width}, strides);
    return slot;
  };
  const std::vector<int> parts = {part(keys), part(keys), part(s.heads * s.value_dim)};
  w.add(KernelKind::View, {{mixed, GradRule::Fresh}}, parts);
  const auto by_head = [&](int slot, std::int64_t heads, std::int64_t dim) {
    return w.reshape(slot, {s.batch, s.seq, heads * dim}, {s.batch, s.seq, heads, dim});
  };
  return {.query = by_head(parts[0], s.key_heads, s.key_dim),
          .key = by_head(parts[1], s.key_heads, s.key_dim),
          .value = by_head(parts[2], s.heads, s.value_dim),
          .beta = w.input(2),
          .decay = w.input(1)};
}

// x.repeat_interleave(heads / key_heads, dim=2)
int repeated(KernelWriter& w, int x, const DeltaSizes& s) {
  const std::int64_t times = s.heads / s.key_heads;
  if (times == 1) return x;
  const int expanded = w.slice(x, w.elements(x) * times);
  w.lay(expanded, {}, {});
  const int copy = w.copy(expanded);
  return w.reshape(copy, {s.batch, s.seq, s.key_heads, times, s.key_dim}, {s.batch, s.seq, s.heads, s.key_dim});
}

// x * rsqrt(sum(x * x) + eps)
int l2norm(KernelWriter& w, int x, std::int64_t rows) {
  const int inverse = inverse_root(w, w.reduce(w.mul(x, x), rows, false));
  return w.mul(x, inverse, true);
}

// In fp32, as [batch, heads, seq, dim], with norms, whole chunks, and the factor of the queries.
DeltaValues prepare_delta(KernelWriter& w, const DeltaValues& given, const DeltaSizes& s) {
  const int query = repeated(w, given.query, s), key = repeated(w, given.key, s);
  const auto turned = [&](int x, std::int64_t dim) { return w.transpose(x, {s.batch, s.seq, s.heads, dim}, 1, 2); };
  const auto turned_steps = [&](int x) { return w.transpose(x, {s.batch, s.seq, s.heads}, 1, 2); };
  DeltaValues v = {.query = wide_in_order(w, turned(query, s.key_dim)),
                   .key = wide_in_order(w, turned(key, s.key_dim)),
                   .value = wide_in_order(w, turned(given.value, s.value_dim)),
                   .beta = wide_in_order(w, turned_steps(given.beta)),
                   .decay = -1};
  hold(w, {query, key});
  v.decay = turned_steps(given.decay);
  const std::int64_t rows = s.batch * s.heads * s.seq;
  v.query = l2norm(w, v.query, rows);
  v.key = l2norm(w, v.key, rows);
  v.query = w.scale(v.query);
  // A generator makes each of the first three before any of the old ones is dropped.
  const DeltaValues old = v;
  v.query = padded_rows(w, v.query, s.rows() * s.key_dim);
  v.key = padded_rows(w, v.key, s.rows() * s.key_dim);
  v.value = padded_rows(w, v.value, s.rows() * s.value_dim);
  hold(w, {old.query, old.key});
  v.beta = padded_rows(w, v.beta, s.rows());
  v.decay = padded_rows(w, v.decay, s.rows());
  hold(w, {old.beta});
  return v;
}

// exp(sums_i - sums_j) for j up to i.
int pairwise_decay(KernelWriter& w, int sums, int mask, const DeltaSizes& s) {
  const Shape by_position = {s.batch, s.heads, s.chunks(), s.chunk};
  const int rows = w.reshape(sums, by_position, {s.batch, s.heads, s.chunks(), s.chunk, 1});
  const int columns = w.reshape(sums, by_position, {s.batch, s.heads, s.chunks(), 1, s.chunk});
  const int differences = w.make(s.square(), Dtype::Float32);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{columns, GradRule::Fresh}, {rows, GradRule::Fresh}}, {differences});
  w.note_sum(kernel, 0, s.chunk, false, w.bytes(differences));
  w.note_sum(kernel, 1, s.chunk, true);
  kernel.sums_in_reverse = true;
  return w.unary(filled(w, differences, mask), false, true);
}

// x * exp(logarithms) for each row.
int scaled_rows(KernelWriter& w, int x, int logarithms, const DeltaSizes& s) {
  const Shape by_position = {s.batch, s.heads, s.chunks(), s.chunk};
  const int factors = w.unary(logarithms, false, true);
  return w.mul(x, w.reshape(factors, by_position, {s.batch, s.heads, s.chunks(), s.chunk, 1}), true);
}

// torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True). The gradient of the right side solves
// again; that of the system is a product, negated and cut.
int solved(KernelWriter& w, int system, int right, std::int64_t columns, const DeltaSizes& s) {
  constexpr std::int64_t kFewSystems = 8;
  constexpr std::int64_t kLarge = 64;
  const Shape shape = s.by_chunk(columns);
  Shape strides = dense_strides(shape);
  strides[3] = 1;
  strides[4] = s.chunk;
  const int turned = w.alias(right);
  w.lay(turned, shape, strides);
  w.add(KernelKind::View, {{right, GradRule::Alias}}, {turned});
  const int y = w.make(w.elements(right), Dtype::Float32);
  Kernel& kernel = w.add(KernelKind::Gemm, {{turned, GradRule::Fresh}, {system, GradRule::Fresh}}, {y});
  kernel.saved = {{system, -1}, {y, -1}};
  kernel.order.kind = GradientOrder::Kind::Followed;
  kernel.flops = static_cast<double>(w.elements(right)) * static_cast<double>(s.chunk);
  // Pointers to each system and each right side, unless a loop solves few large ones.
  if (s.systems() > kFewSystems || s.chunk < kLarge) {
    kernel.forward_temps = {8 * s.systems(), 8 * s.systems()};
    kernel.inputs[0].scratch = kernel.forward_temps;
  }
  kernel.backward_temps = {{w.bytes(system), TempLife::Brief, 1}, {w.bytes(system), TempLife::Next, 1}};
  return y;
}

// What the loop reads, of all chunks.
struct DeltaChunks {
  int query = -1, key = -1, scores = -1, new_values = -1, decayed_keys = -1, decay = -1;
};

// The view of one chunk; its gradient is a tensor of all chunks.
int chunk_of(KernelWriter& w, int x, const DeltaSizes& s) {
  const int part = w.slice(x, w.elements(x) / s.chunks());
  w.last_kernel().order.kind = GradientOrder::Kind::Followed;
  w.lay(part, {}, {});
  return part;
}

// outputs[:, :, i] = part: a node that copies the gradient of all chunks and, of the part, a copy that becomes its
// gradient, and zeros.
int set_chunk(KernelWriter& w, int outputs, int part) {
  const int y = w.written_in_place(outputs);
  const bool is_first = !w.slot(outputs).differentiable;
  Kernel& kernel = w.add(KernelKind::Elementwise,
                         {{outputs, is_first ? GradRule::None : GradRule::Fresh}, {part, GradRule::Fresh}}, {y});
  kernel.backward_temps = {is_first ? BackwardTemp{w.bytes(outputs), TempLife::Whole} : BackwardTemp{w.bytes(part)}};
  return y;
}

// The state after the last chunk leads nowhere: no node of it lives.
int last_state(KernelWriter& w, int state, const DeltaSizes& s, int values) {
  const int decayed = w.make(w.elements(state), Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {{state, GradRule::None}}, {decayed});
  const int written = w.make(w.elements(state), Dtype::Float32, false);
  Kernel& product = w.add(KernelKind::Gemm, {{values, GradRule::None}}, {written});
  product.flops = 2.0 * static_cast<double>(s.states() * s.chunk) * static_cast<double>(s.key_dim * s.value_dim);
  const int sum = w.make(w.elements(state), Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {{decayed, GradRule::None}, {written, GradRule::None}}, {sum}).holds = {state};
  return sum;
}

// What the loop leaves: the output of all chunks, and what its last run names.
struct Scanned {
  int outputs = -1, values = -1, read = -1;
};

Scanned delta_scan(KernelWriter& w, const DeltaChunks& c, int state, int outputs, const DeltaSizes& s) {
  const std::int64_t states = s.states();
  int values = -1, read = -1;
  for (std::int64_t i = 0; i < s.chunks(); ++i) {
    const bool is_last = i + 1 == s.chunks();
    const int fresh = chunk_of(w, c.new_values, s);
    const int known = viewed_matmul(w, chunk_of(w, c.decayed_keys, s), state, states, s.chunk, s.key_dim, s.value_dim);
    const int old_values = values, old_read = read;
    values = w.minus(fresh, known, false);
    if (old_values >= 0) hold(w, {old_values});
    read = viewed_matmul(w, chunk_of(w, c.query, s), state, states, s.chunk, s.key_dim, s.value_dim);
    if (old_read >= 0) hold(w, {old_read});
    const int within = viewed_matmul(w, chunk_of(w, c.scores, s), values, states, s.chunk, s.chunk, s.value_dim);
    outputs = set_chunk(w, outputs, w.sum_of(read, within));
    if (is_last) {
      last_state(w, state, s, values);
      break;
    }
    const int decayed = w.mul(state, chunk_of(w, c.decay, s), true);
    const int key = w.transpose(chunk_of(w, c.key, s), {s.batch, s.heads, s.chunk, s.key_dim}, 2, 3);
    const int written = viewed_matmul(w, key, values, states, s.key_dim, s.chunk, s.value_dim);
    const int old_state = state;
    state = w.sum_of(decayed, written);
    hold(w, {old_state});
  }
  return {outputs, values, read};
}

// The factors of states and keys, exp(last - sums), are used by the next chunk alone.
DeltaChunks with_decays(KernelWriter& w, DeltaChunks c, int sums, const DeltaSizes& s) {
  const std::int64_t systems = s.systems();
  c.query = scaled_rows(w, c.query, sums, s);
  const int last = w.slice(sums, systems);
  const int left = w.make(s.rows(), Dtype::Float32);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{sums, GradRule::Fresh}, {last, GradRule::Fresh}}, {left});
  w.note_sum(kernel, 1, s.chunk, true);
  c.key = scaled_rows(w, c.key, left, s);
  c.decay = w.unary(w.slice(sums, systems), false, true);
  return c;
}

// As [batch, seq, heads, dim] in the dtype of the queries.
int delta_in_order(KernelWriter& w, int outputs, const DeltaSizes& s) {
  const int rows = w.reshape(w.copy(outputs), s.by_chunk(s.value_dim), s.by_row(s.value_dim));
  const std::int64_t kept = s.batch * s.heads * s.seq * s.value_dim;
  const int cut = s.is_padded() ? w.slice(rows, kept) : rows;
  return w.transpose(cut, {s.batch, s.heads, s.seq, s.value_dim}, 1, 2);
}

}  // namespace

void write_gated_delta_rule(KernelWriter& w) {
  const DeltaSizes s = delta_sizes(w);
  if (s.chunks() == 1) {
    w.refuse({"sizes", fmt::format("Linear attention over rows of at most {} tokens is not predicted.", s.chunk),
              "Take longer rows."});
  }
  const Dtype own = w.slot(w.input(0)).dtype;
  const DeltaValues v = prepare_delta(w, split_delta_inputs(w, s), s);
  const auto by_chunk = [&](int x, std::int64_t dim) { return w.reshape(x, s.by_row(dim), s.by_chunk(dim)); };
  const auto times_beta = [&](int x) {
    const Shape rows = {s.batch, s.heads, s.padded()};
    return w.mul(x, w.reshape(v.beta, rows, {s.batch, s.heads, s.padded(), 1}), true);
  };
  const int value_by_beta = times_beta(v.value);
  const int key_by_beta = times_beta(v.key);
  const int query = by_chunk(v.query, s.key_dim), key = by_chunk(v.key, s.key_dim);
  const int keys = by_chunk(key_by_beta, s.key_dim), values = by_chunk(value_by_beta, s.value_dim);
  const int decay = w.reshape(v.decay, {s.batch, s.heads, s.padded()}, {s.batch, s.heads, s.chunks(), s.chunk});
  const int mask = square_mask(w, s.chunk);
  const int sums = cumulated(w, decay);
  // Without zeros after it, the decay still lies by positions, and is copied.
  if (!s.is_padded() && s.heads > 1) w.last_kernel().forward_temps = {w.bytes(decay)};
  const int pairwise = pairwise_decay(w, sums, mask, s);
  const auto scores = [&](int left) {
    const int turned = w.transpose(key, s.by_chunk(s.key_dim), 3, 4);
    return w.mul(viewed_matmul(w, left, turned, s.systems(), s.chunk, s.key_dim, s.chunk), pairwise);
  };
  const int system = scores(keys);
  DeltaChunks c{.query = query, .key = key, .scores = scores(query)};
  const int decayed_keys = scaled_rows(w, keys, sums, s);
  c.new_values = solved(w, system, values, s.value_dim, s);
  c.decayed_keys = solved(w, system, decayed_keys, s.key_dim, s);
  const int state = w.make(s.states() * s.key_dim * s.value_dim, Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {}, {state});
  const int outputs = w.make(s.rows() * s.value_dim, Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {}, {outputs});
  c = with_decays(w, c, sums, s);
  const Scanned scanned = delta_scan(w, c, state, outputs, s);
  const int turned = delta_in_order(w, scanned.outputs, s);
  const int y = w.make(w.elements(turned), own);
  w.add(KernelKind::Elementwise, {{turned, GradRule::Fresh}}, {y});
  w.set_output(0, y);
  hold(w, {scanned.values, scanned.read});
  hold(w, {v.value, v.beta, v.decay, mask, sums, pairwise, values, keys, decayed_keys, system});
  hold(w, {c.query, c.key, c.scores, c.new_values, c.decayed_keys, c.decay});
}

}  // namespace fsdp::simulator
