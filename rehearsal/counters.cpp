#include "rehearsal/counters.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>

#include "rehearsal/device_memory.h"
#include "rehearsal/stub_gpu.h"

namespace fsdp::rehearsal {
namespace {

constexpr std::array kNames = {
    "malloc",
    "malloc_failed",
    "free",
    "address_reserve",
    "create",
    "create_failed",
    "map",
    "unmap",
    "host_alloc",
    "copy",
    "readback",
    "kernel",
    "graph_launch",
    "module_kernel",  // of these, compiled at run time
    "gemm",
    "lt_matmul",
    "cudnn",
    "fft",
    "event_record",
    "event_query",
    "allocator_event_query",
    "event_synchronize",
    "stream_synchronize",
    "device_synchronize",
    "stream_wait_event",
    "communicator",
    "collective",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "all_to_all",
    "send",
    "recv",
    "gather",
    "scatter",
};
static_assert(kNames.size() == static_cast<size_t>(Counter::Scatter) + 1, "a name for each counter, in their order");

std::array<std::atomic<uint64_t>, kNames.size()> values{};

}  // namespace

void count(Counter counter) {
  values[static_cast<size_t>(counter)].fetch_add(1, std::memory_order_relaxed);
}

Counter counter_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  assert(found != kNames.end());
  return static_cast<Counter>(found - kNames.begin());
}

uint64_t counted(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return values[i].load(std::memory_order_relaxed);
  }
  return 0;
}

const char* name_of(Counter counter) {
  return kNames[static_cast<size_t>(counter)];
}

}  // namespace fsdp::rehearsal

uint64_t stub_gpu_counter(const char* name) {
  using namespace fsdp::rehearsal;
  const std::string_view asked = name;
  if (asked == "used_bytes") return busiest_device().used;
  if (asked == "peak_used_bytes") return busiest_device().peak;
  if (asked == "context_bytes") return busiest_device().context;
  if (asked == "nccl_bytes") return busiest_device().nccl;
  return counted(asked);
}
