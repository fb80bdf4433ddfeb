// Rotary embeddings and attention.
//
// Sources: transformers models/llama/modeling_llama.py (apply_rotary_pos_emb, LlamaRotaryEmbedding,
// eager_attention_forward) and integrations/sdpa_attention.py; torchtitan models/llama3 (apply_rotary_emb).

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <optional>

#include "executor/kernels/constants.h"
#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

namespace {

// ---- Rotary embeddings: q and k are [batch, seq, heads, dim]; the tables [batch or 1, seq, dim].

// The model's buffer of frequencies; computed if there is none.
at::Tensor inverse_frequencies(const OpRun& run) {
  const auto buffer = run.context.buffers.find(run.module_name() + ".inv_freq");
  if (buffer != run.context.buffers.end()) return buffer->second;
  return rotary_frequencies(run.attributes()).to(run.context.device);
}

at::Tensor rotate_half(const at::Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, x.size(-1) - half);
  const at::Tensor turned = -second;
  return at::cat({turned, first}, -1);
}

at::Tensor rotate_pairs(const at::Tensor& x) {
  return at::stack({-x.slice(-1, 1, std::nullopt, 2), x.slice(-1, 0, std::nullopt, 2)}, -1).flatten(-2);
}

// In Python's order of evaluation, which C++ leaves open.
at::Tensor turned(const OpRun& run, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const bool pairs = run.attributes().interleaved;
  const at::Tensor straight = (pairs ? x.to(cos.scalar_type()) : x) * cos;
  at::Tensor crossed = pairs ? rotate_pairs(x).to(sin.scalar_type()) : rotate_half(x);
  crossed = crossed * sin;
  return straight + crossed;
}

at::Tensor turned_by_halves(const OpRun& run, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = x.size(-1) / 2;
  const bool pairs = run.attributes().interleaved;
  const at::Tensor a = pairs ? x.slice(-1, 0, std::nullopt, 2) : x.narrow(-1, 0, half);
  const at::Tensor b = pairs ? x.slice(-1, 1, std::nullopt, 2) : x.narrow(-1, half, half);
  const at::Tensor c = cos.narrow(-1, 0, half);
  const at::Tensor s = sin.narrow(-1, 0, half);
  const at::Tensor a_cos = a * c;
  const at::Tensor first = a_cos - b * s;
  const at::Tensor b_cos = b * c;
  const at::Tensor second = b_cos + a * s;
  return at::cat({first, second}, -1);
}

at::Tensor turned_part(const OpRun& run, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t width = cos.size(-1);
  if (run.attributes().by_halves) return turned_by_halves(run, x, cos, sin);
  if (!run.attributes().partial_rotary) return turned(run, x, cos, sin);
  const at::Tensor part = x.narrow(-1, 0, width);
  const at::Tensor kept = x.narrow(-1, width, x.size(-1) - width);
  return at::cat({turned(run, part, cos, sin), kept}, -1);
}

at::Tensor turned_as_complex(const at::Tensor& x, const at::Tensor& table) {
  std::vector<std::int64_t> pairs = x.sizes().vec();
  pairs.back() /= 2;
  pairs.push_back(2);
  const at::Tensor wide = at::view_as_complex(x.to(c10::kFloat).reshape(pairs));
  return at::view_as_real(wide * table).flatten(3).to(x.scalar_type());
}

// ---- Attention: the input is [batch, seq, heads, dim] and the output [batch, seq, heads * dim].

// [batch, kv_heads, seq, dim] copied to all query heads.
at::Tensor repeat(const at::Tensor& x, std::int64_t copies) {
  if (copies == 1) return x;
  const std::int64_t batch = x.size(0), heads = x.size(1), seq = x.size(2), dim = x.size(3);
  return x.unsqueeze(2).expand({batch, heads, copies, seq, dim}).reshape({batch, heads * copies, seq, dim});
}

