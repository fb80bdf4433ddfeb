// The lengths of micro-batches.
//
// An epoch is an order of all samples; the next one follows without a gap. Each `batch` of them in a row is a
// micro-batch, and micro-batch i goes to GPU i mod ranks. Its length is that of its longest row, rounded up to a
// multiple if the collator does that.
//
//   random    a permutation by Fisher and Yates, anew for each epoch.
//   grouped   the permutation is cut into chunks of m x batch x accumulation, with m = min(samples / (4 x batch x
//             accumulation), 50) and at least 1; each is sorted, longest first; then the longest sample of all changes
//             places with the first one.
//
// Sources: transformers 5.24.0, trainer_pt_utils.py (get_length_grouped_indices), trainer.py (its argument is
// train_batch_size * gradient_accumulation_steps), data_collator.py (padding to the longest row, pad_to_multiple_of);
// accelerate 1.15.0, data_loader.py (BatchSamplerShard without split_batches).
//
// Not modeled: the last batch of an epoch, which trainers drop or fill up.

#include "planner/request/drawn_lengths.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "core/base/rounding.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kMostChunks = 50;

// The standard leaves std::shuffle to each library; this is the same everywhere.
std::vector<std::int64_t> permuted(std::vector<std::int64_t> lengths, std::mt19937_64& random) {
  for (std::size_t i = lengths.size(); i > 1; --i) std::swap(lengths[i - 1], lengths[random() % i]);
  return lengths;
}

void group(std::vector<std::int64_t>& lengths, const Batching& batching) {
  const std::int64_t together = batching.batch * batching.accumulation;
  const auto count = static_cast<std::int64_t>(lengths.size());
  const std::int64_t chunk = together * std::max<std::int64_t>(1, std::min(count / (4 * together), kMostChunks));
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    const auto first = lengths.begin() + begin;
    std::sort(first, lengths.begin() + std::min(begin + chunk, count), std::greater<>());
  }
  std::iter_swap(lengths.begin(), std::max_element(lengths.begin(), lengths.end()));
}

/// Samples, epoch after epoch.
class Samples {
 public:
  Samples(const std::vector<std::int64_t>& lengths, const Batching& batching, std::uint64_t seed)
      : lengths_(lengths), batching_(batching), random_(seed) {}

  std::int64_t next() {
    if (next_ == epoch_.size()) {
      epoch_ = permuted(lengths_, random_);
      if (batching_.groups_lengths) group(epoch_, batching_);
      next_ = 0;
    }
    return epoch_[next_++];
  }

 private:
  const std::vector<std::int64_t>& lengths_;
  const Batching& batching_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> epoch_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<DrawnRun> draw_job(const std::vector<std::int64_t>& lengths, const Batching& batching, std::int64_t ranks,
                               std::int64_t steps, std::uint64_t seed) {
  const std::int64_t most = *std::max_element(lengths.begin(), lengths.end());
  Samples samples(lengths, batching, seed);
  std::vector<DrawnRun> runs(static_cast<std::size_t>(ranks));
  for (std::int64_t micro_batch = 0; micro_batch < steps * batching.accumulation; ++micro_batch) {
    for (DrawnRun& run : runs) {
      std::int64_t longest = batching.pads_to_longest ? most : 0;
      for (std::int64_t row = 0; row < batching.batch; ++row) {
        const std::int64_t length = samples.next();
        run.tokens += length;
        longest = std::max(longest, length);
      }
      run.lengths.push_back(round_up(longest, batching.multiple));
      run.padded += batching.batch * run.lengths.back();
    }
  }
  return runs;
}

}  // namespace fsdp::planner
