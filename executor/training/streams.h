#pragma once

// The streams of FSDP2's communication, and the times of their work. It uses c10's streams and events, which any device
// has, so it needs none of CUDA's headers.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/report/stream_event.h"

namespace fsdp::executor {

/// A point in the work of a stream that other streams can wait for.
class StreamMark {
 public:
  /// Marks the end of the stream's current work.
  explicit StreamMark(const c10::Stream& stream);
  /// Later work of `stream` waits for it; the host does not.
  void hold(const c10::Stream& stream) const;
  /// Whether the device has reached it.
  bool is_passed() const { return event_->query(); }

 private:
  std::shared_ptr<c10::Event> event_;
};

/// Makes `later` wait for all current work of `earlier`.
void wait_for_stream(const c10::Stream& later, const c10::Stream& earlier);

/// FSDPCommContext: the streams of copy-ins, all-gathers and reductions. Those of all-gathers and reduce-scatters, and
/// of their copies, have high priority; that of all-reduces of replicas has not.
struct CommunicationStreams {
  explicit CommunicationStreams(c10::Device device);

  c10::Stream compute;  ///< The current one.
  c10::Stream copy_in;
  c10::Stream all_gather;
  c10::Stream reduce_scatter;
  c10::Stream all_reduce;
};

/// Times of one step from events of the streams themselves, which the host reads after the step.
class StreamClock {
 public:
  explicit StreamClock(c10::Device device) : device_(device) {}

  /// Begins a step and forgets earlier times.
  void begin(const c10::Stream& compute);
  /// The next instruction begins, including the frees at its start.
  void instruction(const c10::Stream& compute);
  /// A span of a stream: call `open` before its work is submitted, `close` after.
  void open(Stream kind, std::string what, const c10::Stream& stream);
  void close(const c10::Stream& stream);
  /// The last instruction has been submitted. The device reaches `end` after all streams have reached their ends of
  /// this step.
  void end(const CommunicationStreams& streams);
  bool is_done() const;

  /// REQUIRES: is_done(). For each instruction, the time from its start to the next one's on the compute stream.
  std::vector<Seconds> instruction_times() const;
  /// In the order of their calls, with stream, name, times and instruction.
  std::vector<fsdp::StreamEvent> spans() const;

 private:
  struct Span {
    Stream stream;
    std::string what;
    std::int32_t instruction;
    std::size_t begin;
    std::size_t end;
  };

  std::size_t record(const c10::Stream& stream);
  Seconds time_of(std::size_t event) const;

  c10::Device device_;
  std::deque<c10::Event> events_;  ///< Reused from step to step.
  std::size_t used_ = 0;
  std::vector<std::size_t> instructions_;  ///< Events at their starts, and one at the end.
  std::vector<Span> spans_;
};

}  // namespace fsdp::executor
