#pragma once

// Counts events. A counter costs one atomic addition, so counters are always on.

#include <cstdint>
#include <string_view>

namespace fsdp::rehearsal {

/// The counters; counters.cpp has the public names.
enum class Counter {
  Malloc,
  MallocFailed,
  Free,
  AddressReserve,
  Create,
  CreateFailed,
  Map,
  Unmap,
  HostAlloc,
  Copy,
  Readback,
  Kernel,
  GraphLaunch,
  ModuleKernel,
  Gemm,
  LtMatmul,
  Cudnn,
  Fft,
  EventRecord,
  EventQuery,
  AllocatorEventQuery,
  EventSynchronize,
  StreamSynchronize,
  DeviceSynchronize,
  StreamWaitEvent,
  Communicator,
  Collective,
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Reduce,
  AllToAll,
  Send,
  Recv,
  Gather,
  Scatter,
};

/// One more.
void count(Counter counter);

/// The counter of that name, which must exist.
Counter counter_named(std::string_view name);

/// The count so far; 0 for a name that no counter has.
uint64_t counted(std::string_view name);

/// The name of a counter, as "all_gather".
const char* name_of(Counter counter);

}  // namespace fsdp::rehearsal
