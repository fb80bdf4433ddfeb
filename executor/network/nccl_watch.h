#pragma once

// Watches a rank's NCCL collectives on its own thread: a kernel that waits for a dead rank waits forever, and so does
// every later call of CUDA.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/network/guarded_communicator.h"

namespace fsdp::executor {

class NcclWatch {
 public:
  /// The failure of another rank, polled. Empty if there is none.
  using Others = std::function<std::string()>;

  /// A collective may take `timeout` from the moment when its stream reaches it.
  NcclWatch(std::chrono::milliseconds timeout, Others others);
  /// Waits for the thread, not for collectives.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(std::shared_ptr<GuardedCommunicator> communicator);
  void remove(const std::shared_ptr<GuardedCommunicator>& communicator);
  /// Call before a collective on a stream; pass the result to `called`. Throws CollectiveFailure.
  cudaEvent_t begin(cudaStream_t stream);
  /// Call after it. `what` names it in messages; `instruction` is its instruction. Throws CollectiveFailure.
  void called(std::string what, std::int64_t instruction, cudaStream_t stream, cudaEvent_t begin);
  /// Ends all communicators for this reason, unless they have ended for another one.
  void fail(const std::string& why, std::int64_t instruction);
  /// Throws CollectiveFailure after any failure.
  void check() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    std::string what;
    std::int64_t instruction = -1;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    std::optional<Clock::time_point> began;
  };
  enum class Passed : std::uint8_t { Yes, No, Failed };

  void run();
  void look();
  bool is_in_the_air(Flight& flight);
  Passed ask(cudaEvent_t event, const Flight& flight);
  cudaEvent_t record(cudaStream_t stream);
  void abort_all(const std::string& why, std::int64_t instruction);

  const std::chrono::milliseconds timeout_;
  const Others others_;
  int device_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<GuardedCommunicator>> communicators_;
  std::vector<Flight> flights_;      // In the order of their calls.
  std::vector<cudaEvent_t> unused_;  // Events that can be recorded again.
  std::string failure_;              // Empty if there is none.
  std::int64_t failed_instruction_ = -1;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace fsdp::executor
