// Linear layers, embeddings, convolutions, pooling, parameters that are read directly, normalization, experts and
// losses.
//
// A mixture of experts sends each token to the experts that the router picks. A prediction assumes an even
// distribution, so the memory of a run with experts depends on its data.
//
// Sources: transformers 4.57 models/llama and gemma2 /modeling_*.py (the order of the calls),
// models/mixtral/modeling_mixtral.py (MixtralSparseMoeBlock), loss/loss_utils.py (ForCausalLMLoss);
// aten/src/ATen/native/layer_norm.cpp (rms_norm_composite of PyTorch before 2.9).

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "executor/kernels/kernel_families.h"

namespace fsdp::executor::kernels {

namespace {

std::optional<at::Tensor> parameter_at(const OpRun& run, std::size_t index) {
  if (run.parameters.size() <= index) return std::nullopt;
  return run.parameters[index];
}

constexpr std::int64_t kIgnoredLabel = -100;

}  // namespace

Tensors linear(const OpRun& run) {
  const at::Tensor& weight = run.parameters[0];
  const auto bias = parameter_at(run, 1);
  if (!run.attributes().transposed_weight) return {at::linear(run.inputs[0], weight, bias)};
  // Conv1D of transformers (pytorch_utils.py): the weight lies [in, out].
  const at::Tensor x = run.inputs[0].view({-1, run.inputs[0].size(-1)});
  const at::Tensor y = bias ? at::addmm(*bias, x, weight) : at::mm(x, weight);
  return {y.view(run.output_shape())};
}

Tensors embedding(const OpRun& run) {
  return {at::embedding(run.parameters[0], run.inputs[0], run.attributes().padding_idx)};
}

Tensors conv1d(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {
      at::conv1d(run.inputs[0], run.parameters[0], parameter_at(run, 1), a.stride, a.padding, a.dilation, a.groups)};
}

Tensors conv2d(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {
      at::conv2d(run.inputs[0], run.parameters[0], parameter_at(run, 1), a.stride, a.padding, a.dilation, a.groups)};
}

Tensors parameter(const OpRun& run) {
  return {run.parameters[0]};
}

Tensors max_pool2d(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {at::max_pool2d(run.inputs[0], a.kernel, a.stride, a.padding, a.dilation)};
}

Tensors adaptive_avg_pool2d(const OpRun& run) {
  const std::int64_t length = run.attributes().length;
  return {at::adaptive_avg_pool2d(run.inputs[0], {length, length})};
}

Tensors rms_norm(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const auto weight = parameter_at(run, 0);
  const RmsNormImplementation which = run.context.implementations.rms_norm;
  const bool unit_offset = run.attributes().unit_offset;
  const double eps = run.attributes().eps;
  const bool wide_weight = run.attributes().wide_weight;
  if (which == RmsNormImplementation::Fused && !unit_offset && !wide_weight) {
    return {at::rms_norm(x, {x.size(-1)}, weight, eps)};
  }
  at::Tensor wide = x.to(c10::kFloat);
  // Separate statements: a temporary in C++ would live to the end of the whole expression.
  at::Tensor variance = wide.pow(2);
  variance = variance.mean(-1, /*keepdim=*/true);
  variance = variance + eps;
  variance = at::rsqrt(variance);
  const at::Tensor y = wide * variance;
  variance.reset();
  wide.reset();
  if (!weight) return {y.to(x.scalar_type())};
  if (unit_offset) return {(y * (1.0 + weight->to(c10::kFloat))).to(x.scalar_type())};
  if (wide_weight) return {(*weight * y).to(x.scalar_type())};
  if (which == RmsNormImplementation::WrittenOut) return {*weight * y.to(x.scalar_type())};
  return {(y * *weight).to(x.scalar_type())};
}

// transformers 5.24 models/cohere/modeling_cohere.py, CohereLayerNorm.
at::Tensor layer_norm_in_fp32(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(c10::kFloat);
  const at::Tensor mean = wide.mean(-1, /*keepdim=*/true);
  const at::Tensor variance = (wide - mean).pow(2).mean(-1, /*keepdim=*/true);
  const at::Tensor centered = wide - mean;
  const at::Tensor normalized = centered * at::rsqrt(variance + eps);
  return (weight.to(c10::kFloat) * normalized).to(x.scalar_type());
}

Tensors layer_norm(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const OpAttributes& a = run.attributes();
  if (a.wide_weight) return {layer_norm_in_fp32(x, run.parameters[0], a.eps)};
  // transformers 5.24 models/nemotron/modeling_nemotron.py, NemotronLayerNorm1P.
  if (a.unit_offset) return {at::layer_norm(x, {x.size(-1)}, run.parameters[0] + 1.0, parameter_at(run, 1), a.eps)};
  return {at::layer_norm(x, {x.size(-1)}, parameter_at(run, 0), parameter_at(run, 1), a.eps)};
}

Tensors group_norm(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  return {at::group_norm(run.inputs[0], a.groups, parameter_at(run, 0), parameter_at(run, 1), a.eps)};
}

Tensors batch_norm(const OpRun& run) {
  const auto buffer = [&](const char* name) { return run.context.buffers.at(run.module_name() + "." + name); };
  buffer("num_batches_tracked").add_(1);
  return {at::batch_norm(run.inputs[0], parameter_at(run, 0), parameter_at(run, 1), buffer("running_mean"),
                         buffer("running_var"), /*training=*/true, run.attributes().momentum, run.attributes().eps,
                         /*cudnn_enabled=*/false)};
}

// transformers 5.24 models/glm4_moe/modeling_glm4_moe.py, Glm4MoeTopkRouter.
Tensors sigmoid_router(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  const std::int64_t experts = run.parameters[0].size(0);
  const at::Tensor scores = at::linear(run.inputs[0].to(c10::kFloat), run.parameters[0].to(c10::kFloat)).sigmoid();
  at::Tensor corrected = scores.detach();
  const auto correction = run.context.buffers.find(run.module_name() + ".e_score_correction_bias");
  if (correction != run.context.buffers.end()) corrected = corrected + correction->second;
  const at::Tensor by_group = corrected.view({-1, a.groups, experts / a.groups});
  const at::Tensor best = std::get<0>(by_group.topk(2, -1)).sum(-1);
  const at::Tensor mask = at::zeros_like(best).scatter_(1, std::get<1>(best.topk(a.topk_groups, -1)), 1);
  const at::Tensor hidden = mask.unsqueeze(-1).expand({-1, a.groups, experts / a.groups}).reshape({-1, experts}).eq(0);
  corrected = corrected.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor chosen = std::get<1>(corrected.topk(a.experts_per_token, -1));
  at::Tensor weights = scores.gather(1, chosen);
  if (a.norm_topk_prob) weights = weights / (weights.sum(-1, /*keepdim=*/true) + 1e-20);
  return {weights * a.scale, chosen};
}

// transformers 5.24 models/minimax_m2/modeling_minimax_m2.py, MiniMaxM2TopKRouter.
Tensors narrow_sigmoid_router(const OpRun& run) {
  const at::Tensor scores = run.inputs[0].to(c10::kFloat).sigmoid();
  at::Tensor corrected = scores.detach();
  const auto correction = run.context.buffers.find(run.module_name() + ".e_score_correction_bias");
  if (correction != run.context.buffers.end()) corrected = corrected + correction->second;
  const at::Tensor chosen = std::get<1>(corrected.topk(run.attributes().experts_per_token, -1));
  const at::Tensor weights = scores.gather(1, chosen);
  return {weights / weights.sum(-1, /*keepdim=*/true), chosen};
}

// transformers 5.24 models/deepseek_v2/modeling_deepseek_v2.py, DeepseekV2TopkRouter.
Tensors wide_softmax_router(const OpRun& run) {
  const OpAttributes& a = run.attributes();
  const std::int64_t experts = run.parameters[0].size(0);
  at::Tensor scores = at::softmax(at::linear(run.inputs[0].to(c10::kFloat), run.parameters[0].to(c10::kFloat)), -1);
  if (a.groups > 0) {
    const at::Tensor best = std::get<0>(scores.detach().view({-1, a.groups, experts / a.groups}).max(-1));
    const at::Tensor mask = at::zeros_like(best).scatter_(1, std::get<1>(best.topk(a.topk_groups, -1)), 1);
    const at::Tensor kept = mask.unsqueeze(-1).expand({-1, a.groups, experts / a.groups}).reshape({-1, experts});
    scores = scores.masked_fill(kept.eq(0), 0);
  }
  const auto [weights, chosen] = scores.topk(a.experts_per_token, -1);
  return {weights * a.scale, chosen};
}

Tensors router(const OpRun& run) {
  if (run.attributes().sigmoid) return run.parameters.empty() ? narrow_sigmoid_router(run) : sigmoid_router(run);
  if (!run.parameters.empty()) return wide_softmax_router(run);
  if (run.attributes().top_first) {
    const auto [best, indices] = at::topk(run.inputs[0], run.attributes().experts_per_token, -1);
    return {at::softmax(best, 1, best.scalar_type()), indices};
  }
  auto [weights, chosen] = at::topk(at::softmax(run.inputs[0], 1, c10::kFloat), run.attributes().experts_per_token, -1);
  if (run.attributes().norm_topk_prob) weights = weights / weights.sum(-1, /*keepdim=*/true);
  return {run.attributes().wide ? weights : weights.to(run.inputs[0].scalar_type()), chosen};
}

Tensors experts(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const at::Tensor& weights = run.inputs[1];
  const std::int64_t num_experts = run.attributes().num_experts;
  at::Tensor result = at::zeros_like(x, at::TensorOptions().requires_grad(false));
  const at::Tensor mask = at::one_hot(run.inputs[2], num_experts).permute({2, 1, 0});
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const auto parameter = [&](std::int64_t which) { return run.parameters[3 * e + which]; };
    const Tensors hits = at::where(mask.select(0, e));
    const at::Tensor& slots = hits[0];
    const at::Tensor& rows = hits[1];
    at::Tensor current = at::index(x, {rows});
    // In Python's order of evaluation, which C++ leaves open.
    const at::Tensor gate = at::silu(at::linear(current, parameter(0)));
    const at::Tensor up = at::linear(current, parameter(1));
    current = at::linear(gate * up, parameter(2));
    current = current * at::index(weights, {rows, slots}).unsqueeze(-1);
    result = at::index_add(result, 0, rows, current.to(x.scalar_type()));
  }
  return {result};
}

