// Resolves choices to machines.
//
//   cluster               a file, or a shipped cluster; the other choices change it
//   GPU, number           GPUs of the library with their usual links
//   number, memory        a stand-in for an unnamed GPU: see core/cluster/cluster.h

#include "planner/request/plan_machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/cluster/cluster_reader.h"

namespace fsdp::planner {

namespace {

ClusterOverrides overrides_of(const PlanChoices& choices) {
  return {.gpus_per_node = choices.gpus,
          .nodes = choices.nodes,
          .memory = choices.memory,
          .reserve = choices.reserve,
          .intra_link = choices.intra_link,
          .intra_bandwidth = choices.intra_bandwidth,
          .bus_bandwidth = choices.bus_bandwidth,
          .network = choices.network,
          .nic_bandwidth = choices.nic_bandwidth,
          .gpus_per_nic = choices.gpus_per_nic,
          .sharp = choices.sharp,
          .nccl_version = choices.nccl_version,
          .nccl_algorithms = choices.nccl_algorithms,
          .nccl_protocols = choices.nccl_protocols,
          .host_memory = choices.host_memory,
          .nvme_bandwidth = choices.nvme_bandwidth,
          .nvme_capacity = choices.nvme_capacity,
          .node_spread = choices.node_spread};
}

bool is_file(const std::string& name) {
  std::error_code ignored;
  return name == "-" || name.find('/') != std::string::npos || name.ends_with(".json") ||
         std::filesystem::exists(name, ignored);
}

Result<Cluster> named_cluster(const std::string& name, const ClusterLibrary& library) {
  Result<Cluster> shipped = find_cluster(name, library.clusters, place_of(PlanChoice::ClusterFile));
  std::error_code ignored;
  // Names contain a "/", too: "25 Gb/s Ethernet".
  if (is_file(name) && (!shipped || std::filesystem::exists(name, ignored))) {
    return read_cluster_file(name, library.gpus);
  }
  return shipped;
}

/// Sizes that no machine has. A file describes an existing machine of any size.
Errors check_sizes(const PlanChoices& choices) {
  const std::int64_t gpus = choices.gpus.value_or(1);
  const std::int64_t nodes = choices.nodes.value_or(1);
  if (gpus < 1 || nodes < 1) return {};  // Another function reports that.
  const std::int64_t world = gpus * nodes;
  if (gpus > kLargestNode && !(choices.cluster_file && is_file(*choices.cluster_file))) {
    const MachineSize split = split_world(world);
    const std::string all =
        nodes > 1 ? fmt::format("{} nodes of {} GPUs?", nodes, gpus) : fmt::format("{} GPUs in one node?", gpus);
    return {{std::string(place_of(PlanChoice::Gpus)), fmt::format("{} No node has more than {}.", all, kLargestNode),
             world > kLargestWorld
                 ? fmt::format("Write --nodes and --gpus for at most {} GPUs in all.", kLargestWorld)
                 : fmt::format("Write {}--nodes {} --gpus {}.",
                               size_of_world(world, {}) ? fmt::format("--world-size {}, or ", world) : "", *split.nodes,
                               *split.gpus)}};
  }
  if (world <= kLargestWorld) return {};
  return {
      {std::string(place_of(choices.nodes ? PlanChoice::Nodes : PlanChoice::Gpus)),
       fmt::format("{} GPUs in all are more than {}, for which collectives and times are known.", world, kLargestWorld),
       fmt::format("Write at most {} nodes of {}.", kLargestWorld / gpus, gpus)}};
}

/// "--gpu A100 is taken to be A100 80GB SXM, not A100 40GB SXM ...": for a name that may mean several cards.
std::optional<std::string> chosen_card(const std::string& name, const Gpu& chosen, const std::vector<Gpu>& library) {
  std::vector<std::string> others;
  for (const Gpu& gpu : library) {
    if (gpu.name != chosen.name && is_beginning_of_name(name, gpu.name)) others.push_back(gpu.name);
  }
  if (others.empty() || is_same_gpu_name(name, chosen.name)) return std::nullopt;
  return fmt::format("{} {} is taken to be {}, not {}.", place_of(PlanChoice::GpuName), name, chosen.name,
                     fmt::join(others, " or "));
}

/// The library, if the choices may name one of its machines.
Result<ClusterLibrary> library_for(const PlanChoices& choices, const std::string& library) {
  Errors errors;
  if (choices.cluster_file && choices.gpu_name) {
    errors.push_back(
        {std::string(place_of(PlanChoice::GpuName)), "A cluster has its own GPU.",
         fmt::format("Give either {} or {}.", place_of(PlanChoice::ClusterFile), place_of(PlanChoice::GpuName))});
  }
  append(errors, check_sizes(choices));
  Result<ClusterLibrary> shipped = read_cluster_library(library + "/clusters");
  if (!shipped) append(errors, shipped.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return shipped;
}

Error missing_machines(const PlanChoices& choices) {
  if (!choices.gpus && !choices.nodes) {
    return {"", "The machines are missing.", "Write --gpu T4 --gpus 4, or --gpus 4 --mem 16G, or --cluster FILE."};
  }
  return {"", "The GPU of the machines is missing, or its memory.",
          "Add --gpu NAME, such as --gpu \"RTX 4090\" (fsdp-plan gpus lists them), or --mem 24G."};
}

/// The machines before the overrides other than their number and memory.
Result<Cluster> machines_of(const PlanChoices& choices, const ClusterLibrary& library) {
  const ClusterOverrides overrides = overrides_of(choices);
  if (const auto& name = choices.cluster_file) {
    FSDP_TRY(Cluster cluster, named_cluster(*name, library));
    return override_cluster(std::move(cluster), overrides);
  }
  const int gpus = overrides.gpus_per_node.value_or(1);
  const int nodes = overrides.nodes.value_or(1);
  if (const auto& name = choices.gpu_name) {
    FSDP_TRY(const Gpu gpu, find_gpu(*name, library.gpus, place_of(PlanChoice::GpuName)));
    FSDP_TRY(Cluster cluster, make_cluster(gpu, gpus, nodes, overrides));
    if (const auto assumption = chosen_card(*name, gpu, library.gpus)) {
      cluster.assumptions.insert(cluster.assumptions.begin(), *assumption);
    }
    return cluster;
  }
  if (!overrides.memory) return tl::unexpected(Errors{missing_machines(choices)});
  return assumed_cluster(library.gpus, gpus, nodes, *overrides.memory, overrides);
}

}  // namespace

MachineSize split_world(std::int64_t world) {
  for (const int gpus : {8, 4, 2}) {
    if (world > 8 && world % gpus == 0) return {gpus, static_cast<int>(world / gpus)};
  }
  return world <= 8 ? MachineSize{static_cast<int>(world), 1} : MachineSize{1, static_cast<int>(world)};
}

Result<MachineSize> size_of_world(std::int64_t world, const MachineSize& said, int usual) {
  const auto refuse = [](std::string what, std::string hint) {
    return failure("--world-size", std::move(what), std::move(hint));
  };
  if (world > kLargestWorld) {
    return refuse(
        fmt::format("{} GPUs are more than {}, for which collectives and times are known.", world, kLargestWorld),
        fmt::format("Write at most --world-size {}.", kLargestWorld));
  }
  const auto count = [](std::int64_t number) { return static_cast<int>(number); };
  if (said.gpus && said.nodes) {
    const std::int64_t product = std::int64_t{*said.gpus} * *said.nodes;
    if (product == world) return said;
    return refuse(
        fmt::format("--nodes {} of --gpus {} are {} GPUs, and not {}.", *said.nodes, *said.gpus, product, world),
        fmt::format("Write --world-size {}, or leave out one of the three.", product));
  }
  if (!said.gpus && !said.nodes && world <= usual) return MachineSize{count(world), 1};
  const int part = said.nodes ? *said.nodes : said.gpus.value_or(usual);
  if (world % part == 0) {
    const int other = count(world / part);
    return said.nodes ? MachineSize{other, part} : MachineSize{part, other};
  }
  const std::int64_t below = world / part * part;
  std::string hint =
      fmt::format("Write --world-size {}{}", below > 0 ? fmt::format("{} or ", below) : "", below + part);
  const MachineSize split = split_world(world);
  const bool is_free = !said.gpus && !said.nodes && *split.gpus > 1;
  if (is_free) hint += fmt::format(", or other nodes: --nodes {} --gpus {}", *split.nodes, *split.gpus);
  return refuse(said.nodes ? fmt::format("{} GPUs cannot be shared out over {} nodes alike.", world, part)
                           : fmt::format("{} GPUs are no whole number of nodes of {}.", world, part),
                hint + ".");
}

Errors check_machines(const PlanChoices& choices, const std::string& library) {
  const Result<ClusterLibrary> shipped = library_for(choices, library);
  return shipped ? Errors() : shipped.error();
}

Result<Cluster> resolve_machines(const PlanChoices& choices, const std::string& library) {
  FSDP_TRY(const ClusterLibrary shipped, library_for(choices, library));
  return machines_of(choices, shipped);
}

Result<Cluster> resolve_machines(const PlanChoices& choices, const ClusterLibrary& library) {
  return machines_of(choices, library);
}

Result<Cluster> override_machines(const PlanChoices& choices, const Cluster& cluster, const std::string& library) {
  if (choices.cluster_file || choices.gpu_name) return resolve_machines(choices, library);
  if (Errors errors = check_sizes(choices); !errors.empty()) return tl::unexpected(std::move(errors));
  return override_cluster(cluster, overrides_of(choices));
}

}  // namespace fsdp::planner
