// Rotary embeddings and attention.
//
// Fused attention keeps q, k, v, its output and one fp32 number per row (the log-sum-exp): O(S). The math path and
// eager attention keep score matrices: O(S^2). Flash rounds the sequence up to 128 in two fp32 scratch tensors of its
// backward, which is why many short sequences cost as much as few long ones.
//
// Sources: transformers modeling_llama.py (apply_rotary_pos_emb, eager_attention_forward), Llama reference code
// (complex rotary), aten/src/ATen/native/transformers/attention.cpp (_scaled_dot_product_attention_math),
// transformers/cuda/flash_attn/flash_api.cpp (mha_fwd, mha_bwd), cuda/attention.cu and attention_backward.cu
// (memory-efficient), torch 2.11.
//
// Not modelled: flash's split-KV scratch for very few blocks, cuDNN's workspaces (unknown, taken as none), sliding
// windows (same bytes, counted at full cost).

#include <algorithm>

#include "simulator/attention_choice.h"
#include "simulator/kernel_writer.h"

namespace fsdp::simulator {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// ---- rotary --------------------------------------------------------------------------------------------------------

// emb = cat(freqs, freqs), then cos and sin in fp32, scaled, cast. No gradients.
void write_rotary_table(KernelWriter& w) {
  const std::int64_t elements = num_elements(w.output_shape(0));
  const auto plain = [&](std::vector<int> from, std::int64_t count, Dtype dtype) {
    const int y = w.make(count, dtype, false);
    std::vector<KernelInput> inputs;
    for (const int slot : from) inputs.push_back({slot, GradRule::None});
    w.add(KernelKind::Elementwise, std::move(inputs), {y});
    return y;
  };
  const int freqs = plain({w.input(0)}, elements / 2, Dtype::Float32);
  const int angles = plain({freqs}, elements, Dtype::Float32);
  const int cos = plain({plain({angles}, elements, Dtype::Float32)}, elements, Dtype::Float32);
  const int sin = plain({plain({angles}, elements, Dtype::Float32)}, elements, Dtype::Float32);
  w.set_output(0, w.activation() == Dtype::Float32 ? cos : plain({cos}, elements, w.activation()));
  w.set_output(1, w.activation() == Dtype::Float32 ? sin : plain({sin}, elements, w.activation()));
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
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{by_cos, GradRule::Alias}, {by_sin, GradRule::Alias}}, {y});
  return y;
}

// view_as_complex(x.float()) * freqs, cast back.
int rotate_complex(KernelWriter& w, int x, int table) {
  const int wide = w.cast(x, Dtype::Float32);
  return w.cast(mul_table(w, wide, table), w.slot(x).dtype);
}

void write_rotary(KernelWriter& w) {
  const int q = w.input(0);
  const int k = w.input(1);
  const bool halves = w.context().implementations.rotary == RotaryImplementation::Halves;
  const auto rotate = [&](int x) {
    return halves ? rotate_halves(w, x, w.input(2), w.input(3)) : rotate_complex(w, x, w.input(2));
  };
  const int new_q = rotate(q);
  const int new_k = rotate(k);
  // `q, k = rotate(q), rotate(k)`: the old q lives until both are done.
  const int k_view = w.alias(new_k);
  Kernel& assign = w.add(KernelKind::View, {{new_k, GradRule::Alias}}, {k_view});
  assign.holds = {k, q};
  w.set_output(0, new_q);
  w.set_output(1, k_view);
}

// ---- attention -----------------------------------------------------------------------------------------------------

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, dim, value_dim;

  std::int64_t q_elements() const { return batch * queries * heads * dim; }
  std::int64_t scores() const { return batch * heads * queries * keys; }
};

AttentionSizes sizes_of(const KernelWriter& w) {
  const Shape& q = w.input_shape(0);
  const Shape& k = w.input_shape(1);
  const Shape& v = w.input_shape(2);
  return {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
}

double attention_flops(const AttentionSizes& s) {
  return 2.0 * static_cast<double>(s.scores()) * static_cast<double>(s.dim + s.value_dim);
}

void finish_fused(Kernel& kernel, const AttentionSizes& s) {
  kernel.flops = attention_flops(s);
  kernel.backward_flops = 2.5 * kernel.flops;  // Scores again, and four products.
}

int flash(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const int y = w.make(s.batch * s.queries * s.heads * s.value_dim, w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * s.queries, Dtype::Float32, false);
  const int rng_state = w.make(2, Dtype::Int64, false);
  const int unused = w.make(1, Dtype::Int64, false);
  Kernel& kernel = w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}},
                         {y, lse, rng_state, unused});
  kernel.saved = {{k, -1}, {q, -1}, {v, -1}, {lse, -1}, {y, -1}, {rng_state, -1}, {unused, -1}};
  const std::int64_t rows = round_up(s.queries, 128);
  const std::int64_t width = round_up(s.dim, s.dim <= 128 ? 32 : 64);
  kernel.backward_temps = {4 * s.batch * s.heads * rows, 4 * s.batch * s.heads * rows * width};
  if (s.kv_heads != s.heads) {
    const std::int64_t expanded = s.batch * s.keys * s.heads * s.dim * size_of(w.slot(q).dtype).count();
    kernel.backward_temps.insert(kernel.backward_temps.end(), {expanded, expanded});
  }
  finish_fused(kernel, s);
  return y;
}

