// Three answers from three sizes. An allocator without free memory first waits for memory of other streams, then
// flushes its cache, and tries again; only then does it fail. So the reserve of an allocator without a limit is not the
// minimum for a run; the minimum is the least budget that the allocator survives in.
//
//   peak + margin <= budget                            fits
//   peak + margin - held <= budget < peak + margin     tight: other streams may hold more than is left
//   peak <= budget < peak + margin - held              tight: the room is less than the error of predictions
//   budget < peak, and an allocator below it survives  tight: it flushes its cache
//   else                                               does not fit
//
// Sources: c10/cuda/CUDACachingAllocator.cpp (torch 2.11), DeviceCachingAllocator::malloc: alloc_block, then
// release_available_cached_blocks, then release_cached_blocks, which synchronizes the events of all streams.

#include "core/report/device_verdict.h"

#include <algorithm>

namespace fsdp {

DeviceVerdict verdict_of(const DeviceNeed& need) {
  if (need.peak + need.margin <= need.budget) return {Verdict::Fits, Tightness::None};
  if (need.peak + need.margin - need.held <= need.budget) return {Verdict::Fits, Tightness::Streams};
  if (need.peak <= need.budget) return {Verdict::Fits, Tightness::Margin};
  if (need.flushes >= 0) return {Verdict::Fits, Tightness::Flushes};
  return {Verdict::DoesNotFit, Tightness::None};
}

DeviceVerdict device_verdict_of(const MemoryReport& memory) {
  return verdict_of({.budget = memory.budget,
                     .peak = memory.peaks.device,
                     .margin = memory.margin,
                     .held = memory.held,
                     .flushes = memory.cache_flushes});
}

Bytes missing_room(const MemoryReport& memory) {
  return std::max(Bytes(0), memory.peaks.device + memory.margin - memory.budget);
}

}  // namespace fsdp
