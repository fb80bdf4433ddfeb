// Attention.
//
// Fused attention keeps q, k, v, its output and one fp32 number per row (the log-sum-exp): O(S). Written-out attention
// (op_rules_attention_written_out.cpp) keeps score matrices: O(S^2). Flash rounds the sequence up to 128 in two fp32
// scratch tensors of its backward, which is why many short sequences cost as much as few long ones.
//
// Sources: transformers modeling_llama.py (eager_attention_forward), aten/src/ATen/native/transformers/attention.cpp
// (_scaled_dot_product_attention_math), transformers/cuda/flash_attn/flash_api.cpp (mha_fwd, mha_bwd),
// cuda/attention.cu and attention_backward.cu (memory-efficient), mem_eff_attention/kernel_backward.h,
// native/cudnn/MHA.cpp, torch 2.11; checked event by event by tests/rehearsal/op_rules_test.py.
//
// A sliding window that is shorter than the sequence is a mask of booleans for PyTorch's attention, as transformers
// makes it (masking_utils.py): no flash, K and V copied to all query heads, and 2 B S^2 bytes in each layer.
//
// Rows of one length can be given to flash-attn's flash_attn_func (2.8.3, flash_attn_interface.py and
// csrc/flash_attn/flash_api.cpp, mha_fwd and mha_bwd), which caps scores and looks back a window by itself.
//
// A packed row: flash-attn's flash_attn_varlen_func (mha_varlen_fwd and mha_varlen_bwd) and torch.nn.attention.varlen
// (torch 2.11) take the boundaries of documents; scaled_dot_product_attention takes a mask of booleans as of a window.
// Only the first two compute fewer scores.
//
// torch.nn.attention.flex_attention (torch 2.11, _inductor/kernel/flex/flex_attention.py), compiled alone as torchtitan
// 0.3 and transformers 5.24 do: a Triton kernel that skips the blocks of a mask. The code of its backward asks for the
// gradient in the order [batch, heads, seq, dim], so autograd copies it, and drops the output once it has its product
// with that gradient. K and V of grouped heads are not copied.
//
// Not modeled: what Inductor measures kernels with in a first step (50 MiB, and with torchtitan's max_autotune operands
// of the same sizes), the mask's own making, workspaces of cuDNN's own plans (unknown, taken as 0; cudnn-frontend's
// addition counts), work that a window saves.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/rounding.h"
#include "core/plan/packing.h"
#include "simulator/ops/attention_choice.h"
#include "simulator/ops/kernel_writer.h"
#include "simulator/ops/op_rules_attention.h"
#include "simulator/ops/strides.h"

