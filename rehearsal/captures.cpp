#include "rehearsal/captures.h"

#include <atomic>
#include <map>
#include <mutex>

// A capture begins on one stream. Another stream joins when it waits for an event that was recorded in it, and all
// streams leave when the capture ends on the first one. Captured work is dropped, except the collectives: a graph
// issues them at each launch.

namespace fsdp::rehearsal {
namespace {

struct Capture {
  cudaStream_t origin;
  CapturedWork work;
};

struct Captures {
  std::mutex mutex;
  std::atomic<size_t> active{0};  // each allocation of PyTorch checks this, and nearly always there is none
  uint64_t next = 1;
  std::map<uint64_t, Capture> of;
  std::map<cudaStream_t, uint64_t> streams;
};

Captures& captures() {
  static Captures* const instance = new Captures;  // never destroyed: static destructors still call us
  return *instance;
}

}  // namespace

bool anything_is_captured() {
  return captures().active != 0;
}

uint64_t capture_of(cudaStream_t stream) {
  Captures& c = captures();
  if (c.active == 0) return 0;
  const std::lock_guard lock(c.mutex);
  const auto found = c.streams.find(stream);
  return found == c.streams.end() ? 0 : found->second;
}

bool begin_capture(cudaStream_t stream) {
  Captures& c = captures();
  const std::lock_guard lock(c.mutex);
  if (c.streams.contains(stream)) return false;
  const uint64_t number = c.next++;
  c.of.emplace(number, Capture{stream, {}});
  c.streams[stream] = number;
  c.active = c.of.size();
  return true;
}

void join_capture(cudaStream_t stream, uint64_t capture) {
  if (capture == 0) return;
  Captures& c = captures();
  const std::lock_guard lock(c.mutex);
  if (c.of.contains(capture)) c.streams.emplace(stream, capture);
}

CapturedWork* end_capture(cudaStream_t stream) {
  Captures& c = captures();
  const std::lock_guard lock(c.mutex);
  const auto found = c.streams.find(stream);
  if (found == c.streams.end() || c.of.at(found->second).origin != stream) return nullptr;
  const uint64_t number = found->second;
  auto* const work = new CapturedWork(std::move(c.of.at(number).work));
  c.of.erase(number);
  std::erase_if(c.streams, [&](const auto& entry) { return entry.second == number; });
  c.active = c.of.size();
  return work;
}

bool captured(cudaStream_t stream, const stub_gpu_collective& collective) {
  Captures& c = captures();
  if (c.active == 0) return false;
  const std::lock_guard lock(c.mutex);
  const auto found = c.streams.find(stream);
  if (found == c.streams.end()) return false;
  c.of.at(found->second).work.collectives.push_back(collective);
  return true;
}

}  // namespace fsdp::rehearsal
