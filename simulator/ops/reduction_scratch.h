#pragma once

// Memory that a sum over many rows needs beside its result.

#include <cstdint>
#include <vector>

namespace fsdp::simulator {

/// The limits that decide into how many blocks of threads PyTorch divides a kernel.
struct LaunchLimits {
  int num_sms = 132;
  int max_threads_per_sm = 2048;

  bool operator==(const LaunchLimits&) const = default;
};

/// Limits of a GPU; `compute_capability` 90 is sm_90.
LaunchLimits launch_limits(int num_sms, int compute_capability);

/// Temporaries of at::sum from [outputs, inputs] (`sums_rows`) or [inputs, outputs] to [outputs], in bytes: a buffer
/// for the partial sums of the blocks that share an output, and their semaphores. Empty if one block sums an output.
/// `partial` is the size of a partial result: that of the values for a maximum.
std::vector<std::int64_t> reduction_scratch(std::int64_t outputs, std::int64_t inputs, bool sums_rows,
                                            const LaunchLimits& limits, std::int64_t partial = 4);

}  // namespace fsdp::simulator
