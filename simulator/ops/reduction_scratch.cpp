// How at::sum divides its work, and the memory that this takes.
//
// A block of threads has up to 512 threads, `width` along the dimension that is contiguous and `height` across. When
// the columns of a matrix are summed (the gradient of a bias), neighboring threads take neighboring columns, four each,
// and the blocks of one column are
//
//   ctas = max(min(blocks that fill the GPU / blocks along the columns, values / 16), values / 256)
//
// if a thread would otherwise sum 256 values or more. The partial sums take 4 columns ctas bytes, and if threads do not
// share a column the code multiplies by width and by four once more: for a bias of 3072 on 12544 rows that is 138 MB,
// for 12 KB of real partial sums per block. This is PyTorch's arithmetic, and PyTorch really allocates that memory.
//
// Source: aten/src/ATen/native/cuda/Reduce.cuh (setReduceConfig, ReduceConfig::global_memory_size), torch 2.11; checked
// against recorded allocations for the biases of a ViT and a GPT-2.
//
// Not modeled: inputs whose rows are not aligned to four elements (fewer elements at a time).

#include "simulator/ops/reduction_scratch.h"

#include <algorithm>
#include <bit>

#include "core/base/rounding.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kMostThreads = 512;
constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kFewestValues = 16;
constexpr std::int64_t kMostValues = 256;

std::int64_t threads_along(std::int64_t size, std::int64_t most) {
  return size < most ? static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size))) : most;
}

}  // namespace

LaunchLimits launch_limits(int num_sms, int compute_capability) {
  if (compute_capability == 0) return {0, 0};
  // CUDA C++ Programming Guide, table of technical specifications per compute capability.
  if (compute_capability == 75) return {num_sms, 1024};
  const bool consumer = compute_capability == 86 || compute_capability == 87 || compute_capability == 89 ||
                        compute_capability == 120 || compute_capability == 121;
  return {num_sms, consumer ? 1536 : 2048};
}

std::vector<std::int64_t> reduction_scratch(std::int64_t outputs, std::int64_t inputs, bool sums_rows,
                                            const LaunchLimits& limits, std::int64_t partial) {
  if (outputs == 0 || inputs <= 1 || limits.num_sms == 0) return {};
  const std::int64_t vector = sums_rows || outputs % 4 != 0 ? 1 : 4;
  const std::int64_t most = kMostThreads / vector;
  const std::int64_t along = threads_along(sums_rows ? inputs : outputs / vector, most);
  const std::int64_t across = threads_along(sums_rows ? outputs : inputs, most);
  std::int64_t width = std::min(along, kWarp);
  const std::int64_t height = std::min(across, most / width);
  width = std::min(along, most / height);

  std::int64_t step_output = 1;
  std::int64_t step_input = 1;
  (sums_rows ? step_input : step_output) *= width;
  const auto values = [&] { return div_up(inputs, step_input); };
  const bool splits_rows = values() >= height * kFewestValues || values() >= kMostValues;
  (splits_rows ? step_input : step_output) *= height;

  const std::int64_t blocks = limits.max_threads_per_sm / (width * height) * limits.num_sms;
  const std::int64_t grid = div_up(outputs / vector, step_output);
  if (!splits_rows || values() < kMostValues || grid > blocks) return {};
  const std::int64_t ctas =
      std::max(std::min(div_up(blocks, grid), div_up(values(), kFewestValues)), div_up(values(), kMostValues));
  if (ctas <= 1) return {};
  const std::int64_t spread = sums_rows ? 1 : width * vector;
  return {partial * outputs * ctas * spread, 4 * grid};
}

}  // namespace fsdp::simulator
