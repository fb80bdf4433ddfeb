// The roofline.
//
// A matrix product of f FLOPs takes f / (peak * achievable share): products are large and bound by arithmetic, and the
// share (0.8 of the peak and less, by card) is what tuned libraries reach on large ones. Fused attention reaches about
// two thirds of that. Everything else moves bytes: each kernel reads its inputs and writes its outputs once, at the
// achievable share of the memory bandwidth. Each kernel has a floor of about 2 us.
//
// Sources: Williams et al., "Roofline", CACM 2009; the achievable shares stand with their sources in the cluster files;
// attention's share after FlashAttention-2 (Dao 2023, 50 to 73 % of the peak on A100).
//
// Not modelled: the shape of a product (small and skinny ones are slower), wave quantisation, L2 reuse, clocks under
// load, slow-down while collectives run beside.

#include "simulator/roofline.h"

namespace fsdp::simulator {

namespace {

constexpr double kAttentionShare = 0.65;

}  // namespace

ComputeCosts compute_costs(const Gpu& gpu, Dtype activation) {
  ComputeCosts costs;
  auto peak = peak_rate(gpu, activation);
  if (!peak) peak = peak_rate(gpu, Dtype::Float32);
  if (peak) costs.peak = peak->value;
  costs.gemm = FlopsPerSecond(costs.peak.count() * gpu.achievable_compute.value);
  costs.attention = FlopsPerSecond(costs.gemm.count() * kAttentionShare);
  costs.memory = BytesPerSecond(gpu.memory_bandwidth.value.count() * gpu.achievable_bandwidth.value);
  return costs;
}

Seconds device_time(const OpWork::Part& part, const ComputeCosts& costs) {
  const Seconds arithmetic = Flops(part.gemm_flops) / costs.gemm + Flops(part.attention_flops) / costs.attention;
  return arithmetic + Seconds(part.bytes / costs.memory.count()) + part.num_kernels * costs.kernel_floor;
}

}  // namespace fsdp::simulator