// [queries, keys] The lowest number at positions that a query may not see.
at::Tensor causal_mask(const OpRun& run, std::int64_t queries, std::int64_t keys, const at::Tensor& like) {
  const double hidden = lowest_number(like.scalar_type());
  at::Tensor mask = at::full({queries, keys}, hidden, like.options().requires_grad(std::nullopt)).triu_(1);
  const std::int64_t window = run.attributes().window;
  if (window > 0 && window < keys) mask.add_(at::full_like(mask, hidden).tril_(-window));
  return mask;
}

double score_scale(const OpRun& run, const at::Tensor& q) {
  const double given = run.attributes().score_scale;
  return given > 0 ? given : std::pow(static_cast<double>(q.size(-1)), -0.5);
}

// transformers 5.24 models/gpt_oss/modeling_gpt_oss.py, eager_attention_forward.
at::Tensor softmax_with_sinks(const at::Tensor& scores, const at::Tensor& sinks) {
  const at::Tensor wide = sinks.reshape({1, -1, 1, 1}).expand({scores.size(0), -1, scores.size(-2), -1});
  at::Tensor combined = at::cat({scores, wide}, -1);
  combined = combined - std::get<0>(combined.max(-1, /*keepdim=*/true));
  return at::softmax(combined, -1, combined.scalar_type()).narrow(-1, 0, scores.size(-1));
}

at::Tensor eager(const OpRun& run, const at::Tensor& q, at::Tensor k, at::Tensor v,
                 const std::optional<at::Tensor>& mask) {
  const std::int64_t copies = q.size(1) / k.size(1);
  k = repeat(k, copies);
  v = repeat(v, copies);
  at::Tensor weights = at::matmul(q, k.transpose(2, 3)) * score_scale(run, q);
  if (const double cap = run.attributes().softcap; cap > 0) {
    weights = weights / cap;
    weights = at::tanh(weights);
    weights = weights * cap;
  }
  if (mask) {
    weights = weights + *mask;
  } else if (run.attributes().causal) {
    weights = weights + causal_mask(run, q.size(2), k.size(2), weights);
  }
  if (run.parameters.empty()) {
    weights = at::softmax(weights, -1, c10::kFloat).to(q.scalar_type());
  } else {
    weights = softmax_with_sinks(weights, run.parameters[0]);
  }
  if (run.attributes().probability > 0) weights = at::dropout(weights, run.attributes().probability, true);
  return at::matmul(weights, v).transpose(1, 2).contiguous();
}

}  // namespace

Tensors rotary_table(const OpRun& run) {
  const c10::AutoGradMode no_gradient(false);
  const at::Tensor& positions = run.inputs[0];
  std::vector<std::int64_t> sizes = positions.sizes().vec();
  sizes.back() = -1;
  sizes.push_back(1);
  const double factor = run.attributes().rotary.attention_factor;
  if (run.attributes().by_halves) {
    const at::Tensor angles = positions.unsqueeze(-1).to(c10::kFloat) * inverse_frequencies(run).to(c10::kFloat);
    const at::Tensor cos = angles.cos() * factor;
    const at::Tensor sin = angles.sin() * factor;
    return {cos.to(run.context.activation), sin.to(run.context.activation)};
  }
  at::Tensor angles;
  if (run.attributes().written_out) {
    angles = positions.unsqueeze(-1).to(c10::kFloat) * inverse_frequencies(run).to(c10::kFloat);
  } else {
    const at::Tensor frequencies = inverse_frequencies(run).unsqueeze(-1).to(c10::kFloat).expand(sizes);
    const at::Tensor rows = positions.unsqueeze(-2).to(c10::kFloat);
    angles = at::matmul(frequencies, rows).transpose(-2, -1);
  }
  if (run.context.implementations.rotary == RotaryImplementation::Complex || run.attributes().as_complex) {
    // One table of complex numbers has the bytes of cos and sin; torchtitan makes it once, before training.
    at::Tensor table = at::polar(at::ones_like(angles), angles);
    if (factor != 1) table = table * factor;
    return {table, table};
  }
  const at::Tensor both =
      run.attributes().interleaved ? at::repeat_interleave(angles, 2, -1) : at::cat({angles, angles}, -1);
  const at::Tensor cos = both.cos() * factor;
  const at::Tensor sin = both.sin() * factor;
  if (run.attributes().wide) return {cos, sin};
  return {cos.to(run.context.activation), sin.to(run.context.activation)};
}

