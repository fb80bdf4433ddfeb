#pragma once

// Memory that is freed while another stream uses it: PyTorch's record_stream.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "simulator/memory/stream_order.h"

namespace fsdp::simulator {

/// Tracks the order of streams, and reports to a sink that holds memory when it returns. For other sinks it is a plain
/// free.
template <class Sink>
class HeldFrees {
 public:
  explicit HeldFrees(Sink& sink) : sink_(sink) {}

  StreamOrder& order() { return order_; }

  /// True if the sink holds memory.
  bool are_held() const {
    if constexpr (requires { sink_.holds(); }) {
      return sink_.holds();
    } else {
      return false;
    }
  }

  /// Frees a tensor that `stream`, which is not that of its memory, has used.
  void free_behind(int tensor, MemoryStream stream) {
    if constexpr (requires { sink_.holds(); }) {
      if (sink_.holds()) {
        sink_.free_behind(tensor, stream, order_.submit(stream).ticket);
        has_any_ = true;
        return;
      }
    }
    sink_.free(tensor);
  }

  /// Launches `kernels` more on a stream. The CPU can be ahead of it by at most the length of the launch queue: then it
  /// waits, and knows that the stream has passed earlier launches.
  void launch(MemoryStream stream, std::int64_t kernels) {
    if (!are_held() || kernels == 0) return;
    num_launched_ += kernels;
    launches_.push_back({num_launched_, order_.submit(stream)});
    for (; launches_.front().number + kLaunchQueue <= num_launched_; launches_.pop_front()) {
      finish(launches_.front().mark);
    }
  }

  /// The CPU waits for a mark, or for everything.
  void finish(const StreamOrder::Mark& mark) {
    order_.finish(mark);
    reach();
  }
  void finish_all() {
    order_.finish_all();
    reach();
  }

 private:
  void reach() {
    if constexpr (requires { sink_.holds(); }) {
      if (!has_any_) return;
      for (int s = 0; s < kNumMemoryStreams; ++s) {
        const auto stream = static_cast<MemoryStream>(s);
        sink_.reach(stream, order_.waited_for(stream));
      }
    }
  }

  /// Launches that a stream takes before the next one waits. Undocumented; a measurement found about a thousand
  /// (stackoverflow.com/questions/53970187).
  static constexpr std::int64_t kLaunchQueue = 1024;
  struct Launch {
    std::int64_t number = 0;  // Number of its last kernel.
    StreamOrder::Mark mark;
  };

  Sink& sink_;
  StreamOrder order_;
  bool has_any_ = false;
  std::int64_t num_launched_ = 0;
  std::deque<Launch> launches_;
};

/// A queue of DeepSpeed's, which keeps its CPU at most two events ahead.
class EventQueue {
 public:
  /// Before work that records an event: the CPU waits for the oldest of three.
  template <class Sink>
  void limit(HeldFrees<Sink>& held) {
    while (!events_.empty() && held.order().is_finished(events_.front())) events_.pop_front();
    if (events_.size() <= kMostOpen) return;
    held.finish(events_.front());
    events_.pop_front();
  }
  void record(const StreamOrder::Mark& mark) { events_.push_back(mark); }

 private:
  static constexpr std::size_t kMostOpen = 2;
  std::deque<StreamOrder::Mark> events_;
};

}  // namespace fsdp::simulator
