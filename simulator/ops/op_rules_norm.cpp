// Normalization.
//
// RMSNorm, y = x / sqrt(mean(x^2) + eps) * w, has three implementations that keep different bytes for backward (N rows
// of H, 16-bit activations): written out as in Hugging Face 6 N H + 4 N beside the output, as a composite 8 N H + 4 N,
// fused 2 N H + 4 N, of which 2 N H are its own input. CPUs have no fused kernel and run the composite.
//
// Sources: transformers modeling_llama.py and modeling_gemma2.py (the order of the calls), torch/nn/modules/
// normalization.py, aten/src/ATen/native/layer_norm.cpp (rms_norm_composite, _fused_rms_norm), native/cuda/
// layer_norm_kernel.cu, derivatives.yaml (native_layer_norm, native_group_norm, native_batch_norm, pow, rsqrt).
//
// Not modeled: cuDNN batch norm's reserve.

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// x.pow(2): its backward computes x.pow(1) and twice that before the product.
int square(KernelWriter& w, int x) {
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  kernel.saved = {{x, 0}};
  kernel.backward_temps = {{w.bytes(x)}, {w.bytes(x)}};
  return y;
}

// x * rsqrt(mean(x^2) + eps), in fp32. `in_one`: one expression, which frees nothing before the root exists.
int normalize(KernelWriter& w, int x, std::int64_t rows, bool in_one) {
  const int squares = square(w, x);
  const int mean = w.reduce(squares, rows, true);
  const int shifted = in_one ? w.alias(mean) : w.make(rows, w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{mean, GradRule::Alias}}, {shifted});
  const int inverse = w.make(rows, w.slot(x).dtype);
  Kernel& rsqrt = w.add(KernelKind::Elementwise, {{shifted, GradRule::Fresh}}, {inverse});
  rsqrt.saved = {{inverse, 0}};
  rsqrt.backward_temps = {{w.bytes(inverse)}, {w.bytes(inverse)}};
  if (in_one) rsqrt.holds = {squares};
  return w.mul(x, inverse, true);
}

// With very many short rows, the gradients of weight and bias are summed in two steps.
void add_partial_sums(const KernelWriter& w, Kernel& kernel, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kTall = 65536;
  constexpr std::int64_t kWarp = 32;
  const std::int64_t warps = (width + kWarp - 1) / kWarp;
  if (w.context().is_cpu() || rows <= kTall || warps >= w.context().num_sms / 2) return;
  const std::int64_t parts = std::min((rows + kWarp - 1) / kWarp, 32768 / warps);
  const std::int64_t size = size_of(w.is_autocast() ? w.slot(kernel.inputs.back().slot).dtype : w.activation()).count();
  const int num_inputs = static_cast<int>(kernel.inputs.size());
  for (int p = 1; p < num_inputs; ++p) {
    kernel.backward_temps.push_back({size * parts * width, TempLife::Late, p});
  }
  for (int p = 1; p < num_inputs; ++p) {
    // The sum replaces the earlier gradient.
    kernel.backward_temps.push_back({size * width, TempLife::Next, p});
    w.note_scratch(kernel, p, parts, false);
  }
}

// torch.rms_norm is in none of autocast's lists: with two dtypes it runs other kernels.
void require_one_dtype(KernelWriter& w, int x, int weight) {
  if (!w.is_autocast() || w.slot(x).dtype == w.slot(weight).dtype) return;
  w.refuse({"/runtime/implementations/rms_norm",
            "Under autocast the fused RMSNorm would read a tensor and a weight of two dtypes, which is not predicted.",
            "Write \"written_out\"."});
}

// nemo-automodel 0.7.0, components/models/common/utils.py (Float32RMSNorm): rms_norm(x.float(), weight.float()) in one
// op for autograd, which saves x and weight. torch.compile makes the backward: the inverse root of each row, and sums
// of 128 rows each for the weight's gradient.
void write_rms_norm_in_one_op(KernelWriter& w, std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kRowsOfSum = 128;
  const int x = w.input(0);
  const int weight = w.parameter(0);
  const auto made = [&](std::initializer_list<int> from, std::int64_t elements) {
    const int y = w.make(elements, Dtype::Float32, false);
    std::vector<KernelInput> inputs;
    for (const int slot : from) inputs.push_back({slot, GradRule::None});
    w.add(KernelKind::Elementwise, std::move(inputs), {y});
    return y;
  };
  const int wide = made({x}, w.elements(x));
  const int wide_weight = made({weight}, width);
  const int normalized = w.make(w.elements(x), Dtype::Float32, false);
  const int inverse = w.make(rows, Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {{wide, GradRule::None}, {wide_weight, GradRule::None}}, {normalized, inverse});
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise,
                         {{x, GradRule::Fresh}, {weight, GradRule::Fresh}, {normalized, GradRule::None}}, {y});
  kernel.saved = {{x, -1}, {weight, -1}};
  kernel.backward_temps = {{4 * rows, TempLife::Whole},
                           {4 * width * ((rows + kRowsOfSum - 1) / kRowsOfSum), TempLife::Late, 1}};
  w.set_output(0, y);
}

