// The state space of Mamba-2 as transformers runs it without mamba-ssm: by chunks of L positions, in fp32, without a
// loop over them.
//
//   within chunks  y = (C B^T * exp(sums of decays between two positions)) x
//   their states   s = (B * decay to the chunk's end)^T x
//   across chunks  s' = exp(sums of decays between two chunks) s
//   both           y + (C s') * decay from the chunk's start, + D x
//
// For P padded tokens, H heads of p numbers and states of n, autograd keeps five tensors of 4 P H p bytes, five of
// 4 P H n and three of 4 P H L: B and C of the groups are copied to all heads, and torch.einsum copies an operand whose
// dimensions do not lie in the order of its product.
//
// Sources: transformers 5.24 models/nemotron_h/modeling_nemotron_h.py (mamba2_chunk_scan, segment_sum,
// reshape_into_chunks; the same functions are in models/bamba, granitemoehybrid and falcon_h1);
// aten/src/ATen/native/Linear.cpp (einsum, sumproduct_pair), torch/csrc/autograd/FunctionsManual.cpp (cumsum_backward,
// clamp_backward), torch 2.11; checked event by event by tests/rehearsal/op_rules_test.py.

#include <fmt/format.h>

#include "simulator/ops/op_rules_attention.h"
#include "simulator/ops/op_rules_linear_attention.h"

namespace fsdp::simulator {

namespace {

struct ScanSizes {
  std::int64_t batch = 0, seq = 0, heads = 0, groups = 0, dim = 0, state = 0, chunk = 0;

