#pragma once

// The device and the library of a rank: the CPU of a machine with Gloo, or a GPU with NCCL. Everything else
// of the executor asks here, so that the program for CPU loads nothing of CUDA.

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

/// Makes the group of these ranks of all, of which this process is one.
using GroupMaker = std::function<std::unique_ptr<Group>(const std::string& name, const std::vector<int>& ranks)>;

class Backend {
 public:
  virtual ~Backend() = default;

  /// First of all, before any tensor is made.
  virtual void begin() {}
  /// Before any tensor is made on the device: takes the device of this rank, and what the plan's runtime asks of it.
  /// Error: why it cannot be had.
  virtual Result<void> start(const RunOptions& options, const Launch& launch, const Plan& plan) = 0;
  virtual c10::Device device() const = 0;
  /// As its driver calls it, with what else belongs to a measurement: "CPU", "NVIDIA H100 80GB HBM3".
  virtual std::string device_name() const = 0;
  /// All ranks have met, and none has made a group yet: what they must do alike is agreed on. Throws CollectiveFailure.
  virtual void meet(GlooNetwork& /*network*/, const Launch& /*launch*/) {}
  /// `network` null: this rank is alone, and others are stood in for.
  virtual GroupMaker group_maker(GlooNetwork* network, const RunOptions& options, int rank) = 0;
  /// All ranks have done all that they will do.
  virtual void done() {}
  /// Throws CollectiveFailure when something that runs by itself has failed.
  virtual void check() {}
  /// Lists allocations and releases from now on, and writes them.
  virtual void begin_trace() = 0;
  virtual Result<void> write_trace(const std::string& path) = 0;
};

/// Allows PyTorch's attention what the plan's runtime allows, as python/fsdp_plan_runner/kernels_attention.py
/// (choose_backends) does.
void choose_attention(const Implementations& use);

/// Lets float32 convolutions and products run as TF32 where the plan's runtime does; CPUs have none.
void choose_tf32(const Implementations& use);

/// CPU and Gloo.
std::unique_ptr<Backend> cpu_backend();

}  // namespace fsdp::executor
