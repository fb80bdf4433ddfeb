#pragma once

// What is freed while another stream uses it: PyTorch's record_stream.

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

  Sink& sink_;
  StreamOrder order_;
  bool has_any_ = false;
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
