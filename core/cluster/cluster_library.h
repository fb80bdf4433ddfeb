#pragma once

// The shipped GPUs and clusters, found by the names that users have for them.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"

namespace fsdp {

/// The shipped GPUs and clusters, each sorted by name.
struct ClusterLibrary {
  std::vector<Gpu> gpus;
  std::vector<Cluster> clusters;
};

/// Reads every `gpus/*.json` and `*.json` of a folder, and every `measured/*.json` if that folder exists: its tables go
/// to the cards that they name. Error: all errors of all files; two files with the same name.
Result<ClusterLibrary> read_cluster_library(const std::string& folder);

/// Gives a card of its own file, such as a plan, the measurements of the shipped card of that name.
void take_measurements(Gpu& gpu, std::span<const Gpu> gpus);

/// The GPU with this name or alias. Ignores case, blanks, "-", "_" and a leading "NVIDIA". Error, with the place
/// `where`: unknown, with the nearest name.
Result<Gpu> find_gpu(std::string_view name, std::span<const Gpu> gpus, std::string_view where);

/// Whether two names of a GPU are the same by the rules of `find_gpu`, and whether a shorter one begins another.
bool is_same_gpu_name(std::string_view a, std::string_view b);
bool is_beginning_of_name(std::string_view beginning, std::string_view name);

/// The shipped cluster with this name or alias, as `find_gpu`.
Result<Cluster> find_cluster(std::string_view name, std::span<const Cluster> clusters, std::string_view where);

}  // namespace fsdp
