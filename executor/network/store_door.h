#pragma once

// The door of the store that rank 0 serves: open while the ranks meet, closed from then on.

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace fsdp::executor {

/// The most bytes that all ranks together send to a store while they meet, with much room to spare: each tells each
/// other where its connections are, once per group.
std::int64_t room_for_meeting(int world_size);

/// The addresses at which this process holds connections to `port` of any host, as the other end sees them where
/// nothing between translates addresses: "10.0.0.7 40822".
std::vector<std::string> own_ends(int port);

class StoreDoor {
 public:
  /// `listener`: a socket that listens, which belongs to a store of this process that outlives this. Once those who
  /// came have sent more than `room` bytes, it is closed and all are put out. Throws CollectiveFailure when there are
  /// no descriptors.
  StoreDoor(int listener, std::int64_t room);
  ~StoreDoor();
  StoreDoor(const StoreDoor&) = delete;
  StoreDoor& operator=(const StoreDoor&) = delete;

  int port() const;
  /// Nobody comes in any more; the port is free for others.
  void close();
  /// After `close`: puts out who is not among `ends`. Where an address in between is translated, which shows in an end
  /// that nobody here has, all stay if there are no more of them than ends; else a sentence says so, and nobody is
  /// put out.
  std::string put_out_others(const std::set<std::string>& ends);
  /// Why everybody was put out: a sentence without its full stop. Empty: they were not.
  std::string problem() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fsdp::executor