namespace fsdp::simulator {

namespace {

bool is_flex(const KernelWriter& w) {
  return w.op().attributes.packed == PackedAttention::Flex;
}

// Whether a kernel takes the boundaries of a packed row's documents.
bool has_boundaries(const KernelWriter& w) {
  return w.has_input(4);
}

AttentionSizes sizes_of(const KernelWriter& w) {
  const Shape& q = w.input_shape(0);
  const Shape& k = w.input_shape(1);
  const Shape& v = w.input_shape(2);
  AttentionSizes sizes = {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
  if (is_flex(w)) {
    sizes.share = share_of_blocks(w.op().attributes.documents);
  } else if (has_boundaries(w)) {
    sizes.share = share_of_scores(w.op().attributes.documents);
  } else if (w.has_input(3)) {
    sizes.mask = w.input(3);
  }
  return sizes;
}

double attention_flops(const AttentionSizes& s) {
  return 2.0 * s.share * static_cast<double>(s.scores()) * static_cast<double>(s.dim + s.value_dim);
}

void finish_fused(Kernel& kernel, const AttentionSizes& s) {
  kernel.flops = attention_flops(s);
  kernel.backward_flops = 2.5 * kernel.flops;  // Scores again, and four products.
}

// The result of flash and of cuDNN has the order of q, [batch, heads, seq, dim]. If the heads of q come first in
// memory, that is not the order of [batch, seq, heads * dim].
bool lies_heads_first(const KernelWriter& w, int q) {
  const Shape& shape = w.slot(q).shape;
  const Shape lies = strides_of_result(shape, w.slot(q).strides);
  return !is_dense({shape[0], shape[2], shape[1], shape[3]}, {lies[0], lies[2], lies[1], lies[3]});
}

// The parts of the keys that are computed apart and then added: a log-sum-exp and a result for each, in fp32. Empty if
// there is one part.
std::vector<std::int64_t> parts_of_flash(const KernelWriter& w, const AttentionSizes& s, std::int64_t width) {
  if (w.op().attributes.probability > 0) return {};
  const std::int64_t blocks = s.batch * s.heads * ((s.queries + 63) / 64);
  const std::int64_t splits = flash_splits(blocks, s.keys, s.dim, w.context().num_sms);
  const std::int64_t partial = 4 * splits * s.batch * s.heads * s.queries;
  return splits > 1 ? std::vector{partial, partial * width} : std::vector<std::int64_t>{};
}

int flash(KernelWriter& w, int q, int k, int v, const AttentionSizes& s, bool cut = false) {
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
  kernel.forward_temps = parts_of_flash(w, s, width);
  if (!kernel.forward_temps.empty()) kernel.late_outputs = 2;
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
  if (cut) kernel.backward_temps.insert(kernel.backward_temps.begin(), {w.bytes(y), TempLife::Whole});
  return cut ? y : w.copy(y);
}

// Zeros after each head of x [batch, heads, positions, dim], up to a multiple of 8.
int padded(KernelWriter& w, int x, Shape shape, std::int64_t wide) {
  const int y = w.make(w.elements(x) / shape.back() * wide, w.slot(x).dtype);
  shape.back() = wide;
  w.lay(y, shape, dense_strides(shape));
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  return y;
}

// Flash with padded heads; its results are cut.
int flash_padded(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  AttentionSizes wide = s;
  wide.dim = wide.value_dim = round_up(s.dim, 8);
  const int q8 = padded(w, q, {s.batch, s.heads, s.queries, s.dim}, wide.dim);
  const int k8 = padded(w, k, {s.batch, s.kv_heads, s.keys, s.dim}, wide.dim);
  const int v8 = padded(w, v, {s.batch, s.kv_heads, s.keys, s.dim}, wide.dim);
  const int y = flash(w, q8, k8, v8, wide, true);
  hold(w, {q8, k8, v8});
  const int cut = w.alias(y, w.elements(y) / wide.dim * s.dim);
  w.add(KernelKind::View, {{y, GradRule::Fresh}}, {cut});
  return w.copy(cut);
}

// The kernel for CPU, torch 2.11 aten/src/ATen/native/cpu/FlashAttentionKernel.cpp: blocks of queries and keys; each
// thread has their scores, maxima, sums and results in fp32. It takes grouped heads without a copy. oneDNN computes or
// packs its products in 16 bits, so a measurement of the call includes their memory.
int flash_on_cpu(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
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
  const bool causal = w.op().attributes.causal && s.mask < 0;
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
  if (s.mask >= 0 && w.is_autocast()) kernel.saved.push_back({s.mask, -1});
  // cudnn-frontend's addition to the plan's own workspace: the gradient of q in fp32, and a number for each row.
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

// Wide heads do not fit into registers: 16-bit gradients of K and V are then summed in fp32, a block of 64 keys for
// each split of them. There are 200 splits for all heads together, at most one for each block and at least one. The
// gradient of q has tiles of 128 queries and 64 columns.
std::int64_t wide_gradient_buffers(const AttentionSizes& s) {
  constexpr std::int64_t kKeys = 64;
  constexpr std::int64_t kQueries = 128;
  constexpr std::int64_t kColumns = 64;
  constexpr std::int64_t kSplits = 200;
  const std::int64_t rows = s.batch * s.heads;
  const auto blocks = [](std::int64_t size, std::int64_t block) { return round_up(size, block) / block; };
  const std::int64_t splits = std::max<std::int64_t>(std::min(blocks(s.keys, kKeys), kSplits / rows), 1);
  const std::int64_t keys = 4 * splits * kKeys * (round_up(s.dim, kQueries) + round_up(s.value_dim, kQueries));
  const std::int64_t tiles = blocks(s.queries, kQueries) * blocks(s.dim, kColumns);
  return rows * (keys + tiles * (16 + 4 * kQueries * kColumns));
}

std::int64_t gradient_buffers(const AttentionSizes& s, bool half) {
  return half && std::max(s.dim, s.value_dim) > 128 ? wide_gradient_buffers(s) : query_gradient_buffer(s, half);
}

// Flash of other libraries than ATen's. Rows of both fp32 scratch tensors of the backward are rounded up to 128;
// between the documents of a packed row they lie 128 apart.
//
// torch.nn.attention.varlen is an operator of its own: it returns a random state of zeros in place of the kernel's, and
// autograd makes gradients of zeros for its two other outputs. The kernel of flash-attn is called by a Function, which
// makes the gradients itself, and it takes tensors in any order.
int flash_of_library(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const OpAttributes& attributes = w.op().attributes;
  const bool is_torch = attributes.packed == PackedAttention::Varlen;
  const bool is_packed = has_boundaries(w);
  const int y = w.make(s.q_elements(), w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * s.queries, Dtype::Float32, false);
  const int rng_state = w.make(2, Dtype::Int64, false);
  Kernel& kernel = w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}},
                         {y, lse, rng_state});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}, {rng_state, -1}};
  if (is_packed) kernel.saved.insert(kernel.saved.end(), {{w.input(3), -1}, {w.input(4), -1}});
  const std::int64_t width = s.dim <= 192 || is_torch ? round_up(s.dim, s.dim <= 128 || !is_torch ? 32 : 64) : 256;
  if (is_torch) kernel.forward_temps = {16, 8};
  if (!is_packed) kernel.forward_temps = parts_of_flash(w, s, width);
  kernel.late_outputs = kernel.forward_temps.empty() ? 0 : 1;
  kernel.saves_when_done = !is_torch;
  const bool copies = is_torch && lies_heads_first(w, q);
  const std::int64_t rows = is_packed ? s.queries + 128 * static_cast<std::int64_t>(attributes.documents.size())
                                      : s.batch * round_up(s.queries, 128);
  if (is_torch) kernel.backward_temps = {{w.bytes(lse), TempLife::Whole}, {16, TempLife::Whole}};
  if (copies) kernel.backward_temps.push_back({w.bytes(y), TempLife::Whole});
  kernel.backward_temps.insert(kernel.backward_temps.end(), {{4 * s.heads * rows}, {4 * s.heads * rows * width}});
  if (s.kv_heads != s.heads) {
    const std::int64_t expanded = s.batch * s.keys * s.heads * s.dim * size_of(w.slot(q).dtype).count();
    kernel.backward_temps.insert(kernel.backward_temps.end(), {{expanded}, {expanded}});
  }
  finish_fused(kernel, s);
  kernel.order.kind = GradientOrder::Kind::Followed;
  return lies_heads_first(w, q) ? w.copy(y) : y;
}

