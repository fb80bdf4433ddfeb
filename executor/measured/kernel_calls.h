#pragma once

// Workspaces that this machine's library uses for a product or a convolution. The calls of a training step are
// recorded, and repeated one by one after training, with the threads of each number of ranks on this machine, so that
// the results also serve plans for other numbers of ranks.

#include <memory>
#include <vector>

#include "core/model/kernel_workspaces.h"

namespace fsdp::executor {

class KernelCalls {
 public:
  KernelCalls();
  ~KernelCalls();
  KernelCalls(const KernelCalls&) = delete;
  KernelCalls& operator=(const KernelCalls&) = delete;

  /// Records the calls of this process from now on, each once.
  void listen();
  void stop();

  /// Runs each recorded call on zeros with each number of threads, and restores the number of threads.
  KernelWorkspaces measure(const std::vector<int>& threads) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The threads of a rank if 1, 2, ... ranks share this machine's cores, each number once.
std::vector<int> threads_of_ranks(int cores);

}  // namespace fsdp::executor
