#pragma once

// The machines that choices name.

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/cluster/cluster_library.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

inline constexpr int kLargestNode = 16;  ///< GPUs of the largest node for sale (DGX-2, p2.16xlarge).

/// The size of a machine. The choices replace an empty number.
struct MachineSize {
  std::optional<int> gpus;  ///< GPUs of a node.
  std::optional<int> nodes;

  bool operator==(const MachineSize&) const = default;
};

/// A number of GPUs in nodes as they are for rent: one node of up to 8, or nodes of 8, otherwise of 4, 2 or 1. Sets
/// both numbers.
MachineSize split_world(std::int64_t world);

/// The nodes that make up a world: of the given size, otherwise one node of up to `usual` GPUs, or several of that
/// size. Errors: --world-size is no multiple of them; the error has the nearest worlds that are.
Result<MachineSize> size_of_world(std::int64_t world, const MachineSize& said, int usual = 8);

/// The machines, from the library in the folder `library`. Errors: unknown names, sizes that make no sense, choices
/// that exclude each other. Without any choice of machines it is an error, too; it assumes nothing.
Result<Cluster> resolve_machines(const PlanChoices& choices, const std::string& library);

/// The same with a library that was read before.
Result<Cluster> resolve_machines(const PlanChoices& choices, const ClusterLibrary& library);

/// The errors of machines that do not depend on choices that could not be read: choices exclude each other, or the
/// library cannot be read. An empty list means that no more is known.
Errors check_machines(const PlanChoices& choices, const std::string& library);

/// Applies choices of machines to the machines of a plan file: memory alone changes the memory of its GPUs.
Result<Cluster> override_machines(const PlanChoices& choices, const Cluster& cluster, const std::string& library);

}  // namespace fsdp::planner