int memory_efficient(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const int y = w.make(s.batch * s.queries * s.heads * s.value_dim, w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * round_up(s.queries, 32), Dtype::Float32, false);
  const int seed = w.make(1, Dtype::Int64, false);
  const int offset = w.make(1, Dtype::Int64, false);
  Kernel& kernel = w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}},
                         {y, lse, seed, offset});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}, {seed, -1}, {offset, -1}};
  if (w.has_input(3)) {
    // A bias that is trained (T5's relative positions) gets a gradient of the scores' size, summed afterwards.
    kernel.inputs.push_back({w.input(3), GradRule::Fresh});
    kernel.saved.push_back({w.input(3), -1});
    if (w.slot(w.input(3)).differentiable) {
      kernel.backward_temps.push_back(s.scores() * size_of(w.slot(q).dtype).count());
    }
  }
  kernel.backward_temps.push_back(4 * s.batch * s.heads * s.queries);
  if (w.slot(q).dtype != Dtype::Float32) {
    // The gradient of q is summed in fp32, in tiles of 64.
    kernel.backward_temps.push_back(4 * s.batch * s.heads * round_up(s.queries, 64) * round_up(s.dim, 64));
  }
  finish_fused(kernel, s);
  return y;
}

// K or V copied to all query heads.
int repeat(KernelWriter& w, int x, const AttentionSizes& s) {
  return s.kv_heads == s.heads ? x : w.copy(x, w.elements(x) / s.kv_heads * s.heads);
}

int add_mask(KernelWriter& w, int scores, const AttentionSizes& s) {
  if (w.has_input(3)) return w.sum_of(scores, w.input(3));
  if (!w.op().attributes.causal) return scores;
  const int mask = w.make(s.queries * s.keys, w.slot(scores).dtype, false);
  w.add(KernelKind::Elementwise, {}, {mask});
  const int masked = w.make(w.elements(scores), w.slot(scores).dtype);
  w.add(KernelKind::Elementwise, {{scores, GradRule::Alias}, {mask, GradRule::None}}, {masked});
  return masked;
}

// Everything in fp32: q and k scaled, scores, softmax, times v.
int math(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const Dtype own = w.slot(q).dtype;
  const int wide_q = w.scale(w.cast(q, Dtype::Float32));
  const int wide_k = w.scale(w.cast(repeat(w, k, s), Dtype::Float32));
  const int wide_v = w.cast(repeat(w, v, s), Dtype::Float32);
  const int scores = w.matmul(wide_q, wide_k, s.batch * s.heads, s.queries, s.dim, s.keys);
  const int weights = w.softmax(add_mask(w, scores, s));
  const int y = w.matmul(weights, wide_v, s.batch * s.heads, s.queries, s.keys, s.value_dim);
  return w.cast(y, own);
}

// Hugging Face's eager_attention_forward: scores in the activations' dtype, softmax in fp32.
int eager(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const int all_k = repeat(w, k, s);
  const int all_v = repeat(w, v, s);
  int scores = w.scale(w.matmul(q, all_k, s.batch * s.heads, s.queries, s.dim, s.keys));
  if (w.op().attributes.softcap > 0) scores = w.scale(w.unary(w.scale(scores), false, true));
  const int wide = w.cast(add_mask(w, scores, s), Dtype::Float32);
  const int weights = w.cast(w.softmax(wide), w.slot(q).dtype);
  const int y = w.matmul(weights, all_v, s.batch * s.heads, s.queries, s.keys, s.value_dim);
  return w.copy(y);  // transpose(1, 2).contiguous()
}

void write_attention(KernelWriter& w) {
  const AttentionSizes s = sizes_of(w);
  const int q = w.input(0);
  int k = w.input(1);
  int v = w.input(2);
  const bool mask = w.has_input(3);
  AttentionSizes run = s;
  // Hugging Face asks for enable_gqa only without a mask.
  if ((w.context().implementations.repeat_kv || mask) && s.kv_heads != s.heads) {
    k = repeat(w, k, s);
    v = repeat(w, v, s);
    run.kv_heads = s.heads;
  }
  const AttentionBackend backend = choose_attention({.dtype = w.slot(q).dtype,
                                                     .head_dim = s.dim,
                                                     .grouped = run.kv_heads != run.heads,
                                                     .mask = mask,
                                                     .softcap = w.op().attributes.softcap > 0,
                                                     .compute_capability = w.context().compute_capability},
                                                    w.context().implementations);
  switch (backend) {
    case AttentionBackend::MemoryEfficient:
      w.set_output(0, memory_efficient(w, q, k, v, run));
      return;
    case AttentionBackend::Math:
      w.set_output(0, math(w, q, k, v, run));
      return;
    case AttentionBackend::Eager:
      w.set_output(0, eager(w, q, k, v, run));
      return;
    default:
      w.set_output(0, flash(w, q, k, v, run));
      return;
  }
}

}  // namespace

void write_attention_op(KernelWriter& w) {
  switch (w.op().kind) {
    case OpKind::RotaryTable:
      return write_rotary_table(w);
    case OpKind::Rotary:
      return write_rotary(w);
    default:
      return write_attention(w);
  }
}

}  // namespace fsdp::simulator