namespace {

// transformers 5.24 models/gpt_oss/modeling_gpt_oss.py, GptOssExperts.
at::Tensor clamped_expert(const OpRun& run, const at::Tensor& x, std::int64_t expert) {
  const OpAttributes& a = run.attributes();
  const auto parameter = [&](std::size_t which) { return run.parameters[which].select(0, expert); };
  const at::Tensor both = at::matmul(x, parameter(1)) + parameter(0);
  const at::Tensor gate = both.slice(-1, 0, std::nullopt, 2).clamp_max(a.limit);
  const at::Tensor up = both.slice(-1, 1, std::nullopt, 2).clamp(-a.limit, a.limit);
  const at::Tensor glu = gate * at::sigmoid(gate * a.scale);
  return at::matmul((up + 1) * glu, parameter(3)) + parameter(2);
}

}  // namespace

// transformers 5.24 integrations/moe.py, with a product for each expert: the same numbers without a grouped product.
Tensors grouped_experts(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const at::Tensor& chosen = run.inputs[2];
  const std::int64_t num_experts = run.attributes().num_experts;
  at::Tensor result = at::zeros_like(x, at::TensorOptions().requires_grad(false));
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const Tensors hits = at::where(chosen.eq(e));
    const at::Tensor& rows = hits[0];
    const at::Tensor& slots = hits[1];
    at::Tensor current = at::index(x, {rows});
    if (run.attributes().limit > 0) {
      current = clamped_expert(run, current, e);
    } else {
      const Tensors parts = at::linear(current, run.parameters[0].select(0, e)).chunk(2, -1);
      current = at::linear(at::silu(parts[0]) * parts[1], run.parameters[1].select(0, e));
    }
    current = current * at::index(run.inputs[1], {rows, slots}).unsqueeze(-1);
    result = at::index_add(result, 0, rows, current.to(x.scalar_type()));
  }
  return {result};
}

