#pragma once

// The timeline and memory of one step as a trace in the format of PyTorch's profiler (Kineto). It opens in Perfetto and
// chrome://tracing, and HolisticTraceAnalysis reads it like a measured one.

#include <cstdint>
#include <string>
#include <vector>

#include "core/report/stream_event.h"

namespace fsdp {

/// Memory at one moment.
struct TraceMemory {
  Seconds time{0};  ///< Since the step began.
  BytesByCategory live{};
  Bytes reserved;

  bool operator==(const TraceMemory&) const = default;
};

struct Trace {
  std::string kind = "predicted";  ///< Or "measured".
  std::string model;
  std::string gpu;
  Bytes device_memory;
  std::int64_t rank = 0;  ///< In the world.
  std::int64_t world_size = 1;
  std::int64_t gpus_per_node = 1;
  Seconds step{0};
  std::vector<StreamEvent> events;  ///< Events of one stream are in order and do not overlap.
  std::vector<TraceMemory> memory;  ///< In order of time.
};

/// The trace of one rank as Chrome Trace Event JSON: one process for the device with a thread for each stream, arrows
/// from the awaited events, and a counter for each category of memory. Times are exact to a nanosecond.
std::string to_chrome_trace(const Trace& trace);

}  // namespace fsdp
