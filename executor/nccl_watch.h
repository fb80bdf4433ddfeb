#pragma once

// Watches the collectives that a rank has called on NCCL, from a thread of its own: a kernel that waits for a rank
// which is gone waits for ever, and every later call of CUDA with it.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fsdp::executor {

class NcclWatch {
 public:
  /// A collective may take `timeout` from when it was called, behind all that its stream does before.
  explicit NcclWatch(std::chrono::milliseconds timeout);
  /// Waits for the thread, not for collectives.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(ncclComm_t communicator);
  /// Lets go of a communicator. True: it has been aborted, which has freed it.
  bool remove(ncclComm_t communicator);
  /// A collective has just been called on a stream. `what` says which, for messages; `instruction` is whose it is.
  void called(std::string what, std::int64_t instruction, cudaStream_t stream);
  /// Ends all communicators for this reason, unless they have ended for another one.
  void fail(const std::string& why, std::int64_t instruction);
  /// Throws CollectiveFailure once something has failed.
  void check() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    std::string what;
    std::int64_t instruction = -1;
    Clock::time_point called;
    cudaEvent_t end = nullptr;
  };

  void run();
  void look();
  void abort_all(const std::string& why, std::int64_t instruction);

  const std::chrono::milliseconds timeout_;
  int device_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<ncclComm_t> communicators_;
  std::deque<Flight> flights_;       // In the order of their calls.
  std::vector<cudaEvent_t> unused_;  // Events that can be recorded again.
  std::string failure_;              // Empty: none.
  std::int64_t failed_instruction_ = -1;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace fsdp::executor
