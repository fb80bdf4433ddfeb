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

inline constexpr int kLargestNode = 16;  ///< GPUs of the largest node that is sold (DGX-2, p2.16xlarge).

/// A size of a machine; an empty number is left to the choices.
struct MachineSize {
  std::optional<int> gpus;  ///< GPUs of a node.
  std::optional<int> nodes;

  bool operator==(const MachineSize&) const = default;
};

/// So many GPUs as they are rented: one node of up to 8, or nodes of 8, else of 4, 2 or 1. Both numbers are there.
MachineSize split_world(std::int64_t world);

/// The nodes that make up a world: those of the size that is said, else one node of up to `usual` GPUs, or several of
/// that. Errors: of --world-size, where they do not, with the nearest worlds that they make up.
Result<MachineSize> size_of_world(std::int64_t world, const MachineSize& said, int usual = 8);

/// The machines, from the library in the folder `library`. Without any choice about them: nothing is given, and nothing
/// is assumed. Errors: unknown names, sizes that make no sense, choices that exclude each other.
Result<Cluster> resolve_machines(const PlanChoices& choices, const std::string& library);

/// The same with a library that was read before.
Result<Cluster> resolve_machines(const PlanChoices& choices, const ClusterLibrary& library);

/// What can be said of machines where some choices about them could not be read: that choices exclude each other, and
/// that the library cannot be read. Without errors: nothing more is known.
Errors check_machines(const PlanChoices& choices, const std::string& library);

/// Choices about machines over the machines of a plan file: memory alone changes the memory of its GPUs.
Result<Cluster> override_machines(const PlanChoices& choices, const Cluster& cluster, const std::string& library);

}  // namespace fsdp::planner
