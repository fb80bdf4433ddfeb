#pragma once

// The requests to PyTorch's caching allocator on one GPU: counted by category like the tensors of a CPU, and recorded
// for `fsdp-plan replay`.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/result.h"
#include "executor/memory/counting_allocator.h"

namespace fsdp::executor {

class CudaMemory final : public ReserveMeter {
 public:
  /// Follows the allocator of this GPU from now on, until its destruction. `settings`: of the allocator, for the
  /// recording. REQUIRES: nothing has been allocated.
  CudaMemory(int device, std::string settings, bool records);
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  void begin_peak() override;
  void add_to(LivePeak& peak) const override;
  /// Writes all requests from the start, with a line for each start of a peak.
  Result<void> write_recording(const std::string& path) const;

 private:
  void happened(int action, std::uintptr_t address, std::size_t bytes, const void* stream);
  int number_of(const void* stream);
  static void recount_workspaces();

  struct Follower;

  std::shared_ptr<Follower> follower_;
  int device_;
  std::string settings_;
  bool records_;
  std::int64_t free_at_start_ = 0;
  mutable std::mutex mutex_;
  std::string recording_;
  std::map<std::uintptr_t, std::int64_t> ids_;  ///< The ids of live allocations.
  std::int64_t next_id_ = 0;
  std::map<const void*, int> streams_;
};

}  // namespace fsdp::executor
