// Only the host's part is made ahead. The copy to the device stays in the step, on the computing stream: a training
// script with a pinned data loader does the same, and the device has one batch, as the prediction assumes.

#include "executor/training/batch_ahead.h"

#include <utility>

namespace fsdp::executor {

void BatchAhead::begin(const BatchPlace& place) {
  begun_.reset();
  begun_ = Begun{place, std::async(std::launch::async, make_, place)};
}

Tensors BatchAhead::take(const BatchPlace& place) {
  std::optional<Begun> begun = std::exchange(begun_, std::nullopt);
  if (begun && begun->place == place) return begun->batch.get();
  begun.reset();  // Waits for it, so that `make` runs once at a time.
  return make_(place);
}

}  // namespace fsdp::executor
