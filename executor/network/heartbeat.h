#pragma once

// Whether the other ranks live. A collective on a GPU waits for a rank that is gone as for one that is late, so that
// only the store can tell.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class Store;
}

namespace fsdp::executor {

/// Tells through the store that this rank lives, and listens to the next one, from a thread of its own.
class Heartbeat {
 public:
  /// A rank that has said nothing for `patience` is lost. `store`: a connection that nobody else uses.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::chrono::milliseconds patience);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// The end of a rank, in words; the same words on all ranks. Empty if nothing is known.
  std::string lost() const;
  /// This rank has failed, and says why itself. Waits some moments until the others can hear that it has.
  void say_failed();
  /// Says and hears nothing any more. Waits some moments for a request that is under way, and not for longer.
  void end();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::executor
