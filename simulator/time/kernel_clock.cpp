// The time of one kernel.
//
// In a training step, a product of f FLOPs takes f / (peak * share) plus the floor of a kernel, as in the roofline: its
// share is one for all shapes. Alone, it takes the measured time of its shape on such a card, f / (peak * share(m, n,
// k)), if there is a measurement in 16 bits; the tables are of bf16, and fp16 runs on the same units at the same rate.
// Without one, we use the share of training, which is slower.
//
// Under a causal mask half of the scores count, because kernels compute only these. The roofline counts all of them, as
// PyTorch's FLOP counter does, and so does its share of attention.
//
// The band of a measurement is that of nine of ten held-back shapes, and at least a tenth: measurements of one shape on
// one card differ that much between programs.
//
// Sources: core/cluster/measurements.h, simulator/time/roofline.cpp.
//
// Not modeled: clocks that fall under load, and heads that share their keys.

#include "simulator/time/kernel_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "simulator/time/roofline.h"

namespace fsdp::simulator {

namespace {

constexpr double kLeastDeviation = 0.1;

bool is_in_16_bits(Dtype dtype) {
  return dtype == Dtype::BFloat16 || dtype == Dtype::Float16;
}

TimedKernel in_training(const Gpu& gpu, Dtype dtype, const OpWork::Part& part, const ComputeCosts& costs, double share,
                        Provenance provenance) {
  const bool is_shaped = costs.measured.get() != nullptr && !part.products.empty();
  return {device_time(part, costs), compute_band(gpu, dtype),
          fmt::format("{:.2g} of the peak rate, the share of training steps ({}){}", share, name_of(provenance),
                      is_shaped ? ", corrected for the shape" : "")};
}

TimedKernel as_measured(Flops work, FlopsPerSecond peak, double share, const HeldBack& held_back,
                        const Measurements& tables, const std::string& table) {
  const double deviation = std::max(held_back.p90, kLeastDeviation);
  return {work / FlopsPerSecond(peak.count() * share),
          {1 - deviation, 1 + deviation},
          fmt::format("measured on {}: {} of {}", tables.gpus.front(), table, tables.package)};
}

}  // namespace

KernelClock clock_product(const Gpu& gpu, Dtype dtype, bool as_tf32, const ProductShape& shape) {
  const auto m = static_cast<double>(shape.m);
  const auto n = static_cast<double>(shape.n);
  const auto k = static_cast<double>(shape.k);
  const ComputeCosts costs = compute_costs(gpu, dtype, {.matmul_allow_tf32 = as_tf32});
  KernelClock clock{.work = Flops(2 * m * n * k)};
  const OpWork::Part part{.gemm_flops = clock.work.count(),
                          .num_kernels = 1,
                          .products = {{.batches = 1, .m = shape.m, .n = shape.n, .k = shape.k}}};
  clock.in_step = in_training(gpu, dtype, part, costs, costs.rates().gemm.count() / costs.rates().peak.count(),
                              gpu.achievable_compute.provenance);
  clock.alone = clock.in_step;
  const Measurements* tables = gpu.measured.get();
  if (tables != nullptr && tables->products && is_in_16_bits(dtype)) {
    const MeasuredProducts& products = *tables->products;
    clock.alone = as_measured(clock.work, products.peak, measured_share(products, m, n, k), products.held_back, *tables,
                              products.table);
  }
  return clock;
}

KernelClock clock_attention(const Gpu& gpu, Dtype dtype, const AttentionShape& shape) {
  assert(is_in_16_bits(dtype));
  const auto heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const auto sequence = static_cast<double>(shape.sequence);
  const ComputeCosts costs = compute_costs(gpu, dtype, {});
  const Flops all_scores(4 * heads * sequence * sequence * static_cast<double>(shape.head_size));
  KernelClock clock{.work = shape.causal ? .5 * all_scores : all_scores};
  const OpWork::Part part{.attention_flops = all_scores.count(), .num_kernels = 1};
  clock.in_step = in_training(gpu, dtype, part, costs, costs.rates().attention.count() / costs.rates().peak.count(),
                              gpu.achievable_compute.provenance);
  clock.alone = clock.in_step;
  const Measurements* tables = gpu.measured.get();
  if (tables == nullptr) return clock;
  for (const MeasuredAttention& each : tables->attention) {
    if (each.causal != shape.causal || each.head_size != shape.head_size) continue;
    const double share = measured_share(each, heads, sequence);
    clock.alone = as_measured(clock.work, each.peak, share, each.held_back, *tables, each.table);
  }
  return clock;
}

}  // namespace fsdp::simulator