void write_rms_norm(KernelWriter& w) {
  const int x = w.input(0);
  const std::int64_t width = w.input_shape(0).back();
  const std::int64_t rows = w.elements(x) / width;
  if (w.op().attributes.one_op) return write_rms_norm_in_one_op(w, rows, width);
  const Dtype own = w.slot(x).dtype;
  const bool is_own = w.op().attributes.unit_offset || w.op().attributes.wide_weight;
  const bool fused = w.context().implementations.rms_norm == RmsNormImplementation::Fused && !is_own;
  if (fused && w.has_parameter(0)) require_one_dtype(w, x, w.parameter(0));
  if (fused && !w.context().is_cpu()) {
    const int y = w.make(w.elements(x), own);
    const int inverse = w.make(rows, Dtype::Float32, false);
    Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y, inverse});
    kernel.saved = {{x, -1}, {inverse, -1}};
    kernel.order = {GradientOrder::Kind::CopiedLate, {}, w.output_shape(0)};
    if (w.has_parameter(0)) kernel.inputs.push_back({w.parameter(0), GradRule::Fresh});
    if (w.has_parameter(0)) kernel.saved.insert(kernel.saved.begin() + 1, {w.parameter(0), -1});
    add_partial_sums(w, kernel, rows, width);
    w.set_output(0, y);
    return;
  }
  const int normalized = normalize(w, w.cast(x, Dtype::Float32), rows, fused);
  if (!w.has_parameter(0)) {
    w.set_output(0, w.cast(normalized, own));
  } else if (w.op().attributes.unit_offset) {
    // Gemma: normalized * (1 + weight.float()), cast last.
    const int weight = w.cast(w.parameter(0), Dtype::Float32);
    const int offset = w.make(w.elements(weight), Dtype::Float32);
    w.add(KernelKind::Elementwise, {{weight, GradRule::Alias}}, {offset});
    w.set_output(0, w.cast(w.mul(normalized, offset), own));
  } else if (w.op().attributes.wide_weight) {
    w.set_output(0, w.cast(w.mul(normalized, w.parameter(0)), own));
    w.last_kernel().holds = {normalized};  // A local variable.
  } else if (w.context().implementations.rms_norm == RmsNormImplementation::WrittenOut) {
    w.set_output(0, w.mul(w.cast(normalized, own), w.parameter(0)));
    if (!w.op().attributes.brief) w.last_kernel().holds = {normalized};  // A local variable.
  } else {
    const int product = w.mul(normalized, w.parameter(0));
    w.set_output(0, w.cast(product, own));
    if (fused) w.last_kernel().holds = {normalized, product};
  }
}

// Bytes of a contiguous copy of x; 0 if x is contiguous.
std::int64_t copy_in_order(const KernelWriter& w, int x) {
  return w.slot(x).strides.empty() ? 0 : w.bytes(x);
}

// What a fused norm reads.
struct NormOperands {
  int x = -1;
  std::vector<int> parameters;  // Weight and bias, or fewer.
};

NormOperands norm_operands(const KernelWriter& w) {
  NormOperands all{.x = w.input(0), .parameters = {}};
  for (int p = 0; w.has_parameter(p); ++p) all.parameters.push_back(w.parameter(p));
  return all;
}

// The operands of a norm that autocast runs in fp32.
NormOperands wide_norm_operands(KernelWriter& w) {
  NormOperands all = norm_operands(w);
  for (std::size_t p = all.parameters.size(); p-- > 0;) all.parameters[p] = w.widened(all.parameters[p]);
  all.x = w.widened(all.x);
  return all;
}

// One fused kernel with a mean and an inverse deviation per row or channel.
Kernel& write_fused_norm(KernelWriter& w, const NormOperands& operands, std::int64_t statistics, Dtype dtype) {
  const int x = operands.x;
  const int y = w.make(w.elements(x), w.slot(x).dtype);
  const int mean = w.make(statistics, dtype, false);
  const int inverse = w.make(statistics, dtype, false);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y, mean, inverse});
  kernel.saved = {{x, -1}, {mean, -1}, {inverse, -1}};
  for (const int parameter : operands.parameters) kernel.inputs.push_back({parameter, GradRule::Fresh});
  if (!operands.parameters.empty()) kernel.saved.insert(kernel.saved.begin() + 1, {operands.parameters[0], -1});
  w.set_output(0, y);
  return kernel;
}

