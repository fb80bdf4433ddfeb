// Attention.
//
// Fused attention keeps q, k, v, its output and one fp32 number per row (the log-sum-exp): O(S). The math path and
// eager attention keep score matrices: O(S^2). Flash rounds the sequence up to 128 in two fp32 scratch tensors of its
// backward, which is why many short sequences cost as much as few long ones.
//
// Sources: transformers modeling_llama.py (eager_attention_forward), aten/src/ATen/native/transformers/attention.cpp
// (_scaled_dot_product_attention_math), transformers/cuda/flash_attn/flash_api.cpp (mha_fwd, mha_bwd),
// cuda/attention.cu and attention_backward.cu (memory-efficient), mem_eff_attention/kernel_backward.h,
// native/cudnn/MHA.cpp, torch 2.11; checked event by event by tests/rehearsal/op_rules_test.py.
//
// Not modelled: the padded copies that flash makes of heads whose size is no multiple of 8, workspaces of cuDNN's own
// plans (unknown, taken as none; what cudnn-frontend adds is counted), sliding windows (same bytes, counted at full
// cost; the mask that they are without flash is not counted).

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "simulator/attention_choice.h"
#include "simulator/kernel_writer.h"
#include "simulator/strides.h"

namespace fsdp::simulator {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, dim, value_dim;
  bool repeated = false;  // K and V were copied to all query heads.
  bool viewed = false;    // A single head of each is seen by all query heads.

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

// The result of flash and of cuDNN lies in the order of q, [batch, heads, seq, dim]. Where q lies with its heads first,
// that is not the order of [batch, seq, heads * dim].
bool lies_heads_first(const KernelWriter& w, int q) {
  const Shape& shape = w.slot(q).shape;
  const Shape lies = strides_of_result(shape, w.slot(q).strides);
  return !is_dense({shape[0], shape[2], shape[1], shape[3]}, {lies[0], lies[2], lies[1], lies[3]});
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
  const bool dropout = w.op().attributes.probability > 0;
  const std::int64_t blocks = s.batch * s.heads * ((s.queries + 63) / 64);
  const std::int64_t splits = dropout ? 1 : flash_splits(blocks, s.keys, s.dim, w.context().num_sms);
  if (splits > 1) {
    kernel.late_outputs = 2;
    const std::int64_t partial = 4 * splits * s.batch * s.heads * s.queries;
    kernel.forward_temps = {partial, partial * width};
  }
  if (dropout) kernel.forward_temps = {16};
  kernel.backward_temps = {{4 * s.batch * s.heads * rows}, {4 * s.batch * s.heads * rows * width}};
  if (s.kv_heads != s.heads) {
    const std::int64_t expanded = s.batch * s.keys * s.heads * s.dim * size_of(w.slot(q).dtype).count();
    kernel.backward_temps.insert(kernel.backward_temps.end(), {{expanded}, {expanded}});
  }
  finish_fused(kernel, s);
  kernel.order.kind = GradientOrder::Kind::Followed;
  if (!lies_heads_first(w, q)) return y;
  kernel.backward_temps.insert(kernel.backward_temps.begin(), {w.bytes(y), TempLife::Whole});
  return w.copy(y);
}

// The kernel for processors, torch 2.11 aten/src/ATen/native/cpu/FlashAttentionKernel.cpp: blocks of queries and keys
// whose scores, maxima, sums and results each thread has in fp32. It takes grouped heads as they are. Its products in
// 16 bits are oneDNN's, or packed for it, so that what they take is measured with the rest.
int flash_on_processors(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const std::int64_t query_block = s.queries >= 768 ? 256 : (s.queries >= 192 ? 64 : 32);
  const std::int64_t rows = std::min(query_block, s.queries);
  const std::int64_t columns = std::min<std::int64_t>(512, s.keys);
  const std::int64_t threads = w.context().num_sms;
  const bool half = size_of(w.slot(q).dtype) == Bytes(2);
  const int y = w.make(s.batch * s.queries * s.heads * s.value_dim, w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * s.queries, Dtype::Float32, false);
  Kernel& kernel =
      w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}}, {y, lse});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}};
  kernel.forward_temps = {4 * threads * (rows * columns + 2 * rows + rows * s.dim)};
  if (half) kernel.forward_temps.push_back(2 * threads * rows * columns);
  kernel.backward_temps = {{4 * threads * 2 * rows * columns}, {4 * threads * rows}};
  if (half) kernel.backward_temps.push_back({2 * threads * 2 * rows * columns});
  const std::int64_t kv_heads = w.elements(k) / (s.batch * s.keys * s.dim);
  const KernelOperand queries{.sizes = {s.batch, s.heads, s.queries, s.dim}, .strides = {}};
  const KernelOperand keys{.sizes = {s.batch, kv_heads, s.keys, s.dim}, .strides = {}};
  const KernelOperand values{.sizes = {s.batch, kv_heads, s.keys, s.value_dim}, .strides = {}};
  const bool causal = w.op().attributes.causal && !w.has_input(3);
  w.note_attention(kernel, {.name = "_scaled_dot_product_flash_attention_for_cpu",
                            .dtype = w.slot(q).dtype,
                            .operands = {queries, keys, values},
                            .settings = {{"causal", {causal ? 1 : 0}}}});
  finish_fused(kernel, s);
  kernel.order.kind = GradientOrder::Kind::Followed;
  return lies_heads_first(w, q) ? w.copy(y) : y;
}

