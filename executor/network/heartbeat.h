#pragma once

// Checks whether the other ranks are alive. A collective on a GPU waits for a dead rank as for a late one, so only the
// store can tell them apart.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class Store;
}

namespace fsdp::executor {

/// Reports through the store that this rank is alive, and listens to the next one, on its own thread.
class Heartbeat {
 public:
  /// A rank that is silent for `patience` is lost. `store`: a connection that nobody else uses.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::chrono::milliseconds patience);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// The end of a rank, in words; the same words on all ranks. Empty if none is known.
  std::string lost() const;
  /// Reports that this rank has failed; the rank itself prints the reason. Waits a moment until the others can read it.
  void say_failed();
  /// Stops sending and listening. Waits a moment for a request in progress, and no longer.
  void end();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::executor
