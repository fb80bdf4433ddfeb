// Each call is followed by an event of its stream. Every tenth of a second the thread asks whether the oldest one is
// there, and NCCL whether it has noted an error. ncclCommAbort makes kernels that wait return; what they leave behind
// is worth nothing, and the thread that trains finds out at its next check.
//
// Sources: NCCL's user guide, "Fault Tolerance" (non-blocking communicators, ncclCommGetAsyncError, ncclCommAbort).

#include "executor/nccl_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "executor/collectives.h"

namespace fsdp::executor {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

NcclWatch::NcclWatch(std::chrono::milliseconds timeout) : timeout_(timeout) {
  cudaGetDevice(&device_);
  thread_ = std::thread([this] { run(); });
}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
  for (const Flight& flight : flights_) cudaEventDestroy(flight.end);
  for (const cudaEvent_t event : unused_) cudaEventDestroy(event);
}

void NcclWatch::add(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
}

bool NcclWatch::remove(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(communicators_.begin(), communicators_.end(), communicator);
  if (found == communicators_.end()) return true;
  communicators_.erase(found);
  return false;
}

void NcclWatch::called(std::string what, std::int64_t instruction, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Flight flight{.what = std::move(what), .instruction = instruction, .called = Clock::now(), .end = nullptr};
  if (unused_.empty()) {
    if (cudaEventCreateWithFlags(&flight.end, cudaEventDisableTiming) != cudaSuccess) return;
  } else {
    flight.end = unused_.back();
    unused_.pop_back();
  }
  cudaEventRecord(flight.end, stream);
  flights_.push_back(std::move(flight));
}

void NcclWatch::fail(const std::string& why, std::int64_t instruction) {
  const std::lock_guard lock(mutex_);
  abort_all(why, instruction);
}

void NcclWatch::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw CollectiveFailure(failure_, failed_instruction_);
}

void NcclWatch::run() {
  cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kBetweenLooks, [this] { return ends_; })) look();
}

void NcclWatch::look() {
  while (!flights_.empty() && cudaEventQuery(flights_.front().end) == cudaSuccess) {
    unused_.push_back(flights_.front().end);
    flights_.pop_front();
  }
  for (const ncclComm_t communicator : communicators_) {
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(communicator, &state);
    if (state == ncclSuccess || state == ncclInProgress) continue;
    const std::int64_t instruction = flights_.empty() ? -1 : flights_.front().instruction;
    return abort_all(fmt::format("NCCL: {} {}", ncclGetErrorString(state), ncclGetLastError(communicator)),
                     instruction);
  }
  if (flights_.empty() || Clock::now() - flights_.front().called < timeout_) return;
  const Flight& first = flights_.front();
  abort_all(fmt::format("{} has not ended after {:.1f} s: another rank has not come to it", first.what,
                        std::chrono::duration<double>(timeout_).count()),
            first.instruction);
}

// A communicator that has been aborted is no more; the groups find that out from `remove`.
void NcclWatch::abort_all(const std::string& why, std::int64_t instruction) {
  if (failure_.empty()) {
    failure_ = why;
    failed_instruction_ = instruction;
  }
  for (const ncclComm_t communicator : std::exchange(communicators_, {})) ncclCommAbort(communicator);
}

}  // namespace fsdp::executor
