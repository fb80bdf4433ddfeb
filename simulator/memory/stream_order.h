#pragma once

// The work that the CPU knows to be finished if it never waits longer than it must: the latest time at which memory
// that another stream uses returns.

#include <array>
#include <cstdint>
#include <vector>

#include "simulator/memory/memory_sinks.h"

namespace fsdp::simulator {

/// Streams, their dependencies, and how far the CPU has waited. We assume that the GPU does nothing before something
/// waits for it: the extreme that `STUB_GPU_EVENTS=hold` is for the real PyTorch.
class StreamOrder {
 public:
  /// A place in a stream.
  struct Mark {
    MemoryStream stream = MemoryStream::Compute;
    std::int64_t ticket = 0;  ///< 0 for its beginning.
  };

  /// Appends work to a stream.
  Mark submit(MemoryStream stream) { return {stream, ++at(stream).submitted}; }

  /// New work of `stream` starts after the mark.
  void wait(MemoryStream stream, const Mark& mark) {
    if (mark.ticket <= at(mark.stream).waited_for) return;
    Stream& waiting = at(stream);
    waiting.dependencies.push_back({++waiting.submitted, mark});
  }
  /// ... and after all current work of another stream.
  void wait(MemoryStream stream, MemoryStream other) { wait(stream, {other, at(other).submitted}); }

  /// A collective: those of one communicator run in the order of issue, on any streams (ncclLaunchPrepare in NCCL's
  /// enqueue.cc). Returns its end.
  Mark collective(MemoryStream stream, int communicator) {
    Mark& last = last_collective_[static_cast<std::size_t>(communicator)];
    wait(stream, last);
    last = submit(stream);
    return last;
  }

  /// The CPU waits for the mark, and so for all work that the mark depends on.
  void finish(const Mark& first) {
    std::vector<Mark> open{first};
    while (!open.empty()) {
      const Mark mark = open.back();
      open.pop_back();
      Stream& stream = at(mark.stream);
      if (mark.ticket <= stream.waited_for) continue;
      stream.waited_for = mark.ticket;
      while (stream.next < stream.dependencies.size() && stream.dependencies[stream.next].ticket <= mark.ticket) {
        open.push_back(stream.dependencies[stream.next++].on);
      }
      if (stream.next == stream.dependencies.size()) stream.forget();
    }
  }

  /// The CPU waits for the whole device.
  void finish_all() {
    for (Stream& stream : streams_) {
      stream.waited_for = stream.submitted;
      stream.forget();
    }
  }

  bool is_finished(const Mark& mark) const { return mark.ticket <= waited_for(mark.stream); }

  /// The latest mark of a stream that the CPU has waited for.
  std::int64_t waited_for(MemoryStream stream) const { return streams_[static_cast<std::size_t>(stream)].waited_for; }

 private:
  struct Dependency {
    std::int64_t ticket = 0;  // In the waiting stream.
    Mark on;
  };
  struct Stream {
    std::int64_t submitted = 0;
    std::int64_t waited_for = 0;
    std::vector<Dependency> dependencies;  // By rising ticket; those before `next` are done.
    std::size_t next = 0;

    void forget() {
      dependencies.clear();
      next = 0;
    }
  };

  Stream& at(MemoryStream stream) { return streams_[static_cast<std::size_t>(stream)]; }

  std::array<Stream, kNumMemoryStreams> streams_;
  std::array<Mark, 4> last_collective_{};  // [communicators]
};

}  // namespace fsdp::simulator
