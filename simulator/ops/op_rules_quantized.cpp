// Linear layers whose frozen weight is packed in four bits: bitsandbytes' MatMul4Bit.
//
// The forward unpacks the weight of n numbers into the dtype of its input, multiplies, and drops it:
//
//   [double quantization: the n / 64 scales in fp32, and once more with their offset], n numbers, the result
//
// The node saves no tensor: it holds the packed weight, whose storage the framework frees and fills. So the gradient of
// the input needs nothing of the forward. The backward unpacks again, in the dtype that the weight had before it was
// packed, and casts that to the gradient's:
//
//   [the scales, in place], n numbers [cast], the gradient of the input
//
// PEFT copies the result before it adds what an adapter makes (peft/tuners/lora/bnb.py, 0.21.2).
//
// Sources: bitsandbytes 0.50.2, autograd/_functions.py (MatMul4Bit), backends/cuda/ops.py (gemm_4bit,
// _dequant_linear_fallback), functional.py (dequantize_4bit). Not modeled: the fused kernel for at most 1536 tokens,
// which unpacks no whole weight in the forward on some GPUs (the backward always does).

#include "core/base/rounding.h"
#include "core/plan/quantization.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

/// Memory traffic of unpacking beside the reading of the packed slot and the writing of the weight.
double unpacking_bytes(std::int64_t numbers, std::int64_t scales) {
  return static_cast<double>(numbers) / 2 + 4 * static_cast<double>(scales);
}

/// The whole weight in the dtype of the activations, and what lives with it until the function returns.
std::vector<int> unpack(KernelWriter& w, std::int64_t numbers, std::int64_t scales) {
  const int packed = w.parameter(0);
  std::vector<int> made;
  if (w.op().attributes.nested) {
    made.push_back(w.make(scales, Dtype::Float32, false));
    w.add(KernelKind::Elementwise, {}, {made.back()});
    const int shifted = w.make(scales, Dtype::Float32, false);
    w.add(KernelKind::Elementwise, {{made.back(), GradRule::None}}, {shifted});
    made.push_back(shifted);
  }
  made.push_back(w.make(numbers, w.activation(), false));
  Kernel& kernel = w.add(KernelKind::Elementwise, {{packed, GradRule::None}}, {made.back()});
  kernel.extra_bytes = unpacking_bytes(numbers, scales) - static_cast<double>(w.bytes(packed));
  return made;
}

}  // namespace

void write_linear_4bit(KernelWriter& w) {
  const int x = w.input(0);
  const std::int64_t inner = w.input_shape(0).back();
  const std::int64_t columns = w.output_shape(0).back();
  const std::int64_t rows = w.elements(x) / inner;
  const std::int64_t numbers = inner * columns;
  const std::int64_t scales = div_up(numbers, kQuantizedBlock);
  const std::vector<int> unpacked = unpack(w, numbers, scales);
  const int weight = unpacked.back();
  const int y = w.make(rows * columns, w.activation());
  const bool bias = w.has_parameter(1);
  Kernel& kernel =
      w.add(bias ? KernelKind::GemmLt : KernelKind::Gemm, {{x, GradRule::Fresh}, {weight, GradRule::None}}, {y});
  if (bias) kernel.inputs.push_back({w.parameter(1), GradRule::None});
  kernel.holds = unpacked;
  kernel.order = {GradientOrder::Kind::Copied, {}, w.output_shape(0)};
  kernel.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
  w.note_product(kernel, {.name = bias ? "addmm" : "mm",
                          .rows = rows,
                          .inner = inner,
                          .columns = columns,
                          .left = 0,
                          .right = 1,
                          .turned = true});
  const Dtype before = w.op().attributes.dtype.value_or(w.activation());
  if (w.op().attributes.nested) kernel.backward_temps.push_back({4 * scales, TempLife::Early});
  if (before != w.activation()) kernel.backward_temps.push_back({numbers * size_of(before).count(), TempLife::Early});
  kernel.backward_temps.push_back({w.bytes(weight), TempLife::Whole});
  kernel.backward_bytes = unpacking_bytes(numbers, scales) + static_cast<double>(w.bytes(weight));
  if (!w.op().attributes.cloned) return w.set_output(0, y);
  const int copy = w.make(rows * columns, w.activation());
  w.add(KernelKind::Elementwise, {{y, GradRule::Alias}}, {copy});
  w.set_output(0, copy);
}

}  // namespace fsdp::simulator
