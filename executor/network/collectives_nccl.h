#pragma once

// Collectives over NCCL, called directly: one communicator for each group, every call on a stream that the caller
// chose.

#include <chrono>
#include <memory>
#include <string>

#include "executor/network/collectives.h"

namespace fsdp::executor {

/// The NCCL that is loaded: 22809 is 2.28.9.
int nccl_version();

/// Nothing when the loaded NCCL can be called with the header that this was compiled with; else both versions, in
/// words.
std::string nccl_version_problem(int loaded);

/// Makes communicators on the current device, and watches what is called on them: a collective that has not ended in
/// time, or an error that NCCL notes, ends all communicators, so that nothing waits for this rank for ever.
class NcclNetwork {
 public:
  /// `meeting` hands the communicators' ids around. Null: nobody is asked for them, which only an NCCL can bear that
  /// plays the other ranks (rehearsal/).
  NcclNetwork(GlooNetwork* meeting, std::chrono::milliseconds timeout);
  ~NcclNetwork();
  NcclNetwork(const NcclNetwork&) = delete;
  NcclNetwork& operator=(const NcclNetwork&) = delete;

  /// The group that all `size` ranks call by the same name. Throws CollectiveFailure when they do not come in time.
  std::unique_ptr<Group> group(const std::string& name, int rank, int size);
  /// All ranks have done all that they will do, so that communicators may be closed together. Those that go before are
  /// aborted.
  void done();
  /// Throws CollectiveFailure, with the instruction that had started it, when a collective has failed.
  void check() const;

 private:
  struct State;
  class NcclGroup;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::executor
