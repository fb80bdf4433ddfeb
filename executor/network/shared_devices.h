#pragma once

// Whether two ranks of a run have the same GPU. The number of visible GPUs does not tell: Slurm and Ray show each rank
// only its own.

#include <string>
#include <vector>

#include "executor/network/collectives.h"

namespace fsdp::executor {

/// A GPU, as ranks of any machine can tell it from others.
struct DeviceIdentity {
  std::string host;  ///< The running kernel's id, which containers of one machine share.
  std::string bus;   ///< PCI address in its machine. Parts of one card have the same.
  std::string uuid;

  bool operator==(const DeviceIdentity&) const = default;
};

/// This machine, until it is started again.
std::string this_host();

/// Whether any two are one card: the same UUID, or the same address of the same host.
bool any_is_shared(const std::vector<DeviceIdentity>& devices);

/// The same for the GPUs of all ranks. All ranks call it and get rank 0's answer. Throws CollectiveFailure.
bool any_is_shared(GlooNetwork& network, int rank, int world_size, const DeviceIdentity& own);

}  // namespace fsdp::executor
