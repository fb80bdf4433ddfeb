// The roofline.
//
// A matrix product of f FLOPs takes f / (peak * share), fused attention and convolutions have shares of their own, and
// everything else moves bytes: each kernel reads its inputs and writes its outputs once, at a share of the memory
// bandwidth. Each kernel has a floor of about 2 us.
//
// The shares are those of eager training, not of a benchmark. They were fitted to published training steps (docs/
// accuracy.md) for each card that has such steps, and other cards borrow those of their architecture. What one large
// product reaches in a benchmark is a quarter more on H100: clocks fall under load, many shapes tile badly, and eager
// kernels leave gaps, all of which is in the shares. Attention on A100 reaches 0.6 of the peak (189 of 312 TFLOPS
// forward and backward with heads of 128 and a causal mask), on H100 FlashAttention-2 reaches 0.34 (335 of 989).
//
// float32 convolutions run as TF32 where there is one, as PyTorch's defaults say; float32 products do not.
//
// The band is that of the published steps: nine in ten lie inside. Half of the sources find it, the other half check it
// (tests/accuracy/published_runs_test.py). A card that borrows its shares has a band that is wider by what borrowing
// costs where it can be measured: H100 predicted with the shares of A100, and the other way around.
//
// Sources: Williams et al., "Roofline", CACM 2009; Dao, "FlashAttention-2", 2023, figures 5 and 7, for attention; the
// cluster files for every other share; aten/src/ATen/Context.h, allow_tf32_cudnn and float32_matmul_precision.
//
// Not modeled: the shape of a product (small and skinny ones are slower), wave quantization, L2 reuse, slow-down while
// collectives run beside.

#include "simulator/time/roofline.h"

namespace fsdp::simulator {

namespace {

constexpr UncertaintyBand kFittedBand{.low = 0.85, .high = 1.25};
constexpr UncertaintyBand kBorrowedBand{.low = 0.55, .high = 1.7};

}  // namespace

ComputeCosts compute_costs(const Gpu& gpu, Dtype activation, const Implementations& use) {
  ComputeCosts costs;
  const auto rate = [&](bool allow_tf32) {
    const auto peak = peak_rate(gpu, activation, allow_tf32);
    return peak ? peak->value : peak_rate(gpu, Dtype::Float32).value_or(Sourced<FlopsPerSecond>{costs.peak}).value;
  };
  const double share = gpu.achievable_compute.value;
  const double attention = gpu.achievable_attention ? gpu.achievable_attention->value : share * kAttentionShare;
  costs.peak = rate(use.matmul_allow_tf32);
  costs.convolution_peak = rate(use.cudnn_allow_tf32);
  costs.gemm = FlopsPerSecond(costs.peak.count() * share);
  costs.convolution = FlopsPerSecond(costs.convolution_peak.count() * share);
  costs.attention = FlopsPerSecond(costs.peak.count() * attention);
  costs.memory = BytesPerSecond(gpu.memory_bandwidth.value.count() * gpu.achievable_bandwidth.value);
  return costs;
}

Seconds device_time(const OpWork::Part& part, const ComputeCosts& costs) {
  const Seconds arithmetic = Flops(part.gemm_flops) / costs.gemm + Flops(part.convolution_flops) / costs.convolution +
                             Flops(part.attention_flops) / costs.attention;
  return arithmetic + Seconds(part.bytes / costs.memory.count()) + part.num_kernels * costs.kernel_floor;
}

UncertaintyBand compute_band(const Gpu& gpu, Dtype activation) {
  const bool is_16_bit = activation == Dtype::BFloat16 || activation == Dtype::Float16;
  return is_16_bit && gpu.achievable_compute.provenance == Provenance::Measured ? kFittedBand : kBorrowedBand;
}

}  // namespace fsdp::simulator