  std::int64_t chunks() const { return (seq + chunk - 1) / chunk; }
  std::int64_t padded() const { return chunks() * chunk; }
  bool is_padded() const { return padded() != seq; }
  std::int64_t systems() const { return batch * chunks() * heads; }  ///< Heads of all chunks.
  Shape by_chunk(std::int64_t width) const { return {batch, chunks(), chunk, heads, width}; }
  Shape by_head(std::int64_t width) const { return {batch, chunks(), heads, chunk, width}; }
};

ScanSizes scan_sizes(const KernelWriter& w) {
  const OpAttributes& a = w.op().attributes;
  const Shape& mixed = w.input_shape(0);
  return {.batch = mixed[0],
          .seq = mixed[1],
          .heads = a.heads,
          .groups = a.groups,
          .dim = a.head_dim,
          .state = (mixed[2] - a.heads * a.head_dim) / (2 * a.groups),
          .chunk = a.length};
}

// Values, and what writes and reads the states, as views of the convolution's output.
struct ScanParts {
  int values = -1, writes = -1, reads = -1;
};

ScanParts split_scan_inputs(KernelWriter& w, const ScanSizes& s) {
  const int mixed = w.input(0);
  const Shape strides = w.slot(mixed).strides;
  const auto part = [&](std::int64_t width) {
    const int slot = w.alias(mixed, s.batch * s.seq * width);
    w.lay(slot, {s.batch, s.seq, width}, strides);
    return slot;
  };
  const std::int64_t states = s.groups * s.state;
  const std::vector<int> parts = {part(s.heads * s.dim), part(states), part(states)};
  w.add(KernelKind::View, {{mixed, GradRule::Fresh}}, parts);
  const auto seen = [&](int slot, std::int64_t heads, std::int64_t width) {
    return w.reshape(slot, {s.batch, s.seq, heads * width}, {s.batch, s.seq, heads, width});
  };
  return {seen(parts[0], s.heads, s.dim), seen(parts[1], s.groups, s.state), seen(parts[2], s.groups, s.state)};
}

// softplus(step + bias), at least the shortest step: clamp's backward compares with both ends.
int steps_of(KernelWriter& w) {
  const int soft = w.unary(w.sum_of(w.input(1), w.parameter(1)), true, false);
  const int y = w.unary(soft, true, false);
  w.last_kernel().backward_temps = {{size_of(w.slot(y).dtype).count(), TempLife::Whole},
                                    {w.elements(y), TempLife::Whole},
                                    {w.elements(y), TempLife::Whole}};
  return y;
}

// x.float().repeat_interleave(heads / groups, dim=2)
int of_all_heads(KernelWriter& w, int x, const ScanSizes& s) {
  const int expanded = w.slice(w.cast(x, Dtype::Float32), s.batch * s.seq * s.heads * s.state);
  w.lay(expanded, {}, {});
  const std::int64_t times = s.heads / s.groups;
  return w.reshape(w.copy(expanded), {s.batch, s.seq, s.groups, times, s.state}, {s.batch, s.seq, s.heads, s.state});
}

// x [..., side] as a matrix of sums between two of its positions, whose exponentials are the decays.
int decays_between(KernelWriter& w, int x, std::int64_t side) {
  const auto negated = [&](int mask) {
    const int y = w.make(side * side, Dtype::Bool, false);
    w.add(KernelKind::Elementwise, {{mask, GradRule::None}}, {y});
    return y;
  };
  const int column = w.alias(x);
  w.lay(column, {}, {});
  w.add(KernelKind::View, {{x, GradRule::Alias}}, {column});
  const int expanded = w.slice(column, w.elements(x) * side);
  w.lay(expanded, {}, {});
  const int below = square_mask(w, side);
  const int masked = filled(w, expanded, negated(below));
  const int sums = cumulated(w, masked);
  const int lower = square_mask(w, side);
  hold(w, {below});
  const int segments = filled(w, sums, negated(lower));
  hold(w, {masked, lower});
  return w.unary(segments, false, true);
}

// [b, c, l, h, w] as [b c h, l, w]: a copy.
int copied_by_head(KernelWriter& w, int x, const ScanSizes& s, std::int64_t width) {
  return w.copy(w.transpose(x, s.by_chunk(width), 2, 3));
}

// A product of torch.einsum. Its gradient is copied if it does not lie in the order of the product.
int contracted(KernelWriter& w, int a, int b, const ProductSizes& p) {
  const int y = viewed_matmul(w, a, b, p.batches, p.m, p.k, p.n);
  w.last_kernel().order.kind = GradientOrder::Kind::Dense;
  return y;
}

// [b, h, c, l] as [b, c, l, h, 1]
int by_position(KernelWriter& w, int x, const ScanSizes& s) {
  const int turned = w.transpose(x, {s.batch, s.heads, s.chunks(), s.chunk}, 1, 2);
  return w.transpose(turned, {s.batch, s.chunks(), s.heads, s.chunk}, 2, 3);
}

// What the calls after the chunks read.
struct ScanChunks {
  int values = -1;  // [b, c, l, h, p]
  int writes = -1;  // [b, c, l, h, n]
  int reads = -1;   // [b, c, l, h, n]
  int rates = -1;   // [b, h, c, l]
  int sums = -1;    // The rates' sums within each chunk.
  int passed = -1;  // D x of all padded tokens.
  int steps = -1;
  int rate = -1;  // -exp of the parameter.
};

ScanChunks prepare_scan(KernelWriter& w, const ScanSizes& s) {
  const ScanParts parts = split_scan_inputs(w, s);
  ScanChunks c;
  c.rate = w.unary(w.unary(w.cast(w.parameter(0), Dtype::Float32), false, true), false, false);
  c.steps = steps_of(w);
  const int values = w.cast(parts.values, Dtype::Float32);
  w.lay(values, {}, {});
  const int writes = of_all_heads(w, parts.writes, s);
  const int reads = of_all_heads(w, parts.reads, s);
  const std::int64_t tokens = s.batch * s.padded();
  c.passed = w.mul(padded_rows(w, values, tokens * s.heads * s.dim), w.parameter(2), true);
  const int scaled = w.mul(values, w.cast(c.steps, Dtype::Float32), true);
  const int rates = w.mul(w.cast(c.steps, Dtype::Float32), c.rate);
  const auto in_chunks = [&](int x, std::int64_t width) {
    return w.reshape(padded_rows(w, x, tokens * s.heads * width), {s.batch, s.padded(), s.heads, width},
                     s.by_chunk(width));
  };
  c.values = in_chunks(scaled, s.dim);
  const int padded_rates = padded_rows(w, rates, tokens * s.heads);
  const int chunk_rates =
      w.reshape(padded_rates, {s.batch, s.padded(), s.heads}, {s.batch, s.chunks(), s.chunk, s.heads});
  c.writes = in_chunks(writes, s.state);
  c.reads = in_chunks(reads, s.state);
  hold(w, {scaled, rates, writes});
  const int by_head = w.transpose(chunk_rates, {s.batch, s.chunks(), s.chunk, s.heads}, 2, 3);
  c.rates = w.transpose(by_head, {s.batch, s.chunks(), s.heads, s.chunk}, 1, 2);
  c.sums = cumulated(w, c.rates);
  w.last_kernel().forward_temps = {w.bytes(c.sums)};
  w.last_kernel().backward_temps.push_back({w.bytes(c.sums), TempLife::Early});
  return c;
}

// exp(last sum of each chunk - sum), by which a position's part of the chunk's state decays.
int decay_to_end(KernelWriter& w, int sums, const ScanSizes& s) {
  const int last = w.slice(sums, s.systems());
  w.lay(last, {}, {});
  const int left = w.make(w.elements(sums), Dtype::Float32);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{sums, GradRule::Fresh}, {last, GradRule::Fresh}}, {left});
  w.note_sum(kernel, 1, s.chunk, true);
  return w.unary(left, false, true);
}

