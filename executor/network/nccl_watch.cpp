// Each call stands between two events of its stream. Every tenth of a second the thread queries which of them the
// device has passed, whether NCCL has reported an error, and whether the store has a lost rank. The time of a
// collective counts from its first event: the host runs ahead of the device by up to a step, so a healthy step may be
// longer than the time-out. (ProcessGroupNCCL counts from the call, with a default of ten minutes.) If a collective has
// not reached its first event, it waits for another one, here or on a rank that waits for this one, and the time of
// that one counts.
//
// ncclCommAbort makes waiting kernels return with meaningless results; the training thread notices at its next check.
// If CUDA answers a query of an event with anything but "passed" and "not yet", that is an error of the device, which
// every later call repeats, not a failure of another rank.
//
// Sources: NCCL's user guide, "Fault Tolerance" (non-blocking communicators, ncclCommGetAsyncError, ncclCommAbort);
// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (WorkNCCL::checkTimeout, workStartTime_), torch 2.11.

#include "executor/network/nccl_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "executor/network/collectives.h"

namespace fsdp::executor {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr std::chrono::milliseconds kForACall{5000};

}  // namespace

NcclWatch::NcclWatch(std::chrono::milliseconds timeout, Others others) : timeout_(timeout), others_(std::move(others)) {
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
  for (const Flight& flight : flights_) {
    for (const cudaEvent_t event : {flight.begin, flight.end}) cudaEventDestroy(event);
  }
  for (const cudaEvent_t event : unused_) cudaEventDestroy(event);
}

void NcclWatch::add(std::shared_ptr<GuardedCommunicator> communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(std::move(communicator));
}

void NcclWatch::remove(const std::shared_ptr<GuardedCommunicator>& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(communicators_, communicator);
}

cudaEvent_t NcclWatch::begin(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  return record(stream);
}

void NcclWatch::called(std::string what, std::int64_t instruction, cudaStream_t stream, cudaEvent_t begin) {
  const std::lock_guard lock(mutex_);
  flights_.push_back({std::move(what), instruction, begin, record(stream), std::nullopt});
}

// A collective without an event after it is not watched.
cudaEvent_t NcclWatch::record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  cudaError_t result = cudaSuccess;
  if (unused_.empty()) {
    result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  } else {
    event = unused_.back();
    unused_.pop_back();
  }
  if (result == cudaSuccess) result = cudaEventRecord(event, stream);
  if (result == cudaSuccess) return event;
  throw CollectiveFailure(fmt::format("CUDA: no event for a collective: {}", cudaGetErrorString(result)));
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
  if (!failure_.empty()) return;
  if (const std::string lost = others_ ? others_() : ""; !lost.empty()) return abort_all(lost, -1);
  std::erase_if(flights_, [this](Flight& flight) { return !is_in_the_air(flight); });
  if (!failure_.empty()) return;
  const std::int64_t instruction = flights_.empty() ? -1 : flights_.front().instruction;
  for (const auto& communicator : communicators_) {
    ncclResult_t state = ncclSuccess;
    std::string said;
    communicator->with_if_free([&](ncclComm_t handle) {
      ncclCommGetAsyncError(handle, &state);
      if (state != ncclSuccess && state != ncclInProgress) said = ncclGetLastError(handle);
    });
    if (state == ncclSuccess || state == ncclInProgress) continue;
    return abort_all(fmt::format("NCCL: {} {}", ncclGetErrorString(state), said), instruction);
  }
}

bool NcclWatch::is_in_the_air(Flight& flight) {
  if (!failure_.empty()) return true;
  const Passed end = ask(flight.end, flight);
  if (end == Passed::Yes) {
    unused_.insert(unused_.end(), {flight.begin, flight.end});
    return false;
  }
  if (end == Passed::Failed) return true;
  const Clock::time_point now = Clock::now();
  if (!flight.began && ask(flight.begin, flight) == Passed::Yes) flight.began = now;
  if (!flight.began || now - *flight.began < timeout_) return true;
  abort_all(fmt::format("{} has not ended after {:.1f} s: another rank has not come to it", flight.what,
                        std::chrono::duration<double>(timeout_).count()),
            flight.instruction);
  return true;
}

NcclWatch::Passed NcclWatch::ask(cudaEvent_t event, const Flight& flight) {
  const cudaError_t answer = cudaEventQuery(event);
  if (answer == cudaSuccess) return Passed::Yes;
  if (answer == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return Passed::No;
  }
  abort_all(fmt::format("CUDA: {} (noticed before {} had ended)", cudaGetErrorString(answer), flight.what),
            flight.instruction);
  return Passed::Failed;
}

void NcclWatch::abort_all(const std::string& why, std::int64_t instruction) {
  if (!failure_.empty()) return;
  failure_ = why;
  failed_instruction_ = instruction;
  for (const auto& communicator : std::exchange(communicators_, {})) communicator->abort(kForACall);
}

}  // namespace fsdp::executor
