#pragma once

// Whether two ranks of a run have the same GPU. The number of visible GPUs does not show it: Slurm and Ray show each
// rank only its own.

#include <string>
#include <vector>

#include "executor/network/collectives.h"

namespace fsdp::executor {

/// The identity of a GPU among those of all machines.
struct DeviceIdentity {
  std::string host;  ///< The running kernel's id, which containers of one machine share.
  std::string bus;   ///< PCI address in its machine. Parts of one card have the same one.
  std::string uuid;

  bool operator==(const DeviceIdentity&) const = default;
};

/// The id of this machine until its next boot.
std::string this_host();

/// Whether any two are one card: the same UUID, or the same address of the same host.
bool any_is_shared(const std::vector<DeviceIdentity>& devices);

/// The same for the GPUs of all ranks. All ranks call it and get rank 0's answer. Throws CollectiveFailure.
bool any_is_shared(GlooNetwork& network, int rank, int world_size, const DeviceIdentity& own);

}  // namespace fsdp::executor
