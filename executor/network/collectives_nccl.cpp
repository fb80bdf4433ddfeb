// NCCL as an implementation of executor/network/collectives.h.
//
// A collective only runs on the current stream. The schedule chooses that stream and the waits around it
// (executor/training/sharded_unit_streams.cpp), as in FSDP2, whose synchronous collectives also run on the current
// stream. It keeps no tensor alive: buffers are freed where FSDP2 frees them. The average is NCCL's own, which divides
// while it adds.
//
// Communicators do not block: their maker polls until they are ready, and gives up at the time-out. Their ids go
// through the store of the meeting. Two ranks on one GPU need different NCCL_HOSTID, and transport over sockets; their
// kernels take turns, so times have no meaning.
//
// Sources: NCCL's user guide (ncclCommInitRankConfig, ncclCommGetAsyncError);
// torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (the stream of synchronous operations), torch 2.11.

#include "executor/network/collectives_nccl.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "executor/memory/counting_allocator.h"
#include "executor/network/guarded_communicator.h"
#include "executor/network/nccl_watch.h"

namespace fsdp::executor {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenQuestions{1};

ncclDataType_t nccl_type(c10::ScalarType type) {
  switch (type) {
    case c10::kByte:
      return ncclUint8;
    case c10::kChar:
      return ncclInt8;
    case c10::kInt:
      return ncclInt32;
    case c10::kLong:
      return ncclInt64;
    case c10::kHalf:
      return ncclFloat16;
    case c10::kBFloat16:
      return ncclBfloat16;
    case c10::kFloat:
      return ncclFloat32;
    case c10::kDouble:
      return ncclFloat64;
    default:
      throw CollectiveFailure(fmt::format("NCCL has no dtype {}", c10::toString(type)));
  }
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

/// The order of the stream is the only wait.
class InStreamOrder final : public Pending {
 public:
  void wait() override {}
};

}  // namespace

int nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}

std::string nccl_version_problem(int loaded) {
  const bool is_usable = loaded / 10000 == NCCL_VERSION_CODE / 10000 && loaded >= NCCL_VERSION_CODE;
  if (is_usable) return {};
  return fmt::format("NCCL {} is loaded, and {} or a later one of the same major version is needed",
                     version_text(loaded), version_text(NCCL_VERSION_CODE));
}

struct NcclNetwork::State {
  State(GlooNetwork* given, std::chrono::milliseconds longest)
      : meeting(given), timeout(longest), watch(longest, given ? given->listener() : NcclWatch::Others()) {}

  GlooNetwork* meeting;
  std::chrono::milliseconds timeout;
  std::atomic<bool> is_done = false;
  NcclWatch watch;
};

class NcclNetwork::NcclGroup final : public Group {
 public:
  NcclGroup(ncclComm_t communicator, int rank, int size, const std::shared_ptr<NcclNetwork::State>& state);
  ~NcclGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Pending> all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return call("all-gather", input, [&](ncclComm_t communicator, ncclDataType_t type, cudaStream_t stream) {
      return ncclAllGather(input.const_data_ptr(), output.mutable_data_ptr(), static_cast<std::size_t>(input.numel()),
                           type, communicator, stream);
    });
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return call("reduce-scatter", input, [&](ncclComm_t communicator, ncclDataType_t type, cudaStream_t stream) {
      return ncclReduceScatter(input.const_data_ptr(), output.mutable_data_ptr(),
                               static_cast<std::size_t>(output.numel()), type, operation(op), communicator, stream);
    });
  }

  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    return call("all-reduce", tensor, [&](ncclComm_t communicator, ncclDataType_t type, cudaStream_t stream) {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), static_cast<std::size_t>(tensor.numel()),
                           type, operation(op), communicator, stream);
    });
  }

 private:
  static ncclRedOp_t operation(ReduceOp op) { return op == ReduceOp::Average ? ncclAvg : ncclSum; }

  template <class Function>
  std::unique_ptr<Pending> call(const char* what, const at::Tensor& tensor, Function&& function);
  ncclResult_t settled(ncclResult_t result);
  void use(const std::function<void(ncclComm_t)>& function);

  std::shared_ptr<GuardedCommunicator> communicator_;
  int rank_;
  int size_;
  std::shared_ptr<NcclNetwork::State> state_;
};

NcclNetwork::NcclGroup::NcclGroup(ncclComm_t communicator, int rank, int size, const std::shared_ptr<State>& state)
    : communicator_(std::make_shared<GuardedCommunicator>(communicator, [](ncclComm_t each) { ncclCommAbort(each); })),
      rank_(rank),
      size_(size),
      state_(state) {
  state_->watch.add(communicator_);
}

