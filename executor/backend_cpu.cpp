#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/base/files.h"
#include "core/cluster/cpu_cluster.h"
#include "executor/backend.h"
#include "executor/memory/counting_allocator.h"

namespace fsdp::executor {

namespace {

class CpuBackend final : public Backend {
 public:
  void begin() override { install_counting_allocator(); }

  Result<void> start(const RunOptions& options, const Launch& launch, const Plan& plan) override {
    choose_attention(implementations_of(plan));
    limit_memory(options.memory);
    // Several processes that compete for each other's cores are many times slower than one thread each.
    at::set_num_threads(options.threads > 0 ? options.threads : threads_of_rank(launch.world_size));
    return {};
  }

  c10::Device device() const override { return c10::Device(c10::kCPU); }
  std::string device_name() const override { return "CPU"; }

  GroupMaker group_maker(GlooNetwork* network, const RunOptions& /*options*/, int rank) override {
    return [network, rank](const std::string& name, const std::vector<int>& ranks) -> std::unique_ptr<Group> {
      if (network != nullptr) return network->group(name, ranks);
      const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
      return stand_in_group(static_cast<int>(own), static_cast<int>(ranks.size()));
    };
  }

  void begin_trace() override {
    trace_memory([this](const MemoryEvent& event) {
      trace_ += fmt::format("{} {} {} {}\n", event.moment, event.bytes, name_of(event.category), event.address);
    });
  }
  Result<void> write_trace(const std::string& path) override {
    trace_memory({});
    return write_file_atomically(path, trace_, Overwrite::Allow);
  }

 private:
  std::string trace_;
};

}  // namespace

void choose_attention(const Implementations& use) {
  const AttentionBackend only = use.attention;
  const bool automatic = only == AttentionBackend::Automatic || only == AttentionBackend::Eager;
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(automatic || only == AttentionBackend::Flash);
  context.setSDPUseMemEfficient(automatic || only == AttentionBackend::MemoryEfficient);
  context.setSDPUseMath(automatic || only == AttentionBackend::Math);
  context.setSDPUseCuDNN(only == AttentionBackend::Cudnn || (automatic && use.prefer_cudnn_attention));
}

void choose_tf32(const Implementations& use) {
  // PyTorch's defaults are not set again, because that warns.
  const Implementations defaults;
  at::Context& context = at::globalContext();
  if (use.cudnn_allow_tf32 != defaults.cudnn_allow_tf32) context.setAllowTF32CuDNN(use.cudnn_allow_tf32);
  if (use.matmul_allow_tf32 != defaults.matmul_allow_tf32) context.setAllowTF32CuBLAS(use.matmul_allow_tf32);
}

std::unique_ptr<Backend> cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace fsdp::executor