// The states at the start of each chunk, from what each chunk adds [b, c, h, p, n].
struct ChunkStates {
  int zeros = -1, decays = -1, all = -1;
};

ChunkStates across_chunks(KernelWriter& w, int states, int sums, const ScanSizes& s) {
  const std::int64_t numbers = s.dim * s.state;
  const std::int64_t ends = s.chunks() + 1;
  const int zeros = w.make(s.batch * s.heads * numbers, Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {}, {zeros});
  const Shape both = {s.batch, ends, s.heads, s.dim, s.state};
  const int joined = w.cat({zeros, states}, {GradientOrder::Kind::Cut, {}, both, 1});
  const int last = w.slice(sums, s.systems());
  w.lay(last, {}, {});
  const int decays = decays_between(w, padded_rows(w, last, s.batch * s.heads * ends), ends);
  // One sample's heads have a constant stride: no copy.
  const int turned = w.transpose(joined, both, 1, 2);
  const int right = s.batch == 1 ? turned : w.copy(turned);
  const int all = contracted(w, decays, right, {s.batch * s.heads, ends, numbers, ends});
  if (s.batch == 1) w.last_kernel().order.kind = GradientOrder::Kind::Plain;
  hold(w, {joined});
  return {zeros, decays, w.transpose(all, {s.batch, s.heads, ends, s.dim, s.state}, 1, 2)};
}

}  // namespace

void write_state_space(KernelWriter& w) {
  const ScanSizes s = scan_sizes(w);
  if (s.chunks() == 1) {
    w.refuse({"sizes", fmt::format("A state space over rows of at most {} tokens is not predicted.", s.chunk),
              "Take longer rows."});
  }
  const ScanChunks c = prepare_scan(w, s);
  const int decays = decays_between(w, c.rates, s.chunk);
  // Operands are copied in the order of the function's arguments.
  const int reads = copied_by_head(w, c.reads, s, s.state);
  const int writes = copied_by_head(w, c.writes, s, s.state);
  const int scores = contracted(w, reads, writes, {s.systems(), s.chunk, s.chunk, s.state});
  const int weights = w.mul(scores, decays);
  const int values = copied_by_head(w, c.values, s, s.dim);
  const int within = contracted(w, weights, values, {s.systems(), s.chunk, s.dim, s.chunk});
  const int own = w.transpose(within, s.by_head(s.dim), 2, 3);
  const int to_end = decay_to_end(w, c.sums, s);
  const int decayed = w.mul(c.writes, by_position(w, to_end, s), true);
  const int by_head = w.transpose(c.values, s.by_chunk(s.dim), 2, 3);
  const int columns = w.copy(w.transpose(by_head, s.by_head(s.dim), 3, 4));
  const int added =
      contracted(w, columns, copied_by_head(w, decayed, s, s.state), {s.systems(), s.dim, s.state, s.chunk});
  const ChunkStates states = across_chunks(w, added, c.sums, s);
  const int starts = w.slice(states.all, s.systems() * s.dim * s.state);
  w.lay(starts, {}, {});
  const int from_start = w.unary(c.sums, false, true);
  const int again = copied_by_head(w, c.reads, s, s.state);
  const int turned = w.copy(w.transpose(starts, {s.batch, s.chunks(), s.heads, s.dim, s.state}, 3, 4));
  const int read = contracted(w, again, turned, {s.systems(), s.chunk, s.dim, s.state});
  const int read_by_position = w.transpose(read, s.by_head(s.dim), 2, 3);
  w.lay(read_by_position, {}, {});
  const int carried = w.mul(read_by_position, by_position(w, from_start, s), true);
  const int sum = w.copy(w.sum_of(own, carried));
  const int all = w.sum_of(w.reshape(sum, s.by_chunk(s.dim), {s.batch, s.padded(), s.heads, s.dim}), c.passed);
  hold(w, {c.steps, c.rate, c.values, c.writes, c.reads, c.rates, c.sums, c.passed, decays, scores, weights, within});
  hold(w, {to_end, decayed, states.zeros, states.decays, states.all, from_start, read, carried});
  w.set_output(0, s.is_padded() ? w.slice(all, s.batch * s.seq * s.heads * s.dim) : all);
}

}  // namespace fsdp::simulator
