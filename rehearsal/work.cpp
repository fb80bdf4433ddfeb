#include "rehearsal/work.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rehearsal/errors.h"
#include "rehearsal/options.h"

// The time at which work is finished affects the memory of tensors passed to another stream with record_stream: PyTorch
// reuses it once an event recorded there is done. Kernels take no time here, so the answer is a choice between two
// extremes. `done`: work is finished when it is submitted. `hold`: work is finished only after the host has waited for
// it, directly, through a stream, or through an event of a stream that waits for this one; a stream without work has
// nothing left to finish. The default stream never counts as such, since libraries (cuBLAS, cuDNN) run there unseen. A
// real run lies between; `lag:N` is a crude picture of a host that runs N kernels ahead of the device.
//
// The host's waits are recorded in either case, so that a run under `done` knows whether `hold` could differ.

namespace fsdp::rehearsal {
namespace {

struct Dependency {
  uint64_t ticket;  // of the waiting stream
  Mark on;
};

struct Stream {
  uint64_t submitted = 0;
  uint64_t waited_for = 0;
  std::deque<Dependency> dependencies;  // by rising ticket
};

struct Work {
  std::mutex mutex;
  uint64_t kernels = 0;
  std::unordered_map<cudaStream_t, Stream> streams;
  std::unordered_map<cudaStream_t, uint64_t> stuck;  // the first stuck ticket
  std::unordered_map<int, Mark> last_of_queue;

  bool is_stuck(const Mark& mark) const {
    const auto found = stuck.find(mark.stream);
    return found != stuck.end() && mark.ticket >= found->second;
  }
};

Work& work() {
  static Work* const instance = new Work;  // never destroyed: static destructors still call us
  return *instance;
}

/// Follows the waits between streams with an explicit list, since a chain of them can be long. The caller holds the
/// mutex.
void finish_with_dependencies(Work& w, Mark first) {
  std::vector<Mark> open{std::move(first)};
  while (!open.empty()) {
    const Mark mark = open.back();
    open.pop_back();
    Stream& stream = w.streams[mark.stream];
    if (mark.ticket <= stream.waited_for) continue;
    stream.waited_for = mark.ticket;
    while (!stream.dependencies.empty() && stream.dependencies.front().ticket <= mark.ticket) {
      open.push_back(stream.dependencies.front().on);
      stream.dependencies.pop_front();
    }
  }
}

}  // namespace

Mark submit(cudaStream_t stream) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  return Mark{stream, ++w.streams[stream].submitted, w.kernels};
}

Mark end_of(cudaStream_t stream) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  Stream& s = w.streams[stream];
  const bool has_nothing = stream != nullptr && s.submitted == s.waited_for;
  if (!has_nothing) ++s.submitted;
  return Mark{stream, s.submitted, w.kernels};
}

void wait_for(cudaStream_t stream, const Mark& mark) {
  if (mark.ticket == 0) return;
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  // A waiting stream is about to get work.
  const uint64_t ticket = ++w.streams[stream].submitted;
  if (w.is_stuck(mark)) w.stuck.try_emplace(stream, ticket);
  if (mark.ticket <= w.streams[mark.stream].waited_for) return;
  w.streams[stream].dependencies.push_back(Dependency{ticket, mark});
}

void submit_in_order(int queue, cudaStream_t stream) {
  Mark last;
  {
    Work& w = work();
    const std::lock_guard lock(w.mutex);
    last = w.last_of_queue[queue];
  }
  if (last.stream != stream) wait_for(stream, last);
  last = submit(stream);
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  w.last_of_queue[queue] = last;
}

bool is_finished(const Mark& mark) {
  if (options().events == EventTiming::Done && options().fault != Fault::Hang) return true;
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  if (w.is_stuck(mark)) return false;
  if (options().events == EventTiming::Done) return true;
  const bool overtaken = options().events == EventTiming::Lag && w.kernels - mark.kernels >= options().event_lag;
  return overtaken || mark.ticket <= w.streams[mark.stream].waited_for;
}

bool was_waited_for(const Mark& mark) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  return mark.ticket <= w.streams[mark.stream].waited_for;
}

void finish(const Mark& mark) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  finish_with_dependencies(w, mark);
}

void finish_stream(cudaStream_t stream) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  finish_with_dependencies(w, Mark{stream, w.streams[stream].submitted, 0});
}

void finish_everything() {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  for (auto& [handle, stream] : w.streams) {
    stream.waited_for = stream.submitted;
    stream.dependencies.clear();
  }
}

bool is_idle(cudaStream_t stream) {
  if (options().events == EventTiming::Done) return true;
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  return w.streams[stream].waited_for == w.streams[stream].submitted;
}

void hang(cudaStream_t stream) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  w.stuck.try_emplace(stream, ++w.streams[stream].submitted);
}

cudaError_t state_of_device() {
  if (options().fault != Fault::IllegalAddress) return cudaSuccess;
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  return w.kernels >= options().fault_at ? report(cudaErrorIllegalAddress) : cudaSuccess;
}

void kernel_launched(cudaStream_t stream) {
  Work& w = work();
  const std::lock_guard lock(w.mutex);
  ++w.kernels;
  ++w.streams[stream].submitted;
}

}  // namespace fsdp::rehearsal
