// The machines of a command line.
//
//   --cluster FILE|NAME      a file, or a shipped cluster; the other options change it
//   --gpu NAME --gpus N      GPUs of the library with the links that are usual for them
//   --gpus N --mem SIZE      no GPU is named: core/cluster.h says which one stands in

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <system_error>

#include "core/cluster_reader.h"
#include "core/parse_units.h"
#include "planner/cli_request.h"
#include "planner/cli_values.h"

namespace fsdp::planner {

namespace {

constexpr std::array kMachineOptions = {
    Option::Gpus,         Option::Nodes,         Option::GpuName,        Option::Memory,
    Option::ClusterFile,  Option::IntraLinkName, Option::IntraBandwidth, Option::NetworkName,
    Option::NicBandwidth, Option::GpusPerNic,    Option::HostMemory,
};

/// Any integer: the cluster has its own words for a machine without GPUs.
std::optional<int> small_count(OptionReader& reader, const CommandLine& line, Option option) {
  const std::optional<std::string> text = line.value(option);
  if (!text) return std::nullopt;
  const std::optional<std::int64_t> count = parse_integer(*text);
  if (!count) reader.fail(option, fmt::format("\"{}\" is not a whole number.", *text));
  if (!count) return std::nullopt;
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(std::clamp<std::int64_t>(*count, Limits::min(), Limits::max()));
}

ClusterOverrides read_overrides(const CommandLine& line, Errors& errors) {
  OptionReader reader(line, errors);
  ClusterOverrides overrides;
  overrides.gpus_per_node = small_count(reader, line, Option::Gpus);
  overrides.nodes = small_count(reader, line, Option::Nodes);
  overrides.memory = reader.size(Option::Memory);
  overrides.intra_link = reader.choice(Option::IntraLinkName, kIntraLinkNames);
  if (const auto rate = line.value(Option::IntraBandwidth)) {
    overrides.intra_bandwidth = reader.keep(parse_bandwidth(*rate, flag_of(Option::IntraBandwidth)));
  }
  overrides.network = reader.choice(Option::NetworkName, kNetworkNames);
  if (const auto rate = line.value(Option::NicBandwidth)) {
    overrides.nic_bandwidth = reader.keep(parse_bandwidth(*rate, flag_of(Option::NicBandwidth)));
  }
  overrides.gpus_per_nic = small_count(reader, line, Option::GpusPerNic);
  overrides.host_memory = reader.size(Option::HostMemory);
  return overrides;
}

bool is_file(const std::string& name) {
  std::error_code ignored;
  return name == "-" || name.find('/') != std::string::npos || name.ends_with(".json") ||
         std::filesystem::exists(name, ignored);
}

Result<Cluster> named_cluster(const std::string& name, const ClusterLibrary& library) {
  Result<Cluster> shipped = find_cluster(name, library.clusters, flag_of(Option::ClusterFile));
  std::error_code ignored;
  // Names have a "/" as well: "25 Gb/s Ethernet".
  if (is_file(name) && (!shipped || std::filesystem::exists(name, ignored))) {
    return read_cluster_file(name, library.gpus);
  }
  return shipped;
}

/// "--gpu A100 is taken to be A100 80GB SXM, not A100 40GB SXM ...": where a name may mean several cards.
std::optional<std::string> chosen_card(const std::string& name, const Gpu& chosen, const std::vector<Gpu>& library) {
  std::vector<std::string> others;
  for (const Gpu& gpu : library) {
    if (gpu.name != chosen.name && is_beginning_of_name(name, gpu.name)) others.push_back(gpu.name);
  }
  if (others.empty() || is_same_gpu_name(name, chosen.name)) return std::nullopt;
  return fmt::format("--gpu {} is taken to be {}, not {}.", name, chosen.name, fmt::join(others, " or "));
}

/// The machines before the overrides other than their number and memory.
Result<Cluster> machines_of(const CommandLine& line, const ClusterLibrary& library, const ClusterOverrides& overrides) {
  if (const auto name = line.value(Option::ClusterFile)) {
    FSDP_TRY(Cluster cluster, named_cluster(*name, library));
    return override_cluster(std::move(cluster), overrides);
  }
  const int gpus = overrides.gpus_per_node.value_or(1);
  const int nodes = overrides.nodes.value_or(1);
  if (const auto name = line.value(Option::GpuName)) {
    FSDP_TRY(const Gpu gpu, find_gpu(*name, library.gpus, flag_of(Option::GpuName)));
    FSDP_TRY(Cluster cluster, make_cluster(gpu, gpus, nodes, overrides));
    if (const auto line_about = chosen_card(*name, gpu, library.gpus)) {
      cluster.assumptions.insert(cluster.assumptions.begin(), *line_about);
    }
    return cluster;
  }
  if (!overrides.memory) {
    return failure("", "The machines are missing.",
                   "Write --gpus 4 --mem 16G, or --gpu T4 --gpus 4, or --cluster FILE.");
  }
  return assumed_cluster(library.gpus, gpus, nodes, *overrides.memory, overrides);
}

}  // namespace

bool names_machines(const CommandLine& line) {
  return std::any_of(kMachineOptions.begin(), kMachineOptions.end(), [&](Option option) { return line.has(option); });
}

Result<Cluster> read_machines(const CommandLine& line, const std::string& library) {
  Errors errors;
  const ClusterOverrides overrides = read_overrides(line, errors);
  if (line.has(Option::ClusterFile) && line.has(Option::GpuName)) {
    errors.push_back({"--gpu", "A cluster has its own GPU.", "Give either --cluster or --gpu."});
  }
  const Result<ClusterLibrary> shipped = read_cluster_library(library + "/clusters");
  if (!shipped) append(errors, shipped.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return machines_of(line, *shipped, overrides);
}

Result<Cluster> read_machines(const CommandLine& line, const ClusterLibrary& library) {
  Errors errors;
  const ClusterOverrides overrides = read_overrides(line, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return machines_of(line, library, overrides);
}

Result<Cluster> override_machines(const CommandLine& line, const Cluster& cluster, const std::string& library) {
  if (line.has(Option::ClusterFile) || line.has(Option::GpuName)) return read_machines(line, library);
  Errors errors;
  const ClusterOverrides overrides = read_overrides(line, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return override_cluster(cluster, overrides);
}

}  // namespace fsdp::planner
