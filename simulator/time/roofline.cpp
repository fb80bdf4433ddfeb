// The roofline.
//
// A matrix product of f FLOPs takes f / (peak * share), fused attention and convolutions have shares of their own, and
// everything else moves bytes: each kernel reads its inputs and writes its outputs once, at a share of the memory
// bandwidth. Each kernel has a floor of about 2 us.
//
// The shares are those of eager training, not of a benchmark. We fitted them to published training steps
// (docs/accuracy.md) for each card with such steps; other cards use those of their architecture. One large product in a
// benchmark reaches a quarter more on H100: clocks fall under load, many shapes tile badly, and eager kernels leave
// gaps, and the shares include all of that. Attention on A100 reaches 0.6 of the peak (189 of 312 TFLOPS forward and
// backward with heads of 128 and a causal mask), on H100 FlashAttention-2 reaches 0.34 (335 of 989).
//
// The share of products is that of large ones. If the card has measurements of many shapes in 16 bits, a product takes
// longer by the measured share of large ones over that of its own shape: 64 rows with a 4096 x 4096 matrix reach a
// fifth of it on H100. A batch of products counts as one with the rows of all of them. On a card without tables all
// shapes are alike.
//
// Products of 8-bit floats reach the same share of their peak as those in bf16: no share was fitted to steps with them.
// Without a known peak they run at the rate of bf16.
//
// float32 convolutions run as TF32 if the card has it, by PyTorch's defaults; float32 products do not. An op recorded
// under autocast runs at the rates of the dtype that it computed in, and moves the recorded bytes.
//
// On several nodes, all wait for the slowest (core/cluster/node_spread.cpp), on which everything takes longer.
//
// The shares of one card do not hold in each precision, and a card that borrows them is a little faster or slower. So a
// card has a pace in 16 bits and one in TF32, by which all of its kernels take longer, and a share of its own for
// products in fp32. They come from steps of BERT on that card and from measured products; cards without published ones
// use the pace of their kind (docs/accuracy.md, "Cards").
//
// The band is that of the published steps: nine in ten lie inside. Half of the sources determine it, and the other half
// check it (tests/accuracy/published_runs_test.py). For a card with known steps, its own or those of its kind, it is
// `time_spread` (tests/accuracy/cards_test.py). For any other the band is wider by the measured error of borrowing:
// H100 predicted with the shares of A100, and vice versa.
//
// Sources: Williams et al., "Roofline", CACM 2009; Dao, "FlashAttention-2", 2023, figures 5 and 7, for attention; the
// cluster files for every other share; aten/src/ATen/Context.h, allow_tf32_cudnn and float32_matmul_precision.
//
// Not modeled: wave quantization between the measured shapes, L2 reuse, slowdown while collectives run.

#include "simulator/time/roofline.h"

#include "core/cluster/node_spread.h"

