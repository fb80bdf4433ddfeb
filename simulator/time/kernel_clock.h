#pragma once

// The time of one product or one forward pass of attention on a card: alone, and in a training step.

#include <cstdint>
#include <string>

#include "core/base/dtype.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "simulator/nccl/collective_cost.h"

namespace fsdp::simulator {

struct ProductShape {
  std::int64_t m = 1;  ///< Rows of the first matrix.
  std::int64_t n = 1;  ///< Columns of the second.
  std::int64_t k = 1;  ///< The summed dimension.
};

struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t sequence = 1;  ///< Queries, as many as keys.
  std::int64_t head_size = 1;
  bool causal = false;
};

/// The true time is expected between `band.low` and `band.high` times `time`.
struct TimedKernel {
  Seconds time{0};
  UncertaintyBand band;
  std::string source;  ///< One sentence: the source of the time.

  bool operator==(const TimedKernel&) const = default;
};

struct KernelClock {
  Flops work{0};        ///< Under a causal mask half of the scores.
  TimedKernel alone;    ///< In a loop, as in benchmarks.
  TimedKernel in_step;  ///< In eager training, as in a prediction of a step.

  bool operator==(const KernelClock&) const = default;
};

/// A product of a (m, k) and a (k, n) matrix. REQUIRES: the card has a rate for the dtype; sizes of at least 1.
KernelClock clock_product(const Gpu& gpu, Dtype dtype, bool as_tf32, const ProductShape& shape);

/// The forward pass of fused attention. REQUIRES: as above, and a 16-bit dtype.
KernelClock clock_attention(const Gpu& gpu, Dtype dtype, const AttentionShape& shape);

}  // namespace fsdp::simulator