// A bias whose rows are not aligned to 16 bytes is copied into one whose rows are.
int aligned_bias(KernelWriter& w, const AttentionSizes& s) {
  const int bias = s.mask;
  const std::int64_t multiple = 16 / size_of(w.slot(bias).dtype).count();
  if (s.keys % multiple == 0) return bias;
  const int padded = w.make(w.elements(bias) / s.keys * round_up(s.keys, multiple), w.slot(bias).dtype);
  w.add(KernelKind::Elementwise, {{bias, GradRule::Fresh}}, {padded});
  return padded;
}

int memory_efficient(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const int bias = s.mask >= 0 ? aligned_bias(w, s) : -1;
  const int y = w.make(s.batch * s.queries * s.heads * s.value_dim, w.slot(q).dtype);
  const int lse = w.make(s.batch * s.heads * round_up(s.queries, 32), Dtype::Float32, false);
  Kernel& kernel =
      w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}}, {y, lse});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}};
  if (s.mask >= 0 && !s.mask_is_converted) kernel.holds.push_back(s.mask);  // The caller names it.
  if (bias >= 0) {
    // A trained bias (T5's relative positions) gets a gradient of the scores' size, summed afterwards.
    kernel.inputs.push_back({bias, GradRule::Fresh});
    kernel.saved.push_back({bias, -1});
    const std::int64_t whole = s.scores() * size_of(w.slot(q).dtype).count();
    if (w.bytes(bias) < whole) w.note_sum(kernel, 3, whole / w.bytes(bias), false, whole);
  }
  const std::int64_t delta = 4 * s.batch * s.heads * s.queries;
  const bool half = w.slot(q).dtype != Dtype::Float32;
  // Wide heads are processed in parts, whose sum does not fit into registers.
  if (half && std::max(s.dim, s.value_dim) > 128) kernel.forward_temps = {4 * w.elements(y)};
  if (half) {
    kernel.backward_temps.push_back({delta});
  } else {
    // (grad_out.to(float) * out.to(float)).sum(-1).transpose(-2, -1).contiguous()
    kernel.backward_temps.insert(kernel.backward_temps.end(),
                                 {{w.bytes(y), TempLife::Brief}, {delta, TempLife::Brief}, {delta, TempLife::Handed}});
  }
  kernel.backward_temps.push_back({gradient_buffers(s, half)});
  finish_fused(kernel, s);
  kernel.order = {GradientOrder::Kind::Turned, {}, {}, 1, 2};
  return y;
}

