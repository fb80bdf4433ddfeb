// Rotary embeddings and attention.
//
// Fused attention keeps q, k, v, its output and one fp32 number per row (the log-sum-exp): O(S). The math path and
// eager attention keep score matrices: O(S^2). Flash rounds the sequence up to 128 in two fp32 scratch tensors of its
// backward, which is why many short sequences cost as much as few long ones.
//
// Sources: transformers modeling_llama.py (apply_rotary_pos_emb, eager_attention_forward), Llama reference code
// (complex rotary), aten/src/ATen/native/transformers/attention.cpp (_scaled_dot_product_attention_math),
// transformers/cuda/flash_attn/flash_api.cpp (mha_fwd, mha_bwd), cuda/attention.cu and attention_backward.cu
// (memory-efficient), mem_eff_attention/kernel_backward.h, torch 2.11; checked against recorded allocations.
//
// Not modelled: the padded copies that flash makes of heads whose size is no multiple of 8, cuDNN's workspaces
// (unknown, taken as none), sliding windows (same bytes, counted at full cost).

#include <algorithm>
#include <cmath>
#include <vector>

#include "simulator/attention_choice.h"
#include "simulator/kernel_writer.h"

namespace fsdp::simulator {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// ---- rotary --------------------------------------------------------------------------------------------------------

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
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{by_cos, GradRule::Alias}, {by_sin, GradRule::Alias}}, {y});
  return y;
}

// view_as_complex(x.float()) * freqs, cast back.
int rotate_complex(KernelWriter& w, int x, int table) {
  const int wide = w.cast(x, Dtype::Float32);
  const int turned = mul_table(w, wide, table);
  // The backward multiplies with the conjugate table, which it writes out.
  w.last_kernel().backward_temps = {{8 * w.elements(table) / 2, TempLife::Early}};
  return w.cast(turned, w.slot(x).dtype);
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
  bool repeated = false;  // K and V were copied to all query heads.

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

// Into how many parts flash cuts the keys when there are too few blocks to fill the GPU: the fewest that come within
// 15 % of the best use of whole waves.
std::int64_t flash_splits(const KernelWriter& w, const AttentionSizes& s) {
  if (w.op().attributes.probability > 0) return 1;
  const std::int64_t tile = s.dim <= 64 ? 256 : (s.dim <= 128 ? 128 : 64);
  const std::int64_t key_blocks = (s.keys + tile - 1) / tile;
  const std::int64_t blocks = s.batch * s.heads * ((s.queries + 63) / 64);
  const std::int64_t slots = 2 * w.context().num_sms;
  if (static_cast<double>(blocks) >= 0.8 * static_cast<double>(slots)) return 1;
  const std::int64_t most = std::min({std::int64_t{128}, slots, key_blocks});
  const auto is_new = [&](std::int64_t n) {
    return n == 1 || (key_blocks + n - 1) / n != (key_blocks + n - 2) / (n - 1);
  };
  const auto use_of_waves = [&](std::int64_t n) {
    const double waves = static_cast<double>(blocks * n) / static_cast<double>(slots);
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (is_new(n)) best = std::max(best, use_of_waves(n));
  }
  for (std::int64_t n = 1; n <= most; ++n) {
    if (is_new(n) && use_of_waves(n) >= 0.85 * best) return n;
  }
  return 1;
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
  const std::int64_t splits = flash_splits(w, s);
  kernel.late_outputs = 2;
  if (splits > 1) {
    const std::int64_t partial = 4 * splits * s.batch * s.heads * s.queries;
    kernel.forward_temps = {partial, partial * width};
  }
  if (w.op().attributes.probability > 0) kernel.forward_temps = {16};
  kernel.backward_temps = {{4 * s.batch * s.heads * rows}, {4 * s.batch * s.heads * rows * width}};
  if (s.kv_heads != s.heads) {
    const std::int64_t expanded = s.batch * s.keys * s.heads * s.dim * size_of(w.slot(q).dtype).count();
    kernel.backward_temps.insert(kernel.backward_temps.end(), {{expanded}, {expanded}});
  }
  finish_fused(kernel, s);
  return y;
}

// The sum of the gradient of q, in fp32: a tile per block of queries with a lock and a counter in front.
std::int64_t query_gradient_buffer(const AttentionSizes& s, bool half) {
  const std::int64_t rows = half && s.dim > 64 && s.dim <= 128 ? 128 : 64;
  const std::int64_t columns = s.dim <= 64 ? 64 : round_up(s.dim, 128);
  const std::int64_t tiles = (s.queries + rows - 1) / rows;
  return s.batch * s.heads * tiles * (16 + 4 * rows * columns);
}

// A bias whose rows are not aligned to 16 bytes is copied into one whose rows are.
int aligned_bias(KernelWriter& w, const AttentionSizes& s) {
  const int bias = w.input(3);
  const std::int64_t multiple = 16 / size_of(w.slot(bias).dtype).count();
  if (s.keys % multiple == 0) return bias;
  const int padded = w.make(w.elements(bias) / s.keys * round_up(s.keys, multiple), w.slot(bias).dtype);
  w.add(KernelKind::Elementwise, {{bias, GradRule::Fresh}}, {padded});
  return padded;
}

int memory_efficient(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const int bias = w.has_input(3) ? aligned_bias(w, s) : -1;
  const int y = w.make(s.batch * s.queries * s.heads * s.value_dim, w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * round_up(s.queries, 32), Dtype::Float32, false);
  Kernel& kernel =
      w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}}, {y, lse});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}};
  if (bias >= 0) {
    // A bias that is trained (T5's relative positions) gets a gradient of the scores' size, summed afterwards.
    kernel.inputs.push_back({bias, GradRule::Fresh});
    kernel.saved.push_back({bias, -1});
    const std::int64_t whole = s.scores() * size_of(w.slot(q).dtype).count();
    if (w.bytes(bias) < whole) w.note_sum(kernel, 3, whole / w.bytes(bias), false, whole);
  }
  const std::int64_t delta = 4 * s.batch * s.heads * s.queries;
  const bool half = w.slot(q).dtype != Dtype::Float32;
  if (half) {
    kernel.backward_temps.push_back({delta});
  } else {
    // (grad_out.to(float) * out.to(float)).sum(-1).transpose(-2, -1).contiguous()
    kernel.backward_temps.insert(kernel.backward_temps.end(),
                                 {{w.bytes(y), TempLife::Brief}, {delta, TempLife::Brief}, {delta, TempLife::Handed}});
  }
  kernel.backward_temps.push_back({query_gradient_buffer(s, half)});
  finish_fused(kernel, s);
  return y;
}

