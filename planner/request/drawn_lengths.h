#pragma once

// The lengths of a run's micro-batches, drawn from the lengths of a data set's samples as a trainer's sampler and
// collator do. drawn_lengths.cpp has the rules and their sources.

#include <cstdint>
#include <vector>

namespace fsdp::planner {

/// How a trainer makes batches of samples.
struct Batching {
  std::int64_t batch = 1;         ///< Rows of a micro-batch.
  std::int64_t accumulation = 1;  ///< Micro-batches of a step.
  std::int64_t multiple = 1;      ///< Rows are padded to a multiple of so many tokens.
  bool pads_to_longest = false;   ///< Every micro-batch has the longest length of all.
  bool groups_lengths = false;    ///< Samples of about one length are neighbors.

  bool operator==(const Batching&) const = default;
};

/// The micro-batches of one GPU.
struct DrawnRun {
  std::vector<std::int64_t> lengths;  ///< [steps * accumulation] Padded.
  std::int64_t tokens = 0;            ///< The samples' own, without padding.
  std::int64_t padded = 0;            ///< The rows', with it.

  bool operator==(const DrawnRun&) const = default;
};

/// [ranks] The runs of the GPUs of one job. The same arguments give the same runs. REQUIRES: some lengths, all above 0.
std::vector<DrawnRun> draw_job(const std::vector<std::int64_t>& lengths, const Batching& batching, std::int64_t ranks,
                               std::int64_t steps, std::uint64_t seed);

}  // namespace fsdp::planner
