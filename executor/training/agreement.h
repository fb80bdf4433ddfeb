#pragma once

// Messages between ranks besides training: whether each has done its part of a checkpoint, and whether its loss is
// finite.

#include <cstddef>
#include <string>
#include <vector>

#include "executor/network/collectives.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// Texts go over the connections of the groups, which exist from the start and break at once if a rank dies. Nothing is
/// read from the store of the meeting, because anyone who reaches its port can write there.
class Agreement {
 public:
  /// Longer texts are cut.
  static constexpr std::size_t kMostBytes = 16 << 10;

  /// REQUIRES: `trainer` outlives this.
  Agreement(Trainer& trainer, std::int64_t world_size) : trainer_(trainer), world_size_(world_size) {}

  /// Returns when all ranks have called it. Throws CollectiveFailure.
  void sync();
  /// All ranks call it, and get the texts of all ranks. Throws CollectiveFailure.
  std::vector<std::string> gather(const std::string& text);
  /// All ranks call it, and get the text of rank 0.
  std::string tell(const std::string& text) { return gather(trainer_.rank() == 0 ? text : "").front(); }
  /// All ranks call it, and get the numbers of all.
  std::vector<double> numbers(double own);

 private:
  Trainer& trainer_;
  std::int64_t world_size_;
};

}  // namespace fsdp::executor
