// The parts of linear attention and of state spaces around their scans, as transformers runs them without other
// packages: a convolution of each channel over the positions before it, decays, a norm with a gate.
//
// A convolution of each channel by itself in bf16 is PyTorch's own kernel, which copies an input that is not
// contiguous, forward and backward; SiLU keeps all of the convolution's output, which is longer than its part of it.
//
// Sources: transformers 5.24 models/qwen3_next and qwen3_5 /modeling_*.py (causal_conv1d_fn, *GatedDeltaNet.forward,
// *RMSNormGated), models/nemotron_h, bamba, granitemoehybrid (MambaRMSNormGated); aten/src/ATen/native/Convolution.cpp
// (use_cudnn_depthwise, _convolution), native/cuda/DepthwiseConv2d.cu, derivatives.yaml (silu, softplus, exp), torch
// 2.11; checked event by event by tests/rehearsal/op_rules_test.py.
//
// Not modeled: activations in fp16, whose convolutions are cuDNN's, and in fp32, whose casts are views.

#include "simulator/ops/op_rules_linear_attention.h"

#include <fmt/format.h>

namespace fsdp::simulator {

void refuse_other_than_bf16(KernelWriter& w) {
  if (w.context().is_cpu()) {
    w.refuse({"", "Linear attention and state spaces on a CPU are not predicted.", "Plan for a GPU."});
  } else if (w.is_autocast()) {
    w.refuse({"/mixed_precision/autocast", "Linear attention and state spaces under autocast are not predicted.",
              "Plan with --precision bf16, or mixed under FSDP2."});
  } else if (w.activation() != Dtype::BFloat16) {
    w.refuse({"/mixed_precision/param_dtype",
              fmt::format("Linear attention and state spaces in {} are not predicted.", name_of(w.activation())),
              "Plan with --precision bf16 or mixed."});
  }
}

int inverse_root(KernelWriter& w, int x) {
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  Kernel& rsqrt = w.add(KernelKind::Elementwise, {{w.shifted(x), GradRule::Fresh}}, {y});
  rsqrt.saved = {{y, 0}};
  rsqrt.backward_temps = {{w.bytes(y)}, {w.bytes(y)}};
  return y;
}

int viewed_matmul(KernelWriter& w, int a, int b, std::int64_t batches, std::int64_t rows, std::int64_t inner,
                  std::int64_t columns) {
  const int y = w.matmul(a, b, batches, rows, inner, columns);
  for (KernelInput& input : w.last_kernel().inputs) input.grad = GradRule::FreshView;
  return y;
}

int wide_in_order(KernelWriter& w, int x) {
  const int y = w.make(w.elements(x), Dtype::Float32);
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  return y;
}

int padded_rows(KernelWriter& w, int x, std::int64_t elements) {
  const int y = w.make(elements, w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  return y;
}

int cumulated(KernelWriter& w, int x) {
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  kernel.backward_temps = {{w.bytes(y), TempLife::Whole}, {w.bytes(y), TempLife::Whole}};
  return y;
}

int filled(KernelWriter& w, int x, int mask) {
  const int y = w.unary(x, false, false);
  w.last_kernel().inputs.push_back({mask, GradRule::None});
  w.last_kernel().saved = {{mask, 0}};
  return y;
}

int square_mask(KernelWriter& w, std::int64_t side) {
  const int mask = w.make(side * side, Dtype::Bool, false);
  Kernel& kernel = w.add(KernelKind::Elementwise, {}, {mask});
  kernel.forward_temps = {side * side};
  kernel.late_outputs = 1;
  return mask;
}

namespace {

void write_causal_conv1d(KernelWriter& w) {
  const Shape& shape = w.input_shape(0);
  const std::int64_t batch = shape[0], seq = shape[1], channels = shape[2];
  const std::int64_t kernel_size = w.parameter_shape(0)[2];
  const int x = w.transpose(w.input(0), shape, 1, 2);
  const int all = w.make(batch * channels * (seq + kernel_size - 1), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}, {w.parameter(0), GradRule::FreshView}}, {all});
  kernel.saved = {{x, -1}, {w.parameter(0), -1}};
  kernel.forward_temps = {w.bytes(x)};
  kernel.late_outputs = 1;
  if (w.has_parameter(1)) {
    // The copy lives until the sum that is the bias's gradient exists.
    kernel.inputs.push_back({w.parameter(1), GradRule::Fresh});
    w.note_sum(kernel, 2, batch * (seq + kernel_size - 1), true, w.bytes(x));
  } else {
    kernel.backward_temps = {{w.bytes(x), TempLife::Late, 1}};
  }
  const int part = kernel_size > 1 ? w.slice(all, w.elements(x)) : all;
  const int y = w.unary(part, true, false);
  w.set_output(0, w.transpose(y, {batch, channels, seq}, 1, 2));
}

// -a.float().exp() * softplus(x.float() + b)
void write_decay_rate(KernelWriter& w) {
  const int rate = w.unary(w.unary(w.cast(w.parameter(0), Dtype::Float32), false, true), false, false);
  const int bias = w.parameter(1);
  const int shifted = w.sum_of(w.cast(w.input(0), Dtype::Float32), bias);
  if (w.slot(bias).dtype != Dtype::Float32) w.last_kernel().inputs[1].sum_bytes = 4 * w.elements(bias);
  w.set_output(0, w.mul(w.unary(shifted, true, false), rate));
}

// Qwen3NextRMSNormGated; MambaRMSNormGated, whose gate comes first.
void write_gated_rms_norm(KernelWriter& w) {
  const OpAttributes& attributes = w.op().attributes;
  const int x = w.input(0), weight = w.parameter(0);
  const Dtype own = w.slot(x).dtype;
  const std::int64_t rows = w.elements(x) / w.input_shape(0).back() * attributes.groups;
  int wide = w.cast(x, Dtype::Float32);
  if (attributes.gate_first) wide = w.mul(wide, w.unary(w.cast(w.input(1), Dtype::Float32), true, false));
  const int squares = w.unary(wide, true, false);
  w.last_kernel().backward_temps = {{w.bytes(wide)}, {w.bytes(wide)}};  // 2 * x.pow(1), as the backward of pow has it.
  const int variance = w.reduce(squares, rows, true);
  const int normalized = w.mul(wide, inverse_root(w, variance), true);
  const int narrow = w.cast(normalized, own);
  const int weighted = w.mul(narrow, weight);
  w.last_kernel().holds = {normalized};
  if (attributes.gate_first) {
    w.last_kernel().holds = {normalized, variance};
    w.set_output(0, weighted);
    return;
  }
  const int gated = w.mul(weighted, w.unary(w.cast(w.input(1), Dtype::Float32), true, false));
  w.note_cast_gradients(w.last_kernel());
  w.set_output(0, w.cast(gated, own));
  w.last_kernel().holds = {variance};
}

}  // namespace

void write_linear_attention_op(KernelWriter& w) {
  refuse_other_than_bf16(w);
  switch (w.op().kind) {
    case OpKind::CausalConv1d:
      return write_causal_conv1d(w);
    case OpKind::DecayRate:
      return write_decay_rate(w);
    case OpKind::GatedDeltaRule:
      return write_gated_delta_rule(w);
    case OpKind::StateSpace:
      return write_state_space(w);
    default:
      return write_gated_rms_norm(w);
  }
}

}  // namespace fsdp::simulator