bool is_strided(const KernelWriter& w, int slot) {
  return !w.slot(slot).strides.empty() && w.slot(slot).strides.back() != 1;
}

AttentionCase case_of(const KernelWriter& w, const AttentionSizes& s) {
  const bool mask = s.mask >= 0;
  return {.dtype = w.context().autocast.value_or(w.slot(w.input(0)).dtype),
          .head_dim = s.dim,
          .value_dim = s.value_dim,
          .grouped = s.kv_heads != s.heads,
          .mask = mask,
          .mask_is_strided = mask && is_strided(w, s.mask),
          // A mask from outside can be a constant; if it is trained, the block that makes it has the mark.
          .mask_is_trained = mask && w.slot(s.mask).differentiable && !w.is_input(s.mask),
          .causal_cross = w.op().attributes.causal && !mask && s.queries != s.keys,
          .dropout = w.op().attributes.probability > 0,
          .written_out = w.op().attributes.softcap > 0 || w.has_parameter(0),
          .compute_capability = w.context().compute_capability};
}

// Flash has an argument for a window, and written-out attention makes its own mask.
bool has_own_window(AttentionBackend backend) {
  return backend == AttentionBackend::Flash || backend == AttentionBackend::Eager ||
         backend == AttentionBackend::FlashAttn;
}

// aten/src/ATen/native/transformers/attention.cpp, convert_boolean_attn_mask: for each sample, in the dtype of q,
// chosen from two numbers on the device. Each call makes its own, and its backward keeps it.
int additive(KernelWriter& w, const AttentionSizes& s) {
  const std::int64_t elements = s.batch * s.queries * s.keys;
  const int y = w.make(elements, w.context().autocast.value_or(w.slot(w.input(0)).dtype), false);
  const std::int64_t number = size_of(w.slot(y).dtype).count();
  Kernel& kernel = w.add(KernelKind::Elementwise, {{s.mask, GradRule::None}}, {y});
  kernel.forward_temps = {number, number};
  kernel.late_outputs = 1;
  return y;
}

// Autocast casts the arguments of scaled_dot_product_attention, from the last to the first.
void cast_arguments(KernelWriter& w, int& q, int& k, int& v, int& mask) {
  if (mask >= 0) mask = w.lowered(mask);
  v = w.lowered(v);
  k = w.lowered(k);
  q = w.lowered(q);
}

