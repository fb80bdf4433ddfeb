// A fused copy is one kernel over the chunks of many tensors. Each block of 128 threads copies 16 bytes per thread, or
// more to stay within two full waves of blocks, and finds its work in tables: the address of each tensor, the size of
// its chunk, and the tensor of each block.
//
// Source: aten/src/ATen/native/cuda/TensorShape.cu (split_with_sizes_copy_out_cuda_contiguous_no_cast,
// get_chunk_cat_metadata), torch 2.11; checked against recorded allocations.

#include "simulator/ops/copy_metadata.h"

#include <algorithm>
#include <cmath>

#include "core/base/rounding.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kThreads = 128;
constexpr std::int64_t kTile = 16 * kThreads;

}  // namespace

std::int64_t copy_out_metadata(std::span<const std::int64_t> chunks, std::int64_t num_ranks,
                               const LaunchLimits& limits) {
  std::int64_t blocks = 0;
  for (const std::int64_t bytes : chunks) blocks += div_up(bytes, kTile);
  const std::int64_t most = 2 * limits.num_sms * limits.max_threads_per_sm / kThreads;
  const std::int64_t rounds = std::max<std::int64_t>(div_up(blocks * num_ranks, most), 1);
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(rounds))));
  const std::int64_t per_chunk = div_up(rounds, std::min(root, num_ranks));
  // Two addresses, the size and the first block of each tensor, and the end.
  std::int64_t numbers = 4 * static_cast<std::int64_t>(chunks.size()) + 1;
  for (const std::int64_t bytes : chunks) numbers += div_up(bytes, kTile * per_chunk);
  return 8 * numbers;
}

std::int64_t copy_in_metadata(const ShardedUnit& unit, bool of_loss) {
  std::int64_t numbers = 2;
  for (const ShardedParameter& p : unit.parameters) {
    if (!is_in_reduction(p, of_loss)) continue;
    numbers += 6 + div_up(p.shard_elements * size_of(unit.reduce_dtype).count(), kTile);
  }
  return 8 * numbers;
}

}  // namespace fsdp::simulator
