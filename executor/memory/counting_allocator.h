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

/// The category of new allocations, on any thread, while it lives; then the one before.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  MemoryCategory before_;
};

/// A tensor's bytes belong to another category from now on: a gradient that autograd made.
void recount(const at::Tensor& tensor, MemoryCategory category);

/// Bytes that live tensors hold now, by category.
BytesByCategory live_bytes();

/// The highest sum of live bytes since the last `begin_peak`, what it consisted of, and where it was.
struct LivePeak {
  Bytes bytes;
  BytesByCategory at_peak{};
  std::int64_t moment = 0;  ///< `set_moment`'s value then.
  // Figures of the tensors' allocator, each the highest since then; -1 if it has none.
  Bytes allocated{-1};         ///< In blocks.
  Bytes reserved{-1};          ///< Kept for blocks.
  Bytes device{-1};            ///< In use on the device by all processes, at the end.
  std::int64_t segments = -1;  ///< Pieces that it took from the device.
};

/// The figures of an allocator that reserves more than its tensors' bytes.
class ReserveMeter {
 public:
  virtual ~ReserveMeter() = default;
  virtual void begin_peak() = 0;
  virtual void add_to(LivePeak& peak) const = 0;
};

/// Called whenever a peak begins or is read. Null for none.
void set_reserve_meter(ReserveMeter* meter);

/// For another allocator: it has allocated bytes at an address, and has freed them.
void count_allocation(const void* address, std::int64_t bytes);
void count_release(const void* address);
void recount(const void* address, MemoryCategory category);

/// Starts a new peak at what is live now.
void begin_peak();
/// Sets the current moment, a number of the caller's.
void set_moment(std::int64_t moment);
std::int64_t current_moment();
LivePeak live_peak();

/// The highest sum of bytes that the calling thread has asked for less those it has given back, since this was made.
/// Allocations of other threads meanwhile do not count. Scopes nest.
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

/// One change of the live bytes: what `trace_memory` is called with.
struct MemoryEvent {
  std::int64_t bytes = 0;  ///< Below 0: freed.
  MemoryCategory category = MemoryCategory::Temp;
  std::int64_t moment = 0;
  const void* address = nullptr;
};

/// Calls `listener` at each allocation and release from now on, one at a time; an empty one ends it.
void trace_memory(std::function<void(const MemoryEvent&)> listener);

/// If above 0, an allocation that would bring the live bytes above it fails as on a full device.
void limit_memory(Bytes limit);

}  // namespace fsdp::executor
