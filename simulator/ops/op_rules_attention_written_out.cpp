// Attention with score matrices: the math path of scaled_dot_product_attention, and Hugging Face's eager attention.
//
// Sources: aten/src/ATen/native/transformers/attention.cpp (_scaled_dot_product_attention_math), transformers
// modeling_llama.py (eager_attention_forward, repeat_kv), modeling_gpt_oss.py (eager_attention_forward), torch 2.11;
// checked event by event by tests/rehearsal/op_rules_test.py.

#include <cstdint>
#include <vector>

#include "simulator/ops/op_rules_attention.h"
#include "simulator/ops/strides.h"

namespace fsdp::simulator {

namespace {

// K or V copied to all query heads.
int repeat(KernelWriter& w, int x, const AttentionSizes& s) {
  return s.kv_heads == s.heads ? x : w.copy(x, w.elements(x) / s.kv_heads * s.heads);
}

// Batched products need contiguous [batch * heads, rows, columns]; a transposed view is copied first, unless there is
// one sample and its heads have a constant stride.
int contiguous_heads(KernelWriter& w, int x, const AttentionSizes& s, bool is_contiguous) {
  const Slot& slot = w.slot(x);
  bool is_viewed = is_contiguous || s.batch == 1;
  if (!is_viewed && num_elements(slot.shape) == slot.elements && slot.shape.size() == 4) {
    const Shape wanted = {slot.shape[0] * slot.shape[1], slot.shape[2], slot.shape[3]};
    is_viewed = strides_as(slot.shape, slot.strides, wanted).has_value();
  }
  return is_viewed ? x : w.copy(x);
}

// [batch, heads, keys, dim]
Shape heads_of_keys(const AttentionSizes& s) {
  return {s.batch, s.heads, s.keys, s.dim};
}

// The product of weights and values, as [batch, heads, queries, dim] of `dtype`, then transpose(1, 2).contiguous().
int in_order(KernelWriter& w, int product, const AttentionSizes& s, Dtype dtype) {
  const Shape by_head = {s.batch, s.heads, s.queries, s.value_dim};
  const int split = w.reshape(product, {s.batch * s.heads, s.queries, s.value_dim}, by_head);
  return w.transpose(w.cast(split, dtype), by_head, 1, 2);
}

// The causal mask: a triangle of booleans, then numbers of which minus infinity hides.
int causal_mask(KernelWriter& w, const AttentionSizes& s, Dtype dtype) {
  const int triangle = w.make(s.queries * s.keys, Dtype::Bool, false);
  w.add(KernelKind::Elementwise, {}, {triangle}).forward_temps = {s.queries * s.keys};
  const int mask = w.make(s.queries * s.keys, dtype, false);
  Kernel& choose = w.add(KernelKind::Elementwise, {{triangle, GradRule::None}}, {mask});
  choose.forward_temps = {4, 4};  // The two numbers, made first.
  choose.late_outputs = 1;
  return mask;
}

// Scores plus mask, in place.
int add_in_place(KernelWriter& w, int scores, int mask) {
  const int masked = w.alias(scores);
  const bool is_whole = w.elements(scores) == w.elements(mask) && w.slot(scores).dtype == w.slot(mask).dtype;
  const GradRule of_mask = is_whole ? GradRule::Alias : GradRule::Fresh;
  Kernel& kernel = w.add(KernelKind::Elementwise, {{scores, GradRule::Alias}, {mask, of_mask}}, {masked});
  if (!is_whole) w.note_sum(kernel, 1, w.elements(scores) / w.elements(mask), false);
  return masked;
}

// A softmax in which rows without a key become zero.
int safe_softmax(KernelWriter& w, int scores, const AttentionSizes& s) {
  const int weights = w.softmax(scores);
  w.last_kernel().forward_temps = {s.scores(), s.batch * s.heads * s.queries, 4};
  return weights;
}

int add_mask(KernelWriter& w, int scores, const AttentionSizes& s) {
  if (s.mask >= 0) return w.sum_of(scores, s.mask);
  if (!w.op().attributes.causal) return scores;
  const int mask = w.make(s.queries * s.keys, w.slot(scores).dtype, false);
  w.add(KernelKind::Elementwise, {}, {mask});
  const int masked = w.make(w.elements(scores), w.slot(scores).dtype);
  w.add(KernelKind::Elementwise, {{scores, GradRule::Alias}, {mask, GradRule::None}}, {masked});
  return masked;
}

// gpt-oss: one more column of scores, [heads], which no key has. The largest score of each row is subtracted.
int softmax_with_sinks(KernelWriter& w, int masked, const AttentionSizes& s) {
  const std::int64_t rows = s.batch * s.heads * s.queries;
  const Dtype dtype = w.slot(masked).dtype;
  const int sinks = w.alias(w.parameter(0), rows);
  Kernel& expand = w.add(KernelKind::View, {{w.parameter(0), GradRule::Fresh}}, {sinks});
  w.note_sum(expand, 0, rows / s.heads, false);
  const int both = w.cat({masked, sinks});
  const int largest = w.make(rows, dtype);
  const int places = w.make(rows, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{both, GradRule::Fresh}}, {largest, places}).saved = {{places, 0}};
  hold(w, {masked, sinks});
  const int shifted = w.make(w.elements(both), dtype);
  Kernel& subtract = w.add(KernelKind::Elementwise, {{both, GradRule::Alias}, {largest, GradRule::Fresh}}, {shifted});
  w.note_sum(subtract, 1, s.keys + 1, true, w.bytes(shifted));
  const int weights = w.softmax(shifted);
  hold(w, {masked, sinks, shifted});
  return w.slice(weights, s.scores());
}

}  // namespace