// Attention that transformers writes out, and flash attention with a window, which is a call of its own.
void refuse_under_autocast(KernelWriter& w, const AttentionSizes& s) {
  if (!w.is_autocast() || w.activation() == w.product_dtype()) return;  // q, k and v are as without it.
  const OpAttributes& a = w.op().attributes;
  const bool is_eager = w.context().implementations.attention == AttentionBackend::Eager || a.softcap > 0;
  const bool has_window = a.causal && s.mask < 0 && a.window > 0 && a.window < s.keys;
  if (!is_eager && !has_window) return;
  w.refuse({"/mixed_precision/autocast",
            is_eager ? "Written-out attention under autocast is not predicted."
                     : "Attention over a window under autocast is predicted only with a mask.",
            "Plan with --precision bf16, fp32, or mixed under FSDP2."});
}

int run_backend(KernelWriter& w, AttentionBackend backend, int q, int k, int v, const AttentionSizes& s) {
  switch (backend) {
    case AttentionBackend::MemoryEfficient:
      return memory_efficient(w, q, k, v, s);
    case AttentionBackend::Math:
      return math_attention(w, q, k, v, s);
    case AttentionBackend::Eager:
      return eager_attention(w, q, k, v, s);
    case AttentionBackend::Cudnn:
      return cudnn(w, q, k, v, s);
    default:
      if (w.context().is_cpu()) return flash_on_cpu(w, q, k, v, s);
      return s.dim % 8 == 0 ? flash(w, q, k, v, s) : flash_padded(w, q, k, v, s);
  }
}

// Neither 16-bit numbers nor fp32 need other temporaries.
int flex(KernelWriter& w, int q, int k, int v, const AttentionSizes& s) {
  const std::int64_t row = s.batch * s.heads * s.queries;
  const int lse = w.make(row, Dtype::Float32, false);
  const int y = w.make(s.q_elements(), w.slot(q).dtype);
  Kernel& kernel =
      w.add(KernelKind::Attention, {{q, GradRule::Fresh}, {k, GradRule::Fresh}, {v, GradRule::Fresh}}, {lse, y});
  kernel.saved = {{q, -1}, {k, -1}, {v, -1}, {y, -1}, {lse, -1}, {w.input(3), -1}};
  kernel.forward_temps = {4 * row};  // The largest score of each row.
  kernel.late_outputs = 1;
  kernel.saves_when_done = true;
  kernel.keeps_inputs = true;
  kernel.freed_early = y;
  if (s.heads > 1) kernel.backward_temps.push_back({w.bytes(y), TempLife::Whole});
  kernel.backward_temps.push_back({4 * row, TempLife::Whole});
  finish_fused(kernel, s);
  kernel.order.kind = GradientOrder::Kind::Followed;
  return lies_heads_first(w, q) ? w.copy(y) : y;
}

std::string why_not_flex(const KernelWriter& w, const AttentionCase& which, const AttentionSizes& s) {
  const bool is_power_of_two = (s.heads & (s.heads - 1)) == 0;
  const bool is_of_transformers = w.context().implementations.rotary != RotaryImplementation::Complex;
  if (which.compute_capability == 0) return "it needs a GPU";
  if (which.compute_capability < 80) return "its kernels are predicted from compute capability 8.0 on";
  if (which.dropout) return "it drops no scores";
  if (s.dim < 16) return "its kernel takes heads of 16 at least";
  if (s.kv_heads != s.heads && !is_power_of_two && is_of_transformers) {
    return "transformers copies K and V to all heads if their number is no power of two, which is not predicted";
  }
  return {};
}

void write_flex(KernelWriter& w, const AttentionCase& which, const AttentionSizes& s) {
  if (const std::string why = why_not_flex(w, which, s); !why.empty()) {
    w.refuse({"/model/packing", fmt::format("FlexAttention cannot run: {}.", why),
              "Write --packed-attention flash_attn, varlen or sdpa."});
  }
  const int q = w.transpose(w.input(0), w.input_shape(0), 1, 2);
  const int k = w.transpose(w.input(1), w.input_shape(1), 1, 2);
  const int v = w.transpose(w.input(2), w.input_shape(2), 1, 2);
  w.set_output(0, flex(w, q, k, v, s));
}

