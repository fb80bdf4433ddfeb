#pragma once

// Batches made on the host while the device computes, as the workers of a data loader with pinned memory make them.

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include "executor/kernels/kernels.h"

namespace fsdp::executor {

/// The place of this rank's micro-batch in the data.
struct BatchPlace {
  std::uint64_t stream = 0;  ///< The stream of numbers from the seed.
  std::int64_t sample = 0;   ///< The first one of a token file.

  bool operator==(const BatchPlace&) const = default;
};

class BatchAhead {
 public:
  using Make = std::function<Tensors(const BatchPlace&)>;

  /// `make` is called on another thread, one call at a time. REQUIRES: what it uses outlives this.
  explicit BatchAhead(Make make) : make_(std::move(make)) {}

  /// Begins to make a batch that will be asked for next.
  void begin(const BatchPlace& place);
  /// The batch of a place: the one that was begun, or one that is made now. Throws what `make` throws.
  Tensors take(const BatchPlace& place);

 private:
  struct Begun {
    BatchPlace place;
    std::future<Tensors> batch;
  };

  Make make_;
  std::optional<Begun> begun_;
};

}  // namespace fsdp::executor