Tensors rotary(const OpRun& run) {
  const at::Tensor& cos = run.inputs[2];
  const at::Tensor& sin = run.inputs[3];
  if (cos.is_complex()) {
    const at::Tensor table = cos.unsqueeze(2);
    return {turned_as_complex(run.inputs[0], table), turned_as_complex(run.inputs[1], table)};
  }
  // Whether heads come first determines the memory order of gradients.
  const std::int64_t heads = run.context.implementations.rotary == RotaryImplementation::Halves ? 1 : 2;
  const at::Tensor q = run.inputs[0].transpose(heads, 2);
  const at::Tensor k = run.inputs[1].transpose(heads, 2);
  at::Tensor c = cos.unsqueeze(heads);
  at::Tensor s = sin.unsqueeze(heads);
  if (run.attributes().wide) {
    c = c.to(c10::kFloat);
    s = s.to(c10::kFloat);
    const at::Tensor turned_q = turned_part(run, q.to(c10::kFloat), c, s);
    const at::Tensor turned_k = turned_part(run, k.to(c10::kFloat), c, s);
    return {turned_q.to(q.scalar_type()).transpose(heads, 2), turned_k.to(k.scalar_type()).transpose(heads, 2)};
  }
  if (run.attributes().interleaved && !run.attributes().by_halves) {
    c = c.narrow(-1, 0, c.size(-1) / 2).repeat_interleave(2, -1);
    s = s.narrow(-1, 0, s.size(-1) / 2).repeat_interleave(2, -1);
  }
  const at::Tensor turned_q = turned_part(run, q, c, s);
  const at::Tensor turned_k = turned_part(run, k, c, s);
  return {turned_q.to(q.scalar_type()).transpose(heads, 2), turned_k.to(k.scalar_type()).transpose(heads, 2)};
}

// No kernel here has an argument for a window: it is a mask.
Tensors attention(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  const Implementations& use = run.context.implementations;
  const at::Tensor q = run.inputs[0].transpose(1, 2);
  at::Tensor k = run.inputs[1].transpose(1, 2);
  at::Tensor v = run.inputs[2].transpose(1, 2);
  std::optional<at::Tensor> mask;
  if (run.inputs.size() > 3) mask = run.inputs[3];
  if (mask && mask->scalar_type() == c10::kBool && use.attention == AttentionBackend::Eager) mask.reset();
  const std::int64_t copies = q.size(1) / k.size(1);
  // enable_gqa is used only without a mask.
  if (copies > 1 && (use.repeat_kv || mask)) {
    k = repeat(k, copies);
    v = repeat(v, copies);
  }
  if (use.attention == AttentionBackend::Eager || a.softcap > 0 || !run.parameters.empty()) {
    return {eager(run, q, k, v, mask).reshape(run.output_shape())};
  }
  if (a.causal && !mask && a.window > 0 && a.window < k.size(2)) mask = causal_mask(run, q.size(2), k.size(2), q);
  const std::optional<double> scale = a.score_scale > 0 ? std::optional(a.score_scale) : std::nullopt;
  const at::Tensor y = at::scaled_dot_product_attention(q, k, v, mask, a.probability, a.causal && !mask, scale,
                                                        /*enable_gqa=*/q.size(1) != k.size(1));
  return {y.transpose(1, 2).contiguous().reshape(run.output_shape())};
}

Tensors kv_cache(const OpRun& run) {
  if (!run.context.implementations.use_cache) return run.inputs;
  Tensors result;
  for (const at::Tensor& x : run.inputs) {
    const at::Tensor empty = at::empty({0}, x.options().requires_grad(std::nullopt));
    result.push_back(at::cat({empty, x.transpose(1, 2)}, -2).transpose(1, 2));
  }
  return result;
}

}  // namespace fsdp::executor::kernels
