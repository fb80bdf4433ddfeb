#pragma once

// Makes batches on the host while the device computes, as the workers of a data loader with pinned memory do.

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
  std::int64_t sample = 0;   ///< The first one in a token file.

  bool operator==(const BatchPlace&) const = default;
};

class BatchAhead {
 public:
  using Make = std::function<Tensors(const BatchPlace&)>;

  /// `make` is called on another thread, one call at a time. REQUIRES: everything it uses outlives this.
  explicit BatchAhead(Make make) : make_(std::move(make)) {}

  /// Starts to make the batch that will be requested next.
  void begin(const BatchPlace& place);
  /// The batch of a place: the one in progress, or one that is made now. Throws what `make` throws.
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
