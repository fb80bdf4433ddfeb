// Several ranks may share one GPU, to find out whether a plan runs: with NCCL_HOSTID, NCCL treats them as ranks of
// different machines and connects them by sockets. Times of such a run have no meaning. All ranks do so, or none: they
// compare their GPUs before the first communicator is made.
//
// Sources: NCCL's user guide (environment variables); torch/backends/cuda (which attention kernels may be chosen).

#include "executor/backend_cuda.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/environment.h"
#include "executor/memory/cuda_memory.h"
#include "executor/network/collectives_nccl.h"
#include "executor/network/shared_devices.h"

namespace fsdp::executor {

namespace {

DeviceIdentity identity_of(int device) {
  constexpr int kRoom = 32;
  char bus[kRoom] = "";
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(bus, kRoom, device));
  std::string uuid;
  for (const char byte : at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->uuid.bytes) {
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  if (uuid.find_first_not_of('0') == std::string::npos) uuid.clear();  // The driver does not know it.
  return {.host = this_host(), .bus = bus, .uuid = uuid};
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class CudaBackend final : public Backend {
 public:
  Result<void> start(const RunOptions& options, const Launch& launch, const Plan& plan) override {
    const int gpus = c10::cuda::device_count();
    if (gpus < 1) return failure("--device cuda", "There is no GPU, or no driver.", "Write --device cpu.");
    if (const std::string problem = nccl_version_problem(nccl_version()); !problem.empty()) {
      return failure("--device cuda", problem + ".", "Leave LD_LIBRARY_PATH as it was when this was built.");
    }
    const std::string settings = plan.runtime.allocator_settings;
    for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
      if (environment_variable(name).empty() || environment_variable(name) == settings) continue;
      return failure(name, fmt::format("It is \"{}\", but the plan has \"{}\".", environment_variable(name), settings),
                     "Unset it, or write the same into the plan (runtime/allocator_settings).");
    }
    device_ = launch.local_rank % gpus;
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device_));
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    if (!settings.empty()) c10::CachingAllocator::setAllocatorSettings(settings);
    choose_attention(plan.runtime.implementations);
    choose_tf32(plan.runtime.implementations);
    if (options.threads > 0) at::set_num_threads(options.threads);
    memory_.emplace(device_, settings, !options.allocations.empty());
    set_reserve_meter(&*memory_);
    if (options.memory > Bytes(0)) limit(options.memory);
    return {};
  }

  void meet(GlooNetwork& network, const Launch& launch) override {
    if (any_is_shared(network, launch.rank, launch.world_size, identity_of(device_))) share_a_gpu(launch);
  }

  c10::Device device() const override { return {c10::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }

  std::string device_name() const override {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return fmt::format("{}, driver for CUDA {}, NCCL {}{}", at::cuda::getCurrentDeviceProperties()->name,
                       version_text(driver), nccl_version(), is_shared_ ? ", shared by several ranks" : "");
  }

  GroupMaker group_maker(GlooNetwork* network, const RunOptions& options, int rank) override {
    if (network != nullptr || options.nccl_alone) nccl_.emplace(network, options.timeout);
    return [this, rank](const std::string& name, const std::vector<int>& ranks) -> std::unique_ptr<Group> {
      const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      const auto size = static_cast<int>(ranks.size());
      return nccl_ ? nccl_->group(name, own, size) : stand_in_group(own, size);
    };
  }

  void done() override {
    if (nccl_) nccl_->done();
  }

  void check() override {
    if (nccl_) nccl_->check();
  }

  // From the start, because a replay needs all of it.
  void begin_trace() override {}
  Result<void> write_trace(const std::string& path) override { return memory_->write_recording(path); }

 private:
  void share_a_gpu(const Launch& launch) {
    is_shared_ = true;
    const std::string host = fmt::format("{}-{}", launch.master_address, launch.rank);
    setenv("NCCL_HOSTID", host.c_str(), /*overwrite=*/1);
    for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) setenv(name, "1", /*overwrite=*/1);
    setenv("NCCL_NET", "Socket", /*overwrite=*/1);
    if (launch.rank == 0) {
      std::fputs("note: there are fewer GPUs than ranks, some of which share one; their times do not measure speed.\n",
                 stderr);
    }
  }

  void limit(Bytes bytes) const {
    const double total = static_cast<double>(at::cuda::getCurrentDeviceProperties()->totalGlobalMem);
    const double share = std::min(1.0, static_cast<double>(bytes.count()) / total);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(share, static_cast<c10::DeviceIndex>(device_));
  }

  int device_ = 0;
  bool is_shared_ = false;
  std::optional<CudaMemory> memory_;
  std::optional<NcclNetwork> nccl_;
};

}  // namespace

std::unique_ptr<Backend> cuda_backend() {
  return std::make_unique<CudaBackend>();
}

}  // namespace fsdp::executor
