// Source of the streams and their priorities: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py
// (FSDPCommContext), torch 2.11.

#include "executor/training/streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace fsdp::executor {

namespace {

c10::Stream from_pool(c10::Device device, bool has_high_priority) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, has_high_priority);
}

}  // namespace

StreamMark::StreamMark(const c10::Stream& stream)
    : event_(std::make_shared<c10::Event>(stream.device_type(), c10::EventFlag::PYTORCH_DEFAULT)) {
  event_->record(stream);
}

void StreamMark::hold(const c10::Stream& stream) const {
  event_->block(stream);
}

void wait_for_stream(const c10::Stream& later, const c10::Stream& earlier) {
  StreamMark(earlier).hold(later);
}

CommunicationStreams::CommunicationStreams(c10::Device device)
    : compute(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
      copy_in(from_pool(device, true)),
      all_gather(from_pool(device, true)),
      reduce_scatter(from_pool(device, true)),
      all_reduce(from_pool(device, false)) {}

std::size_t StreamClock::record(const c10::Stream& stream) {
  if (used_ == events_.size()) events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  events_[used_].record(stream);
  return used_++;
}

void StreamClock::begin(const c10::Stream& compute) {
  used_ = 0;
  instructions_.clear();
  spans_.clear();
  record(compute);
}

void StreamClock::instruction(const c10::Stream& compute) {
  instructions_.push_back(record(compute));
}

void StreamClock::open(Stream kind, std::string what, const c10::Stream& stream) {
  const auto now = static_cast<std::int32_t>(instructions_.size()) - 1;
  spans_.push_back({kind, std::move(what), now, record(stream), 0});
}

void StreamClock::close(const c10::Stream& stream) {
  spans_.back().end = record(stream);
}

void StreamClock::end(const CommunicationStreams& streams) {
  for (const c10::Stream& each : {streams.copy_in, streams.all_gather, streams.reduce_scatter, streams.all_reduce}) {
    wait_for_stream(streams.compute, each);
  }
  instructions_.push_back(record(streams.compute));
}

bool StreamClock::is_done() const {
  return events_[instructions_.back()].query();
}

Seconds StreamClock::time_of(std::size_t event) const {
  return Seconds(1e-3 * events_.front().elapsedTime(events_[event]));
}

std::vector<Seconds> StreamClock::instruction_times() const {
  std::vector<Seconds> times;
  for (std::size_t i = 1; i < instructions_.size(); ++i) {
    times.push_back(time_of(instructions_[i]) - time_of(instructions_[i - 1]));
  }
  return times;
}

std::vector<fsdp::StreamEvent> StreamClock::spans() const {
  std::vector<fsdp::StreamEvent> spans;
  for (const Span& span : spans_) {
    fsdp::StreamEvent& event = spans.emplace_back();
    event.stream = span.stream;
    event.name = span.what;
    event.start = time_of(span.begin);
    event.end = time_of(span.end);
    event.instruction = span.instruction;
  }
  return spans;
}

}  // namespace fsdp::executor
