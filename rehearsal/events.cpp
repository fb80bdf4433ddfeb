#include "rehearsal/events.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "rehearsal/captures.h"
#include "rehearsal/errors.h"
#include "rehearsal/exported.h"
#include "rehearsal/options.h"

namespace fsdp::rehearsal {
namespace {

/// An event changes in other threads: the watchdog of ProcessGroupNCCL queries the events that the program records.
struct Event {
  std::mutex mutex;
  Mark mark;
};

Event& behind(cudaEvent_t event) {
  return *reinterpret_cast<Event*>(event);
}

/// Whether code lies in libc10_cuda, which contains the allocator of device memory (that of pinned memory is in
/// libtorch_cuda). Few addresses are looked up, and often, so the answers are cached.
bool is_allocator(const void* code) {
  static std::mutex mutex;
  static auto* const answers = new std::unordered_map<const void*, bool>;
  const std::lock_guard lock(mutex);
  const auto [answer, is_new] = answers->try_emplace(code, false);
  if (is_new) {
    Dl_info info{};
    answer->second =
        dladdr(code, &info) != 0 && std::string_view(info.dli_fname).find("libc10_cuda") != std::string_view::npos;
  }
  return answer->second;
}

}  // namespace

Mark mark_of(cudaEvent_t event) {
  Event& e = behind(event);
  const std::lock_guard lock(e.mutex);
  return e.mark;
}

}  // namespace fsdp::rehearsal

using namespace fsdp::rehearsal;

FSDP_STUB cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

FSDP_STUB cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &behind(event);
  return cudaSuccess;
}

FSDP_STUB cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  count(Counter::EventRecord);
  if (options().fault == Fault::Event) {
    static std::atomic<std::uint64_t> records = 0;
    if (++records == options().fault_at) return report(cudaErrorMemoryAllocation);
  }
  Mark mark;  // captured work does not run, so there is nothing to wait for
  mark.capture = capture_of(stream);
  if (mark.capture == 0) mark = end_of(stream);
  Event& e = behind(event);
  const std::lock_guard lock(e.mutex);
  e.mark = mark;
  return cudaSuccess;
}
FSDP_STUB cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}

// PyTorch's allocator queries the events of record_stream before it reuses a block. If the host has not waited for such
// an event, the answer depends on the speed of the card, and so does the memory; allocator_event_query counts these
// queries.
FSDP_STUB cudaError_t cudaEventQuery(cudaEvent_t event) {
  count(Counter::EventQuery);
  const Mark mark = mark_of(event);
  if (!was_waited_for(mark) && is_allocator(__builtin_return_address(0))) count(Counter::AllocatorEventQuery);
  if (const cudaError_t state = state_of_device(); state != cudaSuccess) return state;
  return is_finished(mark) ? cudaSuccess : report(cudaErrorNotReady);
}

FSDP_STUB cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count(Counter::EventSynchronize);
  finish(mark_of(event));
  return state_of_device();
}

// No time passes on the card. Any two events are a millisecond apart, so that a rate is a number.
FSDP_STUB cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
