// libFuzzer: any bytes as a recorded run, a pickle or a text trace. What is read can be replayed, and its text is the
// same trace again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/formats/pickle.h"
#include "replay/replay.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fsdp;
  using namespace fsdp::planner;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const Result<replay::Recording> recording =
      is_pickle(bytes) ? replay::read_recorded_snapshot(bytes, "fuzz") : replay::read_recorded_trace(bytes, "fuzz");
  if (!recording) {
    if (recording.error().empty()) std::abort();
    return 0;
  }
  const Result<simulator::AllocatorTrace> again = simulator::read_allocator_trace(recording->text, "again");
  if (!again || *again != recording->trace) std::abort();
  const replay::ReplayResult result = replay::replay(*recording, replay::as_recorded(*recording));
  if (result.reserved_peak < result.active_peak) std::abort();
  return 0;
}