int cudnn(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const int seed = w.make(1, Dtype::Int64, false);
  const int offset = w.make(1, Dtype::Int64, false);
  const int y = w.make(s.batch * s.queries * s.heads * s.value_dim, w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * s.queries, Dtype::Float32, false);
  Kernel& kernel = w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}},
                         {seed, offset, y, lse});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}, {seed, -1}, {offset, -1}};
  // What cudnn-frontend adds to the plan's own workspace: the gradient of q in fp32, and a number for each row.
  kernel.backward_temps = {{4 * (s.q_elements() + s.batch * s.heads * s.queries)}};
  finish_fused(kernel, s);
  kernel.order.kind = GradientOrder::Kind::Followed;
  return lies_heads_first(w, q) ? w.copy(y) : y;
}

// The sum of the gradient of q, in fp32: a tile per block of queries with a lock and a counter in front.
std::int64_t query_gradient_buffer(const AttentionSizes& s, bool half) {
  const std::int64_t rows = half && s.dim > 64 && s.dim <= 128 ? 128 : 64;
  const std::int64_t columns = s.dim <= 64 ? 64 : 128;
  const std::int64_t tiles = (s.queries + rows - 1) / rows * ((s.dim + columns - 1) / columns);
  return s.batch * s.heads * tiles * (16 + 4 * rows * columns);
}

// Wide heads do not fit into registers: 16-bit gradients of K and V are then summed in fp32, in whole blocks of 64.
std::int64_t key_gradient_buffers(const AttentionSizes& s, bool half) {
  if (!half || std::max(s.dim, s.value_dim) <= 128) return 0;
  constexpr std::int64_t kBlock = 64;
  const std::int64_t columns = round_up(s.dim, kBlock) + round_up(s.value_dim, kBlock);
  return 4 * s.batch * s.heads * round_up(s.keys, kBlock) * columns;
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
  // Wide heads are done in parts, whose sum does not fit into registers.
  if (half && s.value_dim > 128) kernel.forward_temps = {4 * w.elements(y)};
  if (half) {
    kernel.backward_temps.push_back({delta});
  } else {
    // (grad_out.to(float) * out.to(float)).sum(-1).transpose(-2, -1).contiguous()
    kernel.backward_temps.insert(kernel.backward_temps.end(),
                                 {{w.bytes(y), TempLife::Brief}, {delta, TempLife::Brief}, {delta, TempLife::Handed}});
  }
  kernel.backward_temps.push_back({query_gradient_buffer(s, half) + key_gradient_buffers(s, half)});
  finish_fused(kernel, s);
  kernel.order = {GradientOrder::Kind::Turned, {}, {}, 1, 2};
  return y;
}

// K or V copied to all query heads.
int repeat(KernelWriter& w, int x, const AttentionSizes& s) {
  return s.kv_heads == s.heads ? x : w.copy(x, w.elements(x) / s.kv_heads * s.heads);
}

// The same by expand() and reshape(), as Hugging Face has it: a single head is seen many times as it lies.
int expand(KernelWriter& w, int x, const AttentionSizes& s) {
  if (s.kv_heads > 1 || s.heads == 1) return repeat(w, x, s);
  const int y = w.alias(x, w.elements(x) * s.heads);
  w.add(KernelKind::View, {{x, GradRule::Fresh}}, {y});
  return y;
}

// Batched products want [batch * heads, rows, columns] in memory order; a transposed view is copied into it first,
// unless there is one sample and its heads can be counted through as they lie.
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