// K or V copied to all query heads.
int repeat(KernelWriter& w, int x, const AttentionSizes& s) {
  return s.kv_heads == s.heads ? x : w.copy(x, w.elements(x) / s.kv_heads * s.heads);
}

// Batched products want [batch * heads, rows, columns] in memory order; a transposed view is copied into it first.
int contiguous_heads(KernelWriter& w, int x, bool is_contiguous) {
  return is_contiguous ? x : w.copy(x);
}

// What the local variables of a function hold until it returns.
void hold(KernelWriter& w, const std::vector<int>& slots) {
  w.last_kernel().holds.insert(w.last_kernel().holds.end(), slots.begin(), slots.end());
}

// The causal mask: a triangle of booleans, then numbers of which minus infinity hides.
int causal_mask(KernelWriter& w, const AttentionSizes& s, Dtype dtype) {
  const int triangle = w.make(s.queries * s.keys, Dtype::Bool, false);
  w.add(KernelKind::Elementwise, {}, {triangle}).forward_temps = {s.queries * s.keys};
  const int mask = w.make(s.queries * s.keys, dtype, false);
  w.add(KernelKind::Elementwise, {{triangle, GradRule::None}}, {mask}).forward_temps = {4, 4};
  return mask;
}

// Scores plus mask, in place.
int add_in_place(KernelWriter& w, int scores, int mask) {
  const int masked = w.alias(scores);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{scores, GradRule::Alias}, {mask, GradRule::Fresh}}, {masked});
  w.note_sum(kernel, 1, w.elements(scores) / w.elements(mask), false);
  return masked;
}

// softmax of which rows without a key become zero.
int safe_softmax(KernelWriter& w, int scores, const AttentionSizes& s) {
  const int weights = w.softmax(scores);
  w.last_kernel().forward_temps = {s.scores(), s.batch * s.heads * s.queries, 4};
  return weights;
}

