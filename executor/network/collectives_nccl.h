#pragma once

// Collectives over NCCL, called directly: one communicator for each group, every call on a stream that the caller
// chose.

#include <chrono>
#include <memory>
#include <string>

#include "executor/network/collectives.h"

namespace fsdp::executor {

/// The loaded NCCL: 22809 is 2.28.9.
int nccl_version();

/// Empty if the loaded NCCL is compatible with the header of this build; otherwise a sentence with both versions.
std::string nccl_version_problem(int loaded);

/// Makes communicators on the current device, and watches their calls: a collective that has not ended in time, or an
/// error that NCCL reports, ends all communicators, so that nothing waits for this rank forever.
class NcclNetwork {
 public:
  /// `meeting` exchanges the communicators' ids. Null only for an NCCL that plays the other ranks (rehearsal/).
  NcclNetwork(GlooNetwork* meeting, std::chrono::milliseconds timeout);
  ~NcclNetwork();
  NcclNetwork(const NcclNetwork&) = delete;
  NcclNetwork& operator=(const NcclNetwork&) = delete;

  /// The group that all `size` ranks call by the same name. Throws CollectiveFailure if they do not come in time.
  std::unique_ptr<Group> group(const std::string& name, int rank, int size);
  /// Call when all ranks have finished, so that communicators can be closed together. Those destroyed earlier are
  /// aborted.
  void done();
  /// Throws CollectiveFailure, with the instruction that had started it, if a collective has failed.
  void check() const;

 private:
  struct State;
  class NcclGroup;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::executor