// What the local variables of a function hold until it returns.
void hold(KernelWriter& w, const std::vector<int>& slots) {
  w.last_kernel().holds.insert(w.last_kernel().holds.end(), slots.begin(), slots.end());
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
  const int scaled_k = w.scale(w.transpose(all_k, heads_of_keys(s), 2, 3));
  const int rows = contiguous_heads(w, scaled_q, s, false);
  const int columns = contiguous_heads(w, scaled_k, s, grouped);
  int scores = w.matmul(rows, columns, s.batch * s.heads, s.queries, s.dim, s.keys);
  hold(w, {scaled_k});  // An argument.
  if (mask >= 0) scores = add_in_place(w, scores, mask);
  int weights = safe_softmax(w, scores, s);
  weights = w.dropout(weights);
  // The weights are returned too, in the dtype of q, and dropped by the caller.
  const int returned = w.cast(weights, own);
  const int product = w.matmul(weights, contiguous_heads(w, all_v, s, grouped && (!s.viewed || own != Dtype::Float32)),
                               s.batch * s.heads, s.queries, s.keys, s.value_dim);
  const int y = in_order(w, product, s, own);
  std::vector<int> locals = {wide_q, wide_k, wide_v, scaled_q, all_k, all_v, returned};
  if (causal) locals.push_back(mask);
  hold(w, locals);
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
  const bool grouped = (s.repeated && !s.viewed) || (s.kv_heads != s.heads && s.kv_heads > 1);
  const int all_k = expand(w, k, s);
  const int all_v = expand(w, v, s);
  const int rows = contiguous_heads(w, q, s, false);
  const int columns = contiguous_heads(w, w.transpose(all_k, heads_of_keys(s), 2, 3), s, grouped);
  int scores = w.scale(w.matmul(rows, columns, s.batch * s.heads, s.queries, s.dim, s.keys));
  if (w.op().attributes.softcap > 0) scores = w.scale(w.unary(w.scale(scores), false, true));
  const int masked = add_mask(w, scores, s);
  int weights = w.cast(w.softmax_in_fp32(masked), w.slot(q).dtype);
  // `attn_weights` names the masked scores until the softmax is back in the activations' dtype.
  hold(w, {masked});
  weights = w.dropout(weights);
  const int product =
      w.matmul(weights, contiguous_heads(w, all_v, s, grouped), s.batch * s.heads, s.queries, s.keys, s.value_dim);
  return w.copy(in_order(w, product, s, w.slot(q).dtype));
}

bool is_strided(const KernelWriter& w, int slot) {
  return !w.slot(slot).strides.empty() && w.slot(slot).strides.back() != 1;
}

AttentionCase case_of(const KernelWriter& w, const AttentionSizes& s) {
  const bool mask = w.has_input(3);
  return {.dtype = w.slot(w.input(0)).dtype,
          .head_dim = s.dim,
          .value_dim = s.value_dim,
          .grouped = s.kv_heads != s.heads,
          .mask = mask,
          .mask_is_strided = mask && is_strided(w, w.input(3)),
          // One that comes in can be a constant; where it is trained, the block that makes it says so.
          .mask_is_trained = mask && w.slot(w.input(3)).differentiable && !w.is_input(w.input(3)),
          .causal_cross = w.op().attributes.causal && !mask && s.queries != s.keys,
          .dropout = w.op().attributes.probability > 0,
          .softcap = w.op().attributes.softcap > 0,
          .compute_capability = w.context().compute_capability};
}

int run_backend(KernelWriter& w, AttentionBackend backend, int q, int k, int v, const AttentionSizes& s) {
  switch (backend) {
    case AttentionBackend::MemoryEfficient:
      return memory_efficient(w, q, k, v, s);
    case AttentionBackend::Math:
      return math(w, q, k, v, s);
    case AttentionBackend::Eager:
      return eager(w, q, k, v, s);
    case AttentionBackend::Cudnn:
      return cudnn(w, q, k, v, s);
    default:
      return w.context().on_processors() ? flash_on_processors(w, q, k, v, s) : flash(w, q, k, v, s);
  }
}

}  // namespace

void write_attention_op(KernelWriter& w) {
  const AttentionSizes s = sizes_of(w);
  const bool mask = w.has_input(3);
  AttentionSizes run = s;
  // Hugging Face asks for enable_gqa only without a mask.
  const bool repeats = (w.context().implementations.repeat_kv || mask) && s.kv_heads != s.heads;
  if (repeats) {
    run.kv_heads = s.heads;
    run.repeated = true;
    run.viewed = s.kv_heads == 1;
  }
  const AttentionCase which = case_of(w, run);
  const AttentionBackend backend = choose_attention(which, w.context().implementations);
  if (std::optional<Error> error = check_attention(which, w.context().implementations)) w.refuse(*std::move(error));
  // [batch, seq, heads, dim] to [batch, heads, seq, dim].
  const int q = w.transpose(w.input(0), w.input_shape(0), 1, 2);
  int k = w.transpose(w.input(1), w.input_shape(1), 1, 2);
  int v = w.transpose(w.input(2), w.input_shape(2), 1, 2);
  if (repeats) {
    k = expand(w, k, s);
    v = expand(w, v, s);
  }
  w.set_output(0, run_backend(w, backend, q, k, v, run));
  if (repeats) hold(w, {k, v});
}

}  // namespace fsdp::simulator