// aten::_scaled_dot_product_attention_math: everything in fp32, q and k scaled, scores, softmax, times v.
int math(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const Dtype own = w.slot(q).dtype;
  const bool grouped = s.repeated || s.kv_heads != s.heads;
  const int wide_q = w.cast(q, Dtype::Float32);
  const int wide_k = w.cast(k, Dtype::Float32);
  const int wide_v = w.cast(v, Dtype::Float32);
  const int scaled_q = w.scale(wide_q);
  const bool causal = w.op().attributes.causal && !w.has_input(3);
  const int mask = causal ? causal_mask(w, s, Dtype::Float32) : (w.has_input(3) ? w.input(3) : -1);
  const int all_k = repeat(w, wide_k, s);
  const int all_v = repeat(w, wide_v, s);
  const int scaled_k = w.scale(all_k);
  int scores = w.matmul(contiguous_heads(w, scaled_q, false), contiguous_heads(w, scaled_k, grouped), s.batch * s.heads,
                        s.queries, s.dim, s.keys);
  if (mask >= 0) scores = add_in_place(w, scores, mask);
  const int weights = safe_softmax(w, scores, s);
  // The weights are returned too, in the dtype of q, and dropped by the caller.
  const int returned = w.cast(weights, own);
  const int product =
      w.matmul(weights, contiguous_heads(w, all_v, grouped), s.batch * s.heads, s.queries, s.keys, s.value_dim);
  const int y = w.cast(w.view_with_copied_gradient(product), own);
  std::vector<int> locals = {wide_q, wide_k, wide_v, scaled_q, all_k, all_v, returned};
  if (causal) locals.push_back(mask);
  hold(w, locals);
  // transpose(1, 2).reshape()
  return w.copy(y);
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

// Hugging Face's eager_attention_forward: scores in the activations' dtype, softmax in fp32.
int eager(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const bool grouped = s.repeated || s.kv_heads != s.heads;
  const int all_k = repeat(w, k, s);
  const int all_v = repeat(w, v, s);
  int scores = w.scale(w.matmul(contiguous_heads(w, q, false), contiguous_heads(w, all_k, grouped), s.batch * s.heads,
                                s.queries, s.dim, s.keys));
  if (w.op().attributes.softcap > 0) scores = w.scale(w.unary(w.scale(scores), false, true));
  const int masked = add_mask(w, scores, s);
  const int weights = w.cast(w.softmax(w.cast(masked, Dtype::Float32)), w.slot(q).dtype);
  // `attn_weights` names the masked scores until the softmax is back in the activations' dtype.
  hold(w, {masked});
  const int product =
      w.matmul(weights, contiguous_heads(w, all_v, grouped), s.batch * s.heads, s.queries, s.keys, s.value_dim);
  return w.copy(w.view_with_copied_gradient(product));  // transpose(1, 2).contiguous()
}

void write_attention(KernelWriter& w) {
  const AttentionSizes s = sizes_of(w);
  const bool mask = w.has_input(3);
  AttentionSizes run = s;
  // Hugging Face asks for enable_gqa only without a mask.
  const bool repeats = (w.context().implementations.repeat_kv || mask) && s.kv_heads != s.heads;
  if (repeats) {
    run.kv_heads = s.heads;
    run.repeated = true;
  }
  const AttentionBackend backend = choose_attention({.dtype = w.slot(w.input(0)).dtype,
                                                     .head_dim = s.dim,
                                                     .grouped = run.kv_heads != run.heads,
                                                     .mask = mask,
                                                     .softcap = w.op().attributes.softcap > 0,
                                                     .compute_capability = w.context().compute_capability},
                                                    w.context().implementations);
  // Fused kernels give gradients in the memory order of q, k and v. Batched products and the sums behind repeated heads
  // give them head by head, so that they are copied on their way back; that of a transposed k happens to fit.
  const bool products = backend == AttentionBackend::Math || backend == AttentionBackend::Eager;
  const bool sums = repeats || (products && s.kv_heads != s.heads);
  const int q = products ? w.view_with_copied_gradient(w.input(0)) : w.input(0);
  int k = sums ? w.view_with_copied_gradient(w.input(1)) : w.input(1);
  int v = sums || products ? w.view_with_copied_gradient(w.input(2)) : w.input(2);
  if (repeats) {
    k = repeat(w, k, s);
    v = repeat(w, v, s);
  }
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
