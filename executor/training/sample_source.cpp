#include "executor/training/sample_source.h"

#include <numeric>
#include <utility>

#include "executor/training/synthetic.h"

namespace fsdp::executor {

std::int64_t SampleOrder::place_of(std::int64_t sample) const {
  const std::int64_t epoch = sample / samples_;
  const std::int64_t number = sample % samples_;
  if (!shuffle_seed_) return number;
  if (epoch != epoch_) {
    order_.resize(static_cast<std::size_t>(samples_));
    std::iota(order_.begin(), order_.end(), 0);
    for (std::size_t i = order_.size(); i > 1; --i) {
      const std::uint64_t drawn = drawn_number(static_cast<std::uint64_t>(*shuffle_seed_), "shuffle",
                                               static_cast<std::uint64_t>(epoch), static_cast<std::int64_t>(i));
      std::swap(order_[i - 1], order_[drawn % i]);
    }
    epoch_ = epoch;
  }
  return order_[static_cast<std::size_t>(number)];
}

}  // namespace fsdp::executor
