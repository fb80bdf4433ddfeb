#pragma once

// Host memory: the memory of one node that its processes use. host_memory.cpp has the formula.

#include <cstdint>
#include <optional>
#include <span>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "core/report/report.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// Memory of the node whose ranks hold most. `layout` may be seen from any rank; only mesh, optimizer, accumulation,
/// offload and initialization of the plan count. `inputs`: `checkpointed_inputs` of a rank. nullopt if the plan keeps
/// nothing of the model in host memory, or if the devices are the CPU, whose memory is the device's.
std::optional<HostMemory> host_memory(const Cluster& cluster, const Plan& plan, const Layout& layout,
                                      Bytes inputs = Bytes(0));

/// The same in training, without the making of the model: its last term is that of the processes, which every plan has.
HostMemory host_memory_in_training(const Cluster& cluster, const Plan& plan, const Layout& layout, Bytes inputs);

/// Adds a term, and renews the margin.
void add_host_term(HostMemory& host, DeviceTerm term);

/// Pinned memory of a rank for the inputs that checkpointed blocks keep there, in blocks. `tapes` [num_calls]. 0 if
/// they are on the device.
Bytes checkpointed_inputs(std::span<const Tape* const> tapes);

/// Pinned memory of the layout's rank: its shards and their gradients, in blocks.
Bytes pinned_memory(const Plan& plan, const Layout& layout);

/// Host memory of a model that is not trained, on the node whose ranks hold most: its pinned shards, and all of it
/// while it is made. `of_rank`: the shards of the layout's rank.
struct HeldOnHost {
  Bytes shards;
  Bytes of_rank;
  Bytes making;
};
HeldOnHost held_on_host(const Cluster& cluster, const Plan& plan, const Layout& layout);

/// Bytes of the block that PyTorch's pinned memory allocator gives for a request: the next power of two.
std::int64_t pinned_block(std::int64_t bytes);

}  // namespace fsdp::simulator
