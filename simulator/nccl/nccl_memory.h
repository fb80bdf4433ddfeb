#pragma once

// Device memory that NCCL takes for one process group, outside PyTorch's allocator.

#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/report/report.h"
#include "simulator/nccl/group_shape.h"

namespace fsdp::simulator {

/// One communicator: PyTorch makes one for each process group that runs a collective.
struct NcclCommunicator {
  std::string name;  ///< "shard group": part of the names of the terms.
  GroupShape shape;
  bool all_reduce = false;  ///< True if it runs any all-reduce, even of the gradient norm, which connects trees and
                            ///< NVLS.
  bool all_to_all = false;  ///< True if ranks exchange tokens, which connects each with all others.

  bool operator==(const NcclCommunicator&) const = default;
};

/// The terms of one communicator on the GPU that holds most, after each of its collectives has run once. A group of one
/// rank has none.
std::vector<DeviceTerm> nccl_memory(const NcclCommunicator& communicator);

/// Their sum.
Bytes total_bytes(const std::vector<DeviceTerm>& terms);

}  // namespace fsdp::simulator
