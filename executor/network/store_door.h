#pragma once

// The door of rank 0's store: open while the ranks meet, closed afterwards.

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace fsdp::executor {

/// The most bytes that all ranks together send to a store while they meet, with ample room: each sends the addresses of
/// its connections to each other, once per group.
std::int64_t room_for_meeting(int world_size);

/// The addresses of this process's connections to `port` of any host, as the other end sees them if nothing between
/// translates addresses: "10.0.0.7 40822".
std::vector<std::string> own_ends(int port);

class StoreDoor {
 public:
  /// `listener`: the listening socket of this process's store, which outlives this. After more than `room` bytes from
  /// all connections, the door closes and disconnects them all. Throws CollectiveFailure if there are no descriptors.
  StoreDoor(int listener, std::int64_t room);
  ~StoreDoor();
  StoreDoor(const StoreDoor&) = delete;
  StoreDoor& operator=(const StoreDoor&) = delete;

  int port() const;
  /// Accepts no more connections; the port is free for others.
  void close();
  /// Call after `close`: disconnects everyone who is not among `ends`. If an address is translated on the way, as an
  /// unknown end shows, all remain if they are no more than `ends`; otherwise it returns a sentence and disconnects
  /// nobody.
  std::string put_out_others(const std::set<std::string>& ends);
  /// Why everybody was disconnected: a sentence without its full stop. Empty if they were not.
  std::string problem() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::executor
