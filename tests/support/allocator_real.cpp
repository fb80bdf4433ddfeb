#include "tests/support/allocator_real.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/fake_cuda_runtime.h"

// Exported by libc10_cuda.so and in none of its headers: libtorch_cuda sets it.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

namespace fsdp::simulator {

namespace {

namespace real = c10::cuda::CUDACachingAllocator;

constexpr int kStreamShift = 12;  // A handle has zeros at its end, as the driver's do.

cudaStream_t handle_of(std::int64_t stream) {
  return reinterpret_cast<cudaStream_t>(stream << kStreamShift);
}

std::int64_t offset_of(const void* pointer) {
  return reinterpret_cast<std::int64_t>(pointer) - fsdp_fake_base();
}

AllocatorStat convert(const c10::CachingAllocator::Stat& stat) {
  return {.current = stat.current, .peak = stat.peak, .allocated = stat.allocated, .freed = stat.freed};
}

AllocatorStats convert(const c10::CachingAllocator::StatArray& stats) {
  return {.all = convert(stats[0]), .small = convert(stats[1]), .large = convert(stats[2])};
}

SegmentSnapshot convert(const real::SegmentInfo& segment) {
  SegmentSnapshot converted{
      .address = static_cast<std::int64_t>(segment.address) - fsdp_fake_base(),
      .stream = static_cast<AllocatorStream>(reinterpret_cast<std::int64_t>(segment.stream) >> kStreamShift),
      .is_large = segment.is_large,
      .is_expandable = segment.is_expandable,
      .blocks = {}};
  std::int64_t address = converted.address;
  for (const auto& block : segment.blocks) {
    const auto size = static_cast<std::int64_t>(block.size);
    converted.blocks.push_back({.address = address,
                                .size = Bytes(size),
                                .requested = Bytes(static_cast<std::int64_t>(block.requested_size)),
                                .state = block.allocated ? SnapshotState::Allocated
                                         : block.active  ? SnapshotState::PendingFree
                                                         : SnapshotState::Free});
    address += size;
  }
  return converted;
}

}  // namespace

RealAllocator::RealAllocator(const AllocatorTrace& trace) : trace_(trace) {
  fsdp_fake_set_total(trace.device.total.count());
  fsdp_fake_set_used_by_others(trace.device.used_by_others.count());
  fsdp_fake_hold_events(trace.device.progress == StreamProgress::OnDemand);
  // The settings are read once, when the allocator starts.
  ::unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  ::setenv("PYTORCH_ALLOC_CONF", trace.settings_text.c_str(), 1);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  real::init(1);
}

std::optional<StepResult> RealAllocator::malloc(const TraceStep& step) {
  void*& pointer = live_[step.id];
  pointer = nullptr;
  const std::int64_t before = real::getDeviceStats(0).allocated_bytes[0].current;
  try {
    pointer = real::raw_alloc_with_stream(static_cast<std::size_t>(step.bytes), handle_of(step.stream));
  } catch (const c10::OutOfMemoryError&) {
    return StepResult{.outcome = AllocationOutcome::OutOfMemory};
  }
  if (pointer == nullptr) return StepResult{.outcome = AllocationOutcome::Empty};
  const std::int64_t after = real::getDeviceStats(0).allocated_bytes[0].current;
  return StepResult{.address = offset_of(pointer), .block_bytes = Bytes(after - before)};
}

std::optional<StepResult> RealAllocator::result_of(const TraceStep& step) {
  try {
    if (step.operation == TraceOperation::Malloc) return malloc(step);
    apply_rare(step);
    return StepResult{};
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

void RealAllocator::apply_rare(const TraceStep& step) {
  switch (step.operation) {
    case TraceOperation::Malloc:
      break;
    case TraceOperation::Free:
      if (live_[step.id] != nullptr) real::raw_delete(live_[step.id]);
      live_[step.id] = nullptr;
      break;
    case TraceOperation::RecordStream: {
      void* const pointer = live_[step.id];
      c10::DataPtr data(pointer, pointer, real::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
      real::recordStream(data, c10::cuda::getStreamFromExternal(handle_of(step.stream), 0));
      data.release_context();
      break;
    }
    case TraceOperation::Synchronize:
      fsdp_fake_complete(handle_of(step.stream));
      break;
    case TraceOperation::SynchronizeAll:
      fsdp_fake_complete_all();
      break;
    case TraceOperation::EmptyCache:
      real::emptyCache();
      break;
    case TraceOperation::ChangeSettings:
      c10::CachingAllocator::setAllocatorSettings(trace_.settings_changes[step.bytes]);
      break;
    case TraceOperation::LimitMemory:
      real::setMemoryFraction(trace_.fractions[step.bytes], 0);
      break;
    case TraceOperation::ResetPeak:
      real::resetPeakStats(0);
      break;
  }
}

AllocatorStatistics RealAllocator::statistics() const {
  const c10::CachingDeviceAllocator::DeviceStats stats = real::getDeviceStats(0);
  return {.allocation = convert(stats.allocation),
          .segment = convert(stats.segment),
          .active = convert(stats.active),
          .inactive_split = convert(stats.inactive_split),
          .allocated_bytes = convert(stats.allocated_bytes),
          .reserved_bytes = convert(stats.reserved_bytes),
          .active_bytes = convert(stats.active_bytes),
          .inactive_split_bytes = convert(stats.inactive_split_bytes),
          .requested_bytes = convert(stats.requested_bytes),
          .oversize_allocations = convert(stats.oversize_allocations),
          .oversize_segments = convert(stats.oversize_segments),
          .num_alloc_retries = stats.num_alloc_retries,
          .num_ooms = stats.num_ooms,
          .num_sync_all_streams = stats.num_sync_all_streams,
          .num_device_alloc = stats.num_device_alloc,
          .num_device_free = stats.num_device_free};
}

AllocatorState RealAllocator::state() const {
  const FsdpFakeCalls calls = fsdp_fake_calls();
  AllocatorState state{.statistics = statistics(),
                       .driver_calls = {.num_malloc = calls.num_malloc,
                                        .num_malloc_failed = calls.num_malloc_failed,
                                        .num_free = calls.num_free,
                                        .num_create = calls.num_create,
                                        .num_create_failed = calls.num_create_failed,
                                        .num_unmap = calls.num_unmap,
                                        .num_reserve = calls.num_reserve,
                                        .num_event_record = calls.num_event_record,
                                        .peak_used = Bytes(calls.peak_used_bytes)},
                       .device_used = Bytes(calls.used_bytes),
                       .segments = {}};
  for (const real::SegmentInfo& segment : real::snapshot().segments) state.segments.push_back(convert(segment));
  std::sort(state.segments.begin(), state.segments.end(),
            [](const SegmentSnapshot& a, const SegmentSnapshot& b) { return a.address < b.address; });
  return state;
}

TraceRunner runner_of(RealAllocator& allocator) {
  return {.result_of = [&](const TraceStep& step) { return allocator.result_of(step).value_or(StepResult{}); },
          .statistics = [&] { return allocator.statistics(); },
          .state = [&] { return allocator.state(); }};
}

}  // namespace fsdp::simulator