namespace fsdp::simulator {

namespace {

constexpr UncertaintyBand kFittedBand{.low = 0.85, .high = 1.25};
constexpr UncertaintyBand kBorrowedBand{.low = 0.55, .high = 1.7};

bool has_16_bits(Dtype dtype) {
  return dtype == Dtype::BFloat16 || dtype == Dtype::Float16;
}

/// True if products in a dtype run as TF32. bf16 without hardware for it runs at the rate of fp32.
bool runs_as_tf32(const Gpu& gpu, Dtype dtype, bool is_allowed) {
  return dtype == Dtype::Float32 && is_allowed && gpu.tf32.has_value();
}

double pace_of(const Gpu& gpu, Dtype dtype, bool allow_tf32) {
  if (has_16_bits(dtype) && peak_rate(gpu, dtype)) return gpu.pace_16_bit ? gpu.pace_16_bit->value : 1;
  return runs_as_tf32(gpu, dtype, allow_tf32) && gpu.pace_tf32 ? gpu.pace_tf32->value : 1;
}

/// The share of products in a dtype. Without tensor cores it is a separate one.
double share_of_products(const Gpu& gpu, Dtype dtype, bool allow_tf32) {
  const bool on_tensor_cores =
      runs_as_tf32(gpu, dtype, allow_tf32) || (has_16_bits(dtype) && peak_rate(gpu, dtype).has_value());
  return !on_tensor_cores && gpu.achievable_fp32 ? gpu.achievable_fp32->value : gpu.achievable_compute.value;
}

ArithmeticRates rates_in(const Gpu& gpu, Dtype dtype, const Implementations& use) {
  ArithmeticRates rates;
  const auto peak = [&](bool allow_tf32) {
    const auto found = peak_rate(gpu, dtype, allow_tf32);
    return found ? found->value : peak_rate(gpu, Dtype::Float32).value_or(Sourced<FlopsPerSecond>{rates.peak}).value;
  };
  const double attention =
      gpu.achievable_attention ? gpu.achievable_attention->value : gpu.achievable_compute.value * kAttentionShare;
  const double pace = pace_of(gpu, dtype, use.matmul_allow_tf32);
  const double product = share_of_products(gpu, dtype, use.matmul_allow_tf32) / pace;
  const double convolution =
      share_of_products(gpu, dtype, use.cudnn_allow_tf32) / pace_of(gpu, dtype, use.cudnn_allow_tf32);
  rates.peak = peak(use.matmul_allow_tf32);
  rates.convolution_peak = peak(use.cudnn_allow_tf32);
  rates.gemm = FlopsPerSecond(rates.peak.count() * product);
  rates.convolution = FlopsPerSecond(rates.convolution_peak.count() * convolution);
  rates.attention = FlopsPerSecond(rates.peak.count() * attention / pace);
  return rates;
}

}  // namespace

ComputeCosts compute_costs(const Gpu& gpu, Dtype activation, const Implementations& use) {
  ComputeCosts costs{.activation = activation};
  for (std::size_t d = 0; d < kNumFloatingPoint; ++d) {
    costs.by_dtype[d] = rates_in(gpu, static_cast<Dtype>(d), use);
  }
  const ArithmeticRates& narrow = costs.by_dtype[static_cast<std::size_t>(Dtype::BFloat16)];
  costs.float8_peak = gpu.fp8 ? gpu.fp8->value : narrow.peak;
  costs.float8 = FlopsPerSecond(costs.float8_peak.count() * narrow.gemm.count() / narrow.peak.count());
  if (has_16_bits(activation) && gpu.measured.get() != nullptr && gpu.measured.get()->products) {
    costs.measured = gpu.measured;
  }
  costs.memory = BytesPerSecond(gpu.memory_bandwidth.value.count() * gpu.achievable_bandwidth.value /
                                pace_of(gpu, activation, use.matmul_allow_tf32));
  costs.host_link = gpu.host_link.bandwidth.value;
  return costs;
}

ComputeCosts compute_costs(const Cluster& cluster, Dtype activation, const Implementations& use) {
  ComputeCosts costs = compute_costs(cluster.gpu, activation, use);
  costs.host_link = cluster.host_link.bandwidth.value;
  const double longer = slowest_node(cluster);
  if (longer == 1) return costs;
  for (ArithmeticRates& rates : costs.by_dtype) {
    for (FlopsPerSecond* rate : {&rates.gemm, &rates.convolution, &rates.attention}) {
      *rate = FlopsPerSecond(rate->count() / longer);
    }
  }
  costs.float8 = FlopsPerSecond(costs.float8.count() / longer);
  costs.memory = BytesPerSecond(costs.memory.count() / longer);
  costs.kernel_floor = costs.kernel_floor * longer;
  costs.launch = costs.launch * longer;
  return costs;
}

namespace {

// Extra work of products in comparison with large ones of as many FLOPs, in FLOPs of these.
double lost_to_shapes(const OpWork::Part& part, const ComputeCosts& costs) {
  const Measurements* tables = costs.measured.get();
  if (tables == nullptr) return 0;
  double lost = 0;
  for (const ProductSizes& p : part.products) {
    const double share = measured_share(*tables->products, static_cast<double>(p.batches) * static_cast<double>(p.m),
                                        static_cast<double>(p.n), static_cast<double>(p.k));
    lost += p.flops() * (tables->products->large / share - 1);
  }
  return lost;
}

}  // namespace

Seconds device_time(const OpWork::Part& part, const ComputeCosts& costs) {
  const ArithmeticRates& rates = costs.rates(part.arithmetic);
  const Seconds arithmetic =
      Flops(part.gemm_flops + lost_to_shapes(part, costs)) / rates.gemm + Flops(part.float8_flops) / costs.float8 +
      Flops(part.convolution_flops) / rates.convolution + Flops(part.attention_flops) / rates.attention;
  return arithmetic + Seconds(part.bytes / costs.memory.count()) + part.num_kernels * costs.kernel_floor;
}

UncertaintyBand compute_band(const Gpu& gpu, Dtype activation) {
  if (has_16_bits(activation) && gpu.achievable_compute.provenance == Provenance::Measured) return kFittedBand;
  if (gpu.time_spread) return {.low = 1 / gpu.time_spread->value, .high = gpu.time_spread->value};
  return kBorrowedBand;
}

}  // namespace fsdp::simulator