// Finalizing waits for all ranks. After a failure of this or another rank it would wait for the whole time-out before
// the reason is printed.
NcclNetwork::NcclGroup::~NcclGroup() {
  state_->watch.remove(communicator_);
  if (!state_->is_done) {
    communicator_->abort(state_->timeout);
    return;
  }
  const ncclComm_t communicator = communicator_->release();
  if (communicator == nullptr) return;
  ncclCommFinalize(communicator);
  const auto give_up = Clock::now() + state_->timeout;
  ncclResult_t result = ncclInProgress;
  while (ncclCommGetAsyncError(communicator, &result) == ncclSuccess && result == ncclInProgress) {
    if (Clock::now() > give_up) break;
    std::this_thread::sleep_for(kBetweenQuestions);
  }
  result == ncclSuccess ? ncclCommDestroy(communicator) : ncclCommAbort(communicator);
}

template <class Function>
std::unique_ptr<Pending> NcclNetwork::NcclGroup::call(const char* what, const at::Tensor& tensor, Function&& function) {
  NcclWatch& watch = state_->watch;
  watch.check();
  const ncclDataType_t type = nccl_type(tensor.scalar_type());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  const cudaEvent_t begin = watch.begin(stream);
  ncclResult_t result = ncclSuccess;
  use([&](ncclComm_t communicator) { result = function(communicator, type, stream); });
  result = settled(result);
  if (result != ncclSuccess) {
    std::string said;
    use([&](ncclComm_t communicator) { said = ncclGetLastError(communicator); });
    watch.fail(fmt::format("{}: NCCL: {} {}", what, ncclGetErrorString(result), said), current_moment());
    watch.check();
  }
  watch.called(fmt::format("{} of {} bytes among {} ranks", what, tensor.nbytes(), size_), current_moment(), stream,
               begin);
  return std::make_unique<InStreamOrder>();
}

// A communicator connects at its first use, and may report that it is still connecting.
ncclResult_t NcclNetwork::NcclGroup::settled(ncclResult_t result) {
  const auto give_up = Clock::now() + state_->timeout;
  while (result == ncclInProgress && Clock::now() < give_up) {
    std::this_thread::sleep_for(kBetweenQuestions);
    state_->watch.check();
    ncclResult_t asked = ncclSuccess;
    use([&](ncclComm_t communicator) { asked = ncclCommGetAsyncError(communicator, &result); });
    if (asked != ncclSuccess) return asked;
  }
  return result;
}

void NcclNetwork::NcclGroup::use(const std::function<void(ncclComm_t)>& function) {
  if (communicator_->with(function)) return;
  state_->watch.check();
  throw CollectiveFailure("the communicator has been aborted");
}

NcclNetwork::NcclNetwork(GlooNetwork* meeting, std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>(meeting, timeout)) {
  if (const std::string problem = nccl_version_problem(nccl_version()); !problem.empty()) {
    throw CollectiveFailure(problem);
  }
}

NcclNetwork::~NcclNetwork() = default;

std::unique_ptr<Group> NcclNetwork::group(const std::string& name, int rank, int size) {
  ncclUniqueId id{};
  if (rank == 0 || state_->meeting == nullptr) {
    if (const ncclResult_t made = ncclGetUniqueId(&id); made != ncclSuccess) {
      throw CollectiveFailure(fmt::format("NCCL: {}", ncclGetErrorString(made)));
    }
    if (state_->meeting != nullptr) state_->meeting->put("nccl/" + name, std::string(id.internal, sizeof id.internal));
  } else {
    const std::string bytes = state_->meeting->get("nccl/" + name);
    if (bytes.size() != sizeof id.internal) throw CollectiveFailure("the id of group " + name + " is none");
    std::copy(bytes.begin(), bytes.end(), id.internal);
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  ncclResult_t state = ncclCommInitRankConfig(&communicator, size, id, rank, &config);
  const auto give_up = Clock::now() + state_->timeout;
  while (state == ncclInProgress && Clock::now() < give_up) {
    std::this_thread::sleep_for(kBetweenQuestions);
    ncclCommGetAsyncError(communicator, &state);
    if (state_->meeting != nullptr && !state_->meeting->lost().empty()) break;
  }
  if (state != ncclSuccess) {
    const std::string lost = state_->meeting != nullptr ? state_->meeting->lost() : "";
    const std::string why =
        !lost.empty() ? lost
        : state == ncclInProgress
            ? fmt::format("not all have come in {:.1f} s", std::chrono::duration<double>(state_->timeout).count())
            : fmt::format("NCCL: {} {}", ncclGetErrorString(state), ncclGetLastError(communicator));
    if (communicator != nullptr) ncclCommAbort(communicator);
    throw CollectiveFailure(fmt::format("group {} of {} ranks: {}", name, size, why));
  }
  return std::make_unique<NcclGroup>(communicator, rank, size, state_);
}

void NcclNetwork::done() {
  state_->is_done = true;
}

void NcclNetwork::check() const {
  state_->watch.check();
}

}  // namespace fsdp::executor