// modeling_cohere.py: (x - mean) * rsqrt(mean((x - mean)^2) + eps) * weight in fp32, cast last.
void write_wide_layer_norm(KernelWriter& w, std::int64_t rows) {
  const int x = w.cast(w.input(0), Dtype::Float32);
  const int mean = w.reduce(x, rows, true);
  const int variance = w.reduce(square(w, w.minus(x, mean, true)), rows, true);
  const int centered = w.minus(x, mean, true);
  const int shifted = w.make(rows, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{variance, GradRule::Alias}}, {shifted});
  const int inverse = w.make(rows, Dtype::Float32);
  Kernel& rsqrt = w.add(KernelKind::Elementwise, {{shifted, GradRule::Fresh}}, {inverse});
  rsqrt.saved = {{inverse, 0}};
  rsqrt.backward_temps = {{w.bytes(inverse)}, {w.bytes(inverse)}};
  const int normalized = w.mul(centered, inverse, true);
  w.last_kernel().holds = {x};
  const int product = w.mul(normalized, w.cast(w.parameter(0), Dtype::Float32));
  w.set_output(0, w.cast(product, w.slot(w.input(0)).dtype));
  w.last_kernel().holds = {mean, variance};
}

void write_layer_norm(KernelWriter& w) {
  const std::int64_t width = w.input_shape(0).back();
  const std::int64_t rows = w.elements(w.input(0)) / width;
  const OpAttributes& attributes = w.op().attributes;
  if ((attributes.unit_offset || attributes.wide_weight) && w.is_autocast()) {
    w.refuse({"/mixed_precision/autocast", "LayerNorm of a model's own under autocast is not predicted.",
              "Plan with the precision of the parameters: --precision bf16 or fp32."});
  }
  if (attributes.wide_weight) return write_wide_layer_norm(w, rows);
  const NormOperands operands = wide_norm_operands(w);
  const int weight = operands.parameters.empty() ? -1 : operands.parameters[0];
  // weight + 1, through which the gradient of the weight passes as it is.
  const int offset = attributes.unit_offset ? w.make(width, w.slot(weight).dtype, false) : weight;
  if (attributes.unit_offset) w.add(KernelKind::Elementwise, {{weight, GradRule::None}}, {offset});
  const std::int64_t copy = copy_in_order(w, operands.x);
  // On CPU the statistics have the dtype of the parameters, and each thread sums its own gradients of them
  // (native/layer_norm.cpp, native/cpu/layer_norm_kernel.cpp).
  const bool is_cpu = w.context().is_cpu();
  Kernel& kernel = write_fused_norm(w, operands, rows, is_cpu ? w.activation() : Dtype::Float32);
  if (is_cpu && w.has_parameter(0)) {
    const std::int64_t sums = 2 * w.context().num_sms * width * size_of(w.activation()).count();
    kernel.backward_temps.push_back({sums, TempLife::Late, 1});
  }
  for (SavedSlot& saved : kernel.saved) {
    if (saved.slot == weight) saved.slot = offset;
  }
  if (w.has_parameter(1)) kernel.saved.insert(kernel.saved.begin(), {operands.parameters[1], -1});
  kernel.order = {GradientOrder::Kind::CopiedLate, {}, w.output_shape(0)};
  if (copy > 0) {
    kernel.forward_temps = {copy};
    kernel.late_outputs = static_cast<int>(kernel.outputs.size());
    kernel.backward_temps.push_back({copy, TempLife::Whole});
  }
  add_partial_sums(w, kernel, rows, width);
}

// Scale and shift of each channel of each sample in fp32 beside the statistics, which have the dtype of x.
void write_group_norm(KernelWriter& w) {
  const Shape& shape = w.input_shape(0);
  const std::int64_t groups = shape[0] * w.op().attributes.groups;
  const std::int64_t channels = 4 * shape[0] * shape[1];
  const NormOperands operands = wide_norm_operands(w);
  Kernel& kernel = write_fused_norm(w, operands, groups, w.slot(operands.x).dtype);
  kernel.forward_temps = {channels, channels};
  kernel.backward_temps = {{channels}, {channels}, {4 * groups}, {4 * groups}, {channels}};
}

}  // namespace

void write_norm_op(KernelWriter& w) {
  switch (w.op().kind) {
    case OpKind::RmsNorm:
      return write_rms_norm(w);
    case OpKind::LayerNorm:
      return write_layer_norm(w);
    case OpKind::GroupNorm:
      return write_group_norm(w);
    default:
      write_fused_norm(w, norm_operands(w), w.input_shape(0)[1], Dtype::Float32);
  }
}

}  // namespace fsdp::simulator
