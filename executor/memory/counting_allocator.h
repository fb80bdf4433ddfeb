#pragma once

// Counts the bytes of tensors: every allocation, by its requested bytes, with its category, and the moment of the peak.
// On CPUs an allocator of our own counts; on a GPU PyTorch's reports its requests (executor/memory/cuda_memory.h).

#include <cstdint>
#include <functional>
#include <string>

#include "core/report/report.h"

namespace at {
class Tensor;
}

namespace fsdp::executor {

/// Puts the counting allocator in place of PyTorch's own for CPU tensors. Memory that they free stays with the process.
/// REQUIRES: no tensor exists yet.
void install_counting_allocator();

/// Sets the category of new allocations, on any thread, during its lifetime; then restores the previous one.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  MemoryCategory before_;
};

/// Moves a tensor's bytes to another category: a gradient that autograd made.
void recount(const at::Tensor& tensor, MemoryCategory category);

/// Bytes of live tensors now, by category.
BytesByCategory live_bytes();

/// The highest sum of live bytes since the last `begin_peak`, its composition, and its moment.
struct LivePeak {
  Bytes bytes;
  BytesByCategory at_peak{};
  std::int64_t moment = 0;  ///< The value of `set_moment` at that time.
  // Figures of the tensors' allocator, each the highest since then; -1 if it has none.
  Bytes allocated{-1};         ///< In blocks.
  Bytes reserved{-1};          ///< Reserved for blocks.
  Bytes device{-1};            ///< In use on the device by all processes, at the end.
  std::int64_t segments = -1;  ///< Pieces that it allocated from the device.
};

/// The figures of an allocator that reserves more than its tensors' bytes.
class ReserveMeter {
 public:
  virtual ~ReserveMeter() = default;
  virtual void begin_peak() = 0;
  virtual void add_to(LivePeak& peak) const = 0;
};

/// It is called whenever a peak begins or is read. Null for none.
void set_reserve_meter(ReserveMeter* meter);

/// For another allocator: reports that it has allocated or freed bytes at an address.
void count_allocation(const void* address, std::int64_t bytes);
void count_release(const void* address);
void recount(const void* address, MemoryCategory category);

/// Starts a new peak at the current live bytes.
void begin_peak();
/// Sets the current moment, a number that the caller chooses.
void set_moment(std::int64_t moment);
std::int64_t current_moment();
LivePeak live_peak();

/// The highest sum of the calling thread's allocations less its releases, since this was made. Allocations of other
/// threads meanwhile do not count. Scopes nest.
class ThreadPeak {
 public:
  ThreadPeak();
  ~ThreadPeak();
  ThreadPeak(const ThreadPeak&) = delete;
  ThreadPeak& operator=(const ThreadPeak&) = delete;

  Bytes highest() const;
  Bytes now() const;  ///< The sum at this moment.

 private:
  std::int64_t begin_;
  std::int64_t highest_before_;
};

/// One change of the live bytes, passed to the listener of `trace_memory`.
struct MemoryEvent {
  std::int64_t bytes = 0;  ///< Negative for a release.
  MemoryCategory category = MemoryCategory::Temp;
  std::int64_t moment = 0;
  const void* address = nullptr;
};

/// Calls `listener` at each allocation and release from now on, one at a time. An empty listener ends it.
void trace_memory(std::function<void(const MemoryEvent&)> listener);

/// If above 0, an allocation that would raise the live bytes above it fails as on a full device.
void limit_memory(Bytes limit);

}  // namespace fsdp::executor