// transformers 5.24 models/llama4/modeling_llama4.py, Llama4TextMoe.
Tensors dense_experts(const OpRun& run) {
  const at::Tensor& x = run.inputs[0];
  const at::Tensor& scores = run.inputs[1];
  const std::int64_t experts = run.attributes().num_experts;
  const auto [best, indices] = at::topk(scores, run.attributes().experts_per_token, 1);
  const at::Tensor lowest =
      at::full_like(scores, -std::numeric_limits<double>::infinity(), at::TensorOptions().requires_grad(false));
  const at::Tensor scattered = at::scatter(lowest, 1, indices, best);
  const at::Tensor factors = at::sigmoid(scattered.to(c10::kFloat)).to(scores.scalar_type());
  const at::Tensor rows = x.repeat({experts, 1}) * factors.transpose(0, 1).reshape({-1, 1});
  const Tensors parts = at::bmm(rows.view({experts, -1, x.size(1)}), run.parameters[0]).chunk(2, -1);
  const at::Tensor results = at::bmm(parts[1] * at::silu(parts[0]), run.parameters[1]);
  return {results.view({-1, x.size(1)}), rows, factors};
}

namespace {

Tensors cross_entropy_of(const OpRun& run, at::Tensor logits) {
  at::Tensor labels = run.inputs[1];
  if (run.context.implementations.upcast_logits) logits = logits.to(c10::kFloat);
  if (run.attributes().shift) {
    labels = at::constant_pad_nd(labels, {0, 1}, kIgnoredLabel).narrow(-1, 1, labels.size(-1)).contiguous();
  }
  return {at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), labels.view(-1), {}, at::Reduction::Mean,
                                 kIgnoredLabel)};
}

}  // namespace

Tensors cross_entropy(const OpRun& run) {
  return cross_entropy_of(run, run.inputs[0]);
}

Tensors linear_cross_entropy(const OpRun& run) {
  at::Tensor logits = at::linear(run.inputs[0], run.parameters[0], parameter_at(run, 1));
  if (const double cap = run.attributes().softcap; cap > 0) logits = at::tanh(logits / cap) * cap;
  return cross_entropy_of(run, std::move(logits));
}

Tensors mse_loss(const OpRun& run) {
  return {at::mse_loss(run.inputs[0], run.inputs[1])};
}

}  // namespace fsdp::executor::kernels
