#pragma once

// Samples from files to train on or to evaluate, in place of data from a seed.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::executor {

/// Samples, each of which has a row for some inputs of the model.
class SampleSource {
 public:
  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;
  virtual ~SampleSource() = default;

  virtual std::int64_t samples() const = 0;
  /// Samples of a micro-batch.
  virtual std::int64_t batch() const = 0;
  /// The values of this input for samples [first, first + batch) of the run, which starts over after the last; nullopt
  /// if the samples do not have this input. Throws std::runtime_error for a number that the model does not accept.
  virtual std::optional<at::Tensor> input(const std::string& name, std::int64_t first) const = 0;
};

/// The order of the samples. Sample g of a run is number g mod n of epoch g / n over n samples: that number itself, or
/// its place in a shuffle (Fisher and Yates) whose numbers are SplitMix64's over (seed, epoch).
class SampleOrder {
 public:
  /// REQUIRES: samples > 0 if one is requested.
  explicit SampleOrder(std::int64_t samples, std::optional<std::int64_t> shuffle_seed)
      : samples_(samples), shuffle_seed_(shuffle_seed) {}

  /// The place of sample `sample` of the run.
  std::int64_t place_of(std::int64_t sample) const;

 private:
  std::int64_t samples_;
  std::optional<std::int64_t> shuffle_seed_;
  mutable std::vector<std::int64_t> order_;  ///< The order of an epoch.
  mutable std::int64_t epoch_ = -1;
};

}  // namespace fsdp::executor
