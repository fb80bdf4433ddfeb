#pragma once

// The device and the library of a rank: the CPU of a machine with Gloo, or a GPU with NCCL. The rest of the executor
// uses only this interface, so that the program for CPU loads no CUDA.

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "executor/network/collectives.h"
#include "executor/options/options.h"

namespace fsdp::executor {

/// Makes the group of these ranks, one of which is this process.
using GroupMaker = std::function<std::unique_ptr<Group>(const std::string& name, const std::vector<int>& ranks)>;

class Backend {
 public:
  virtual ~Backend() = default;

  /// Call first, before any tensor is made.
  virtual void begin() {}
  /// Call before any tensor is made on the device: takes this rank's device and sets it up for the plan's runtime.
  /// Error: the reason why the device is not available.
  virtual Result<void> start(const RunOptions& options, const Launch& launch, const Plan& plan) = 0;
  virtual c10::Device device() const = 0;
  /// The driver's name of the device, for measurements: "CPU", "NVIDIA H100 80GB HBM3".
  virtual std::string device_name() const = 0;
  /// Call when all ranks have met and none has made a group: the ranks agree on common settings. Throws
  /// CollectiveFailure.
  virtual void meet(GlooNetwork& /*network*/, const Launch& /*launch*/) {}
  /// `network` null: this rank is alone, with stand-ins for the others.
  virtual GroupMaker group_maker(GlooNetwork* network, const RunOptions& options, int rank) = 0;
  /// Call when all ranks have finished.
  virtual void done() {}
  /// Throws CollectiveFailure if a background thread has failed.
  virtual void check() {}
  /// Lists allocations and releases from now on, and writes them.
  virtual void begin_trace() = 0;
  virtual Result<void> write_trace(const std::string& path) = 0;
};

/// Allows PyTorch the attention kernels of the plan's runtime, as python/fsdp_plan_runner/kernels_attention.py
/// (choose_backends) does.
void choose_attention(const Implementations& use);

/// Lets float32 convolutions and products run as TF32 if the plan's runtime does; CPUs have no TF32.
void choose_tf32(const Implementations& use);

/// CPU and Gloo.
std::unique_ptr<Backend> cpu_backend();

}  // namespace fsdp::executor
