// The allocator reports each request under its lock, with the requested bytes. No two live allocations share an
// address, so an address names an allocation until it is freed.
//
// Sources: c10/cuda/CUDACachingAllocator.h (attachAllocatorTraceTracker, getDeviceStats), torch 2.11; the recording's
// format: tests/golden/allocator/README.md.

#include "executor/memory/cuda_memory.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/base/files.h"

namespace fsdp::executor {

namespace {

namespace cca = c10::cuda::CUDACachingAllocator;
using Entry = c10::CachingDeviceAllocator::TraceEntry;

constexpr auto kAllPools = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

std::pair<std::int64_t, std::int64_t> free_and_total() {
  std::size_t free = 0;
  std::size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

}  // namespace

/// The allocator keeps its trackers until the process ends, and destructors of statics may free after this object's
/// destruction.
struct CudaMemory::Follower {
  std::mutex mutex;
  CudaMemory* memory;  ///< Null after its destruction.
};

CudaMemory::CudaMemory(int device, std::string settings, bool records)
    : follower_(std::make_shared<Follower>()),
      device_(device),
      settings_(std::move(settings)),
      records_(records),
      free_at_start_(free_and_total().first) {
  follower_->memory = this;
  cca::attachAllocatorTraceTracker([device, follower = follower_](const Entry& entry) {
    if (entry.device_ != device) return;
    const std::lock_guard lock(follower->mutex);
    if (follower->memory == nullptr) return;
    follower->memory->happened(static_cast<int>(entry.action_), static_cast<std::uintptr_t>(entry.addr_), entry.size_,
                               entry.stream_);
  });
}

CudaMemory::~CudaMemory() {
  set_reserve_meter(nullptr);
  const std::lock_guard lock(follower_->mutex);
  follower_->memory = nullptr;
}

void CudaMemory::happened(int action, std::uintptr_t address, std::size_t bytes, const void* stream) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an identifier, which is never dereferenced.
  const auto* const name = reinterpret_cast<const void*>(address);
  if (action == Entry::ALLOC) count_allocation(name, static_cast<std::int64_t>(bytes));
  if (action == Entry::FREE_COMPLETED) count_release(name);
  if (!records_) return;
  const std::lock_guard lock(mutex_);
  if (action == Entry::ALLOC) {
    ids_[address] = next_id_;
    recording_ += fmt::format("alloc {} {} {}\n", next_id_++, bytes, number_of(stream));
  } else if (action == Entry::FREE_REQUESTED) {
    recording_ += fmt::format("free {}\n", ids_[address]);
    ids_.erase(address);
  }
}

int CudaMemory::number_of(const void* stream) {
  return streams_.emplace(stream, static_cast<int>(streams_.size())).first->second;
}

// A thread's first product makes cuBLAS's workspace, in any category, and the workspace remains.
void CudaMemory::recount_workspaces() {
  for (auto* workspaces :
       {&at::cuda::cublas_handle_stream_to_workspace(), &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::shared_lock lock(workspaces->mutex);
    for (const auto& [owner, memory] : workspaces->map) recount(memory.get(), MemoryCategory::Temp);
  }
}

void CudaMemory::begin_peak() {
  recount_workspaces();
  cca::resetPeakStats(static_cast<c10::DeviceIndex>(device_));
  const std::lock_guard lock(mutex_);
  if (records_) recording_ += "reset_peak\n";
}

void CudaMemory::add_to(LivePeak& peak) const {
  const auto stats = cca::getDeviceStats(static_cast<c10::DeviceIndex>(device_));
  peak.allocated = Bytes(stats.allocated_bytes[kAllPools].peak);
  peak.reserved = Bytes(stats.reserved_bytes[kAllPools].peak);
  peak.segments = stats.segment[kAllPools].peak;
  const auto [free, total] = free_and_total();
  peak.device = Bytes(total - free);
}

Result<void> CudaMemory::write_recording(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::string text = fmt::format("!device_bytes {}\n", free_at_start_);
  if (!settings_.empty()) text += fmt::format("!config {}\n", settings_);
  return write_file_atomically(path, text + recording_, Overwrite::Allow);
}

}  // namespace fsdp::executor