void hold(KernelWriter& w, const std::vector<int>& slots) {
  w.last_kernel().holds.insert(w.last_kernel().holds.end(), slots.begin(), slots.end());
}

int expand_heads(KernelWriter& w, int x, const AttentionSizes& s) {
  if (s.kv_heads > 1 || s.heads == 1) return repeat(w, x, s);
  const int y = w.alias(x, w.elements(x) * s.heads);
  w.add(KernelKind::View, {{x, GradRule::Fresh}}, {y});
  return y;
}

int math_attention(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const Dtype own = w.slot(q).dtype;
  const bool grouped = s.repeated || s.kv_heads != s.heads;
  const int wide_q = w.cast(q, Dtype::Float32);
  const int wide_k = w.cast(k, Dtype::Float32);
  const int wide_v = w.cast(v, Dtype::Float32);
  const int scaled_q = w.scale(wide_q);
  const bool causal = w.op().attributes.causal && s.mask < 0;
  const int mask = causal ? causal_mask(w, s, Dtype::Float32) : s.mask;
  const int all_k = repeat(w, wide_k, s);
  const int all_v = repeat(w, wide_v, s);
  const int scaled_k = w.scale(w.transpose(all_k, heads_of_keys(s), 2, 3));
  const int rows = contiguous_heads(w, scaled_q, s, false);
  const int columns = contiguous_heads(w, scaled_k, s, grouped);
  int scores = w.matmul(rows, columns, s.batch * s.heads, s.queries, s.dim, s.keys);
  hold(w, {scaled_k});  // An argument of the function.
  if (mask >= 0) scores = add_in_place(w, scores, mask);
  int weights = safe_softmax(w, scores, s);
  weights = w.dropout(weights);
  // The function also returns the weights, in the dtype of q, and the caller drops them.
  const int returned = w.cast(weights, own);
  const int product = w.matmul(weights, contiguous_heads(w, all_v, s, grouped && (!s.viewed || own != Dtype::Float32)),
                               s.batch * s.heads, s.queries, s.keys, s.value_dim);
  const int y = in_order(w, product, s, own);
  std::vector<int> locals = {wide_q, wide_k, wide_v, scaled_q, all_k, all_v, returned};
  locals.insert(locals.end(), {q, k, v});  // Arguments, which autocast may have made.
  if (s.mask >= 0) locals.push_back(s.mask);
  if (causal) locals.push_back(mask);
  hold(w, locals);
  return w.copy(y);
}

int eager_attention(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const bool grouped = (s.repeated && !s.viewed) || (s.kv_heads != s.heads && s.kv_heads > 1);
  const int all_k = expand_heads(w, k, s);
  const int all_v = expand_heads(w, v, s);
  const int rows = contiguous_heads(w, q, s, false);
  const int columns = contiguous_heads(w, w.transpose(all_k, heads_of_keys(s), 2, 3), s, grouped);
  int scores = w.scale(w.matmul(rows, columns, s.batch * s.heads, s.queries, s.dim, s.keys));
  if (w.op().attributes.softcap > 0) scores = w.scale(w.unary(w.scale(scores), false, true));
  const int masked = add_mask(w, scores, s);
  int weights = -1;
  if (w.has_parameter(0)) {
    weights = softmax_with_sinks(w, masked, s);
  } else {
    weights = w.cast(w.softmax_in_fp32(masked), w.slot(q).dtype);
    // `attn_weights` names the masked scores until the softmax is back in the activations' dtype.
    hold(w, {masked});
  }
  weights = w.dropout(weights);
  const int product =
      w.matmul(weights, contiguous_heads(w, all_v, s, grouped), s.batch * s.heads, s.queries, s.keys, s.value_dim);
  return w.copy(in_order(w, product, s, w.slot(q).dtype));
}

}  // namespace fsdp::simulator
