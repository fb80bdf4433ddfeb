#pragma once

// What ranks tell each other beside their training: whether each of them has done its part of a checkpoint.

#include <string>
#include <vector>

#include "executor/collectives.h"
#include "executor/trainer.h"

namespace fsdp::executor {

/// Texts go through the store where the ranks meet. They are waited for over the connections of the groups, which break
/// at once when a rank dies; a store would be waited for until the time-out.
class Agreement {
 public:
  /// REQUIRES: both outlive it.
  Agreement(GlooNetwork& network, Trainer& trainer, std::int64_t world_size)
      : network_(network), trainer_(trainer), world_size_(world_size) {}

  /// Returns when all ranks have called it. Throws CollectiveFailure.
  void sync();
  /// All ranks call it with the same key, once in a run: rank 0 gets the texts of all, the others nothing.
  std::vector<std::string> gather(const std::string& key, const std::string& text);
  /// The same: everybody gets the text of rank 0.
  std::string tell(const std::string& key, const std::string& text);

  /// Bytes that another rank gets after a `sync`.
  void put(const std::string& key, const std::string& bytes);
  std::string get(const std::string& key) { return network_.get(key); }
  /// Frees what this rank has put; a store keeps it otherwise. REQUIRES: all ranks have got it.
  void forget_own();

 private:
  GlooNetwork& network_;
  Trainer& trainer_;
  std::int64_t world_size_;
  std::vector<std::string> own_;  ///< Keys.
};

}  // namespace fsdp::executor
