#pragma once

// The GPUs and clusters that are shipped, and how to find one by the name that a user has for it.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"

namespace fsdp {

/// The GPUs and clusters that are shipped, each sorted by name.
struct ClusterLibrary {
  std::vector<Gpu> gpus;
  std::vector<Cluster> clusters;
};

/// Reads every `gpus/*.json` and `*.json` of a folder, and every `measured/*.json`, where there is that folder: its
/// tables become those of the cards that they name. Error: all errors of all files; two that share a name.
Result<ClusterLibrary> read_cluster_library(const std::string& folder);

/// Gives a card that stands in a file of its own, such as a plan, the measurements of the shipped card of its name.
void take_measurements(Gpu& gpu, std::span<const Gpu> gpus);

/// The GPU with this name or alias; case, blanks, "-" and "_" do not matter, nor does a leading "NVIDIA". Error:
/// unknown, with the nearest name; `where` is put in front.
Result<Gpu> find_gpu(std::string_view name, std::span<const Gpu> gpus, std::string_view where);

/// Whether two names of a GPU are the same as `find_gpu` compares them, and whether a shorter one begins another.
bool is_same_gpu_name(std::string_view a, std::string_view b);
bool is_beginning_of_name(std::string_view beginning, std::string_view name);

/// The shipped cluster with this name or alias, as `find_gpu`.
Result<Cluster> find_cluster(std::string_view name, std::span<const Cluster> clusters, std::string_view where);

}  // namespace fsdp