// What ATen's flash refuses, that of a library refuses, too.
std::string why_not_of_library(const KernelWriter& w, AttentionCase which) {
  which.grouped = which.written_out = false;  // It caps scores itself.
  if (std::string why = refusal_of(AttentionBackend::Flash, which); !why.empty()) return why;
  if (which.compute_capability == 0) return "it needs a GPU";
  if (which.head_dim % 8 != 0) return "other widths than multiples of 8 are not predicted";
  if (has_boundaries(w)) return {};
  if (which.head_dim != which.value_dim) return "values of another width than queries are not predicted";
  if (which.mask || w.has_parameter(0)) return "it takes neither masks nor sinks";
  if (w.is_autocast() && w.activation() != w.product_dtype()) return "it is not predicted under autocast alone";
  return {};
}

void write_flash_of_library(KernelWriter& w, const AttentionCase& which, const AttentionSizes& s) {
  const bool is_packed = has_boundaries(w);
  if (const std::string why = why_not_of_library(w, which); !why.empty()) {
    const bool is_torch = w.op().attributes.packed == PackedAttention::Varlen;
    w.refuse({is_packed ? "/model/packing" : "/runtime/implementations/attention",
              fmt::format("{} refuses {}, head_dim {} and compute capability {}.{}: {}.",
                          is_torch ? "varlen_attn" : "flash-attn", name_of(which.dtype), which.head_dim,
                          which.compute_capability / 10, which.compute_capability % 10, why),
              is_packed
                  ? "Write --packed-attention sdpa, or train in 16 bits on a GPU of compute capability 8.0 or later."
                  : "Write --attention automatic, or train in 16 bits on a GPU of compute capability 8.0 or later."});
  }
  const int q = w.transpose(w.input(0), w.input_shape(0), 1, 2);
  const int k = w.transpose(w.input(1), w.input_shape(1), 1, 2);
  const int v = w.transpose(w.input(2), w.input_shape(2), 1, 2);
  w.set_output(0, flash_of_library(w, q, k, v, s));
}

}  // namespace

void write_attention_op(KernelWriter& w) {
  AttentionSizes s = sizes_of(w);
  const bool is_boolean = s.mask >= 0 && w.slot(s.mask).dtype == Dtype::Bool;
  const bool is_window = is_boolean && w.op().attributes.documents.empty();
  if (is_window && has_own_window(w.context().implementations.attention)) s.mask = -1;
  refuse_under_autocast(w, s);
  const bool mask = s.mask >= 0;
  AttentionSizes run = s;
  // Hugging Face requests enable_gqa only without a mask.
  const bool repeats = (w.context().implementations.repeat_kv || mask) && s.kv_heads != s.heads;
  if (repeats) {
    run.kv_heads = s.heads;
    run.repeated = true;
    run.viewed = s.kv_heads == 1;
  }
  const AttentionCase which = case_of(w, run);
  if (is_flex(w)) return write_flex(w, which, s);
  const bool is_of_library = w.context().implementations.attention == AttentionBackend::FlashAttn;
  if (has_boundaries(w) || is_of_library) return write_flash_of_library(w, which, s);
  const AttentionBackend backend = choose_attention(which, w.context().implementations);
  if (std::optional<Error> error = check_attention(which, w.context().implementations)) w.refuse(*std::move(error));
  // [batch, seq, heads, dim] to [batch, heads, seq, dim].
  int q = w.transpose(w.input(0), w.input_shape(0), 1, 2);
  int k = w.transpose(w.input(1), w.input_shape(1), 1, 2);
  int v = w.transpose(w.input(2), w.input_shape(2), 1, 2);
  if (repeats) {
    k = expand_heads(w, k, s);
    v = expand_heads(w, v, s);
  }
  const std::vector<int> repeated = {k, v};
  cast_arguments(w, q, k, v, run.mask);
  if (is_boolean && mask) {
    run.mask = additive(w, run);
    run.mask_is_converted = true;
  }
  w.set_output(0, run_backend(w, backend, q, k, v, run));
  if (repeats) hold(w, repeated);
}

}  // namespace fsdp::simulator
