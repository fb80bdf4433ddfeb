#pragma once

// Memory that is freed while another stream uses it: PyTorch's record_stream.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "simulator/memory/stream_order.h"

namespace fsdp::simulator {

/// Keeps the order of streams, and tells a sink that holds what comes back when. To others a free is a free.
template <class Sink>
class HeldFrees {
 public:
  explicit HeldFrees(Sink& sink) : sink_(sink) {}

  StreamOrder& order() { return order_; }

  /// Whether anybody wants to know.
  bool are_held() const {
    if constexpr (requires { sink_.holds(); }) {
      return sink_.holds();
    } else {
      return false;
    }
  }

  /// A tensor is freed that `stream`, which is not that of its memory, has used.
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

  /// A stream was given so many kernels more. The CPU cannot be further ahead of it than the queue of launches is long:
  /// it waits there, and knows then that the stream is past what was launched before.
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

  /// Launches that a stream takes before the next one waits. Not documented; whoever measured it found about a thousand
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

/// A queue of DeepSpeed's, by which its CPU does not run ahead of more than two events.
class EventQueue {
 public:
  /// Before work whose event will be recorded: the CPU waits for the oldest of three.
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
