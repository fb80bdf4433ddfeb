// Makes clusters from the user's options.
//
// Which GPU stands in if none is named? Only the memory is known, and the answer has to hold for any GPU with that
// memory. So all else comes from a real GPU of the library, chosen to err on the slow side:
//
//   1. It has bf16. Published recipes are in bf16, and a GPU without it would plan another training run, not this one
//      (float16 with loss scaling, no flash attention). Those GPUs have to be named; an assumption states it.
//   2. It has at least about the given memory ("16G" may mean a product of 16 GB, of which the driver shows 8 % less),
//      and belongs to the smallest such class: small GPUs are slow, and --mem is often a share of a larger one.
//   3. Within 10 % of that class, it has the least memory bandwidth, then the lowest bf16 peak, then the first name:
//      the user's machine is hardly slower than predicted.
//
// The device memory itself is exactly the given one. A T4 "with 16 GB" shows 15 GiB, of which 14.6 GiB can be used; for
// 16G the verdict is for 16 GiB, with a line that names the GPUs that have less.

#include "core/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <tuple>

#include "core/base/parse_units.h"
#include "core/cluster/node_spread.h"

namespace fsdp {

namespace {

// 2 / (1 / 6.5 + 1 / 3.5)
constexpr BytesPerSecond kOneDrive{4.55e9};

constexpr std::array kProvenances = {
    EnumName<Provenance>{Provenance::Measured, "measured"},
    EnumName<Provenance>{Provenance::Published, "published"},
    EnumName<Provenance>{Provenance::Assumed, "assumed"},
    EnumName<Provenance>{Provenance::Given, "given"},
};
constexpr std::array kIntraLinks = {
    EnumName<IntraLink>{IntraLink::NvSwitch, "nvswitch"},
    EnumName<IntraLink>{IntraLink::NvLink, "nvlink"},
    EnumName<IntraLink>{IntraLink::PciePeer, "pcie-peer"},
    EnumName<IntraLink>{IntraLink::PcieHost, "pcie-host"},
};
constexpr std::array kNetworks = {
    EnumName<NetworkKind>{NetworkKind::Infiniband, "infiniband"}, EnumName<NetworkKind>{NetworkKind::Roce, "roce"},
    EnumName<NetworkKind>{NetworkKind::Ethernet, "ethernet"},     EnumName<NetworkKind>{NetworkKind::Efa, "efa"},
    EnumName<NetworkKind>{NetworkKind::Slingshot, "slingshot"},   EnumName<NetworkKind>{NetworkKind::Tcpx, "tcpx"},
};
constexpr std::array kCpuVendors = {
    EnumName<CpuVendor>{CpuVendor::Unknown, "unknown"},
    EnumName<CpuVendor>{CpuVendor::Intel, "intel"},
    EnumName<CpuVendor>{CpuVendor::Amd, "amd"},
    EnumName<CpuVendor>{CpuVendor::Arm, "arm"},
};

// The least share of the labeled memory that a driver reports: 15 of 16 GB (T4), 179 of 192 GB (B200).
constexpr double kShownOfLabel = 0.92;
constexpr double kSameClass = 1.1;
// Desktop cards, which machines seldom have several of. Users have to name them.
constexpr std::array<std::string_view, 2> kNeverStandIn = {"RTX 3060", "RTX 4080"};

bool uses_nvlink(IntraLink kind) {
  return kind == IntraLink::NvSwitch || kind == IntraLink::NvLink;
}

template <class T>
Sourced<T> given(T value, std::string_view flag) {
  return {value, Provenance::Given, std::string(flag)};
}

/// The errors of invalid numbers.
Errors check(const ClusterOverrides& overrides) {
  Errors errors;
  const auto check_count = [&](std::optional<int> count, int most, std::string_view flag, std::string_view noun) {
    if (!count || (*count >= 1 && *count <= most)) return;
    errors.push_back({std::string(flag), fmt::format("{} is not a valid number of {}.", *count, noun),
                      fmt::format("Write an integer from 1 to {}.", most)});
  };
  const auto check_positive = [&](bool is_bad, std::string_view flag, std::string_view what, std::string_view example) {
    if (is_bad) errors.push_back({std::string(flag), std::string(what), fmt::format("Write it as {}.", example)});
  };
  check_count(overrides.gpus_per_node, kMostGpusPerNode, "--gpus", "GPUs per node");
  check_count(overrides.nodes, kMostNodes, "--nodes", "nodes");
  check_count(overrides.gpus_per_nic, kMostGpusPerNode, "--gpus-per-nic", "GPUs per NIC");
  check_positive(overrides.memory && *overrides.memory <= Bytes(0), "--mem", "The memory of a GPU must be above 0.",
                 "\"16G\"");
  check_positive(overrides.host_memory && *overrides.host_memory <= Bytes(0), "--host-mem",
                 "The memory of a node must be above 0.", "\"256G\"");
  check_positive(overrides.nvme_bandwidth && !(overrides.nvme_bandwidth->count() > 0), "--nvme-bandwidth",
                 "The bandwidth of a drive must be above 0.", "\"6GB/s\"");
  check_positive(overrides.nvme_capacity && *overrides.nvme_capacity <= Bytes(0), "--nvme-capacity",
                 "A drive's capacity must be above 0.", "\"2T\"");
  check_positive(overrides.intra_bandwidth && !(overrides.intra_bandwidth->count() > 0), "--intra-bandwidth",
                 "The bandwidth of a link must be above 0.", "\"16GB/s\"");
  check_positive(overrides.bus_bandwidth && !(overrides.bus_bandwidth->count() > 0), "--bus-bandwidth",
                 "The bandwidth of collectives must be above 0.", "\"12GB/s\"");
  check_positive(overrides.node_spread && !(*overrides.node_spread >= 0 && *overrides.node_spread <= 1),
                 "--node-spread", "Nodes differ by a share from 0 to 1.", "0.035");
  check_positive(overrides.nic_bandwidth && !(overrides.nic_bandwidth->count() > 0), "--nic-bandwidth",
                 "The bandwidth of a link must be above 0.", "\"12.5GB/s\"");
  return errors;
}

/// Sets the memory that other programs take. Error: it leaves none.
Result<void> reserve_memory(Cluster& cluster, const std::optional<Reserve>& reserve) {
  const Bytes usable = cluster.gpu.usable_memory.value;
  if (reserve) {
    const double share = reserve->share * static_cast<double>(usable.count());
    const Bytes bytes = reserve->share > 0 ? Bytes(static_cast<std::int64_t>(share)) : reserve->bytes;
    cluster.reserved_memory = given(bytes, "--reserve");
  }
  if (!cluster.reserved_memory || cluster.reserved_memory->value < usable) return {};
  return failure("--reserve",
                 fmt::format("Other programs take {}, and a GPU has {}.", format_bytes(cluster.reserved_memory->value),
                             format_bytes(usable)),
                 "Leave some of it for the training.");
}

/// Changes the link inside a node. Error: NVLink without a bandwidth for a GPU that is not known to have it.
Result<void> override_intra_node(Cluster& cluster, const ClusterOverrides& overrides) {
  if (overrides.intra_link && *overrides.intra_link != cluster.intra_node.kind) {
    const IntraLink kind = *overrides.intra_link;
    const bool had_nvlink = uses_nvlink(cluster.intra_node.kind);
    if (uses_nvlink(kind) && !had_nvlink && !overrides.intra_bandwidth) {
      return failure("--intra-link", fmt::format("The NVLink bandwidth of {} is not known.", cluster.gpu.name),
                     "Give it with --intra-bandwidth, such as \"56GB/s\" per direction.");
    }
    if (!uses_nvlink(kind)) {
      cluster.intra_node.bandwidth = cluster.host_link.bandwidth;
      // The latencies of NVLink and PCIe differ: NCCL's tables have 3.4 and 5.7 us.
      if (had_nvlink)
        cluster.intra_node.latency = {Seconds(5.7e-6), Provenance::Published, "NCCL, src/graph/tuning.cc"};
    }
    cluster.intra_node.kind = kind;
    // The measurement is of another link.
    cluster.intra_node.bus_bandwidth.reset();
  }
  if (overrides.intra_bandwidth) {
    cluster.intra_node.bandwidth = given(*overrides.intra_bandwidth, "--intra-bandwidth");
    cluster.intra_node.bus_bandwidth.reset();
  }
  if (overrides.bus_bandwidth) cluster.intra_node.bus_bandwidth = given(*overrides.bus_bandwidth, "--bus-bandwidth");
  return {};
}

std::string describe_network(const Network& network, int gpus_per_node) {
  const std::string share = network.gpus_per_nic >= gpus_per_node ? std::string("one NIC per node")
                            : network.gpus_per_nic == 1           ? std::string("one NIC per GPU")
                                                        : fmt::format("one NIC per {} GPUs", network.gpus_per_nic);
  return fmt::format("{}, {} of {}", describe(network.kind), share, format_bandwidth(network.nic_bandwidth.value));
}

bool may_stand_in(const Gpu& gpu) {
  return gpu.bf16 && std::find(kNeverStandIn.begin(), kNeverStandIn.end(), gpu.name) == kNeverStandIn.end();
}

/// The GPU that stands in for an unnamed one; the top of this file explains the choice.
const Gpu& stand_in(std::span<const Gpu> library, Bytes memory) {
  const auto at_least = static_cast<double>(memory.count()) * kShownOfLabel;
  const auto size = [](const Gpu& gpu) { return static_cast<double>(gpu.memory.value.count()); };
  const Gpu* smallest = nullptr;
  const Gpu* largest = nullptr;
  for (const Gpu& gpu : library) {
    if (!may_stand_in(gpu)) continue;
    if (largest == nullptr || size(gpu) > size(*largest)) largest = &gpu;
    if (size(gpu) >= at_least && (smallest == nullptr || size(gpu) < size(*smallest))) smallest = &gpu;
  }
  assert(largest != nullptr);
  const double class_begin = size(smallest != nullptr ? *smallest : *largest);
  const Gpu* chosen = nullptr;
  const auto speed = [](const Gpu& gpu) {
    return std::tuple(gpu.memory_bandwidth.value, gpu.bf16->value, std::string_view(gpu.name));
  };
  for (const Gpu& gpu : library) {
    if (!may_stand_in(gpu) || size(gpu) < class_begin || size(gpu) > class_begin * kSameClass) continue;
    if (chosen == nullptr || speed(gpu) < speed(*chosen)) chosen = &gpu;
  }
  return *chosen;
}

/// Whether a name takes "an", letter by letter: "an L4", "a T4".
bool is_said_with_an(std::string_view name) {
  return !name.empty() && std::string_view("AEFHILMNORSX8").find(name.front()) != std::string_view::npos;
}

/// The end of the name of a card that stands in for one with this memory, that of its machines, and of its
/// descriptions.
constexpr std::string_view kWith = " with ";
std::string with_memory(Bytes memory) {
  return std::string(kWith) + format_bytes(memory);
}
std::string gpus_of(Bytes memory) {
  return " GPUs of " + format_bytes(memory);
}
std::string capped_at(Bytes memory) {
  return fmt::format(", memory capped at {}.", format_bytes(memory));
}

/// Updates the memory in the names of a stand-in.
void rename_stand_in(Cluster& cluster, Bytes before, Bytes now) {
  if (!cluster.gpu.name.ends_with(with_memory(before))) return;
  const auto renew = [&](std::string& text, std::string (*ending)(Bytes)) {
    if (text.ends_with(ending(before)))
      text.replace(text.size() - ending(before).size(), std::string::npos, ending(now));
  };
  renew(cluster.gpu.name, with_memory);
  renew(cluster.name, gpus_of);
  for (std::string& line : cluster.assumptions) renew(line, capped_at);
}

/// Consequences of a stand-in for owners of another GPU with about that memory.
std::vector<std::string> stand_in_assumptions(std::span<const Gpu> library, const Gpu& chosen, Bytes memory) {
  std::vector<std::string> smaller;
  std::vector<std::string> without_bf16;
  for (const Gpu& gpu : library) {
    const double share = ratio(gpu.memory.value, memory);
    if (share < kShownOfLabel || share > 1 / kShownOfLabel) continue;
    if (gpu.usable_memory.value < memory)
      smaller.push_back(fmt::format("{} {}", gpu.name, format_bytes(gpu.usable_memory.value)));
    if (!gpu.bf16) without_bf16.push_back(gpu.name);
  }
  const bool is_large_enough = ratio(chosen.memory.value, memory) >= kShownOfLabel;
  std::vector<std::string> lines;
  const std::string_view links = uses_nvlink(chosen.intra_node.kind) ? "NVLink" : "PCIe";
  lines.push_back(fmt::format("No GPU named: {} {}'s speed and {} links{}", is_said_with_an(chosen.name) ? "an" : "a",
                              chosen.name, links, capped_at(memory)));
  lines.push_back(fmt::format(
      "{} is {}; its CUDA context is assumed, too.", chosen.name,
      is_large_enough ? fmt::format("the slowest of the smallest GPUs known with bf16 and {}", format_bytes(memory))
                      : std::string("the largest GPU known")));
  if (!smaller.empty()) {
    lines.push_back(fmt::format("Assumes all {} are usable; some GPUs sold with that much have less: {}.",
                                format_bytes(memory), fmt::join(smaller, ", ")));
  }
  if (!without_bf16.empty()) {
    lines.push_back(fmt::format(
        "Assumes bf16 and FlashAttention are supported; {} not support them: name yours with "
        "--gpu.",
        without_bf16.size() == 1 ? without_bf16[0] + " does" : fmt::format("{} do", fmt::join(without_bf16, ", "))));
  }
  return lines;
}

}  // namespace

constinit const EnumTable<Provenance> kProvenanceNames{"provenance", kProvenances};
constinit const EnumTable<IntraLink> kIntraLinkNames{"link", kIntraLinks};
constinit const EnumTable<NetworkKind> kNetworkNames{"network", kNetworks};
constinit const EnumTable<CpuVendor> kCpuVendorNames{"CPU vendor", kCpuVendors};

std::string_view describe(IntraLink kind) {
  switch (kind) {
    case IntraLink::NvSwitch:
      return "NVLink through NVSwitch";
    case IntraLink::NvLink:
      return "NVLink without a switch";
    case IntraLink::PciePeer:
      return "PCIe, peer to peer";
    case IntraLink::PcieHost:
      return "PCIe through host memory";
  }
  return {};
}

std::string_view describe(NetworkKind kind) {
  switch (kind) {
    case NetworkKind::Infiniband:
      return "InfiniBand";
    case NetworkKind::Roce:
      return "RoCE";
    case NetworkKind::Ethernet:
      return "Ethernet";
    case NetworkKind::Efa:
      return "EFA";
    case NetworkKind::Slingshot:
      return "Slingshot";
    case NetworkKind::Tcpx:
      return "GPUDirect-TCPX";
  }
  return {};
}

Sourced<Seconds> usual_latency(NetworkKind kind) {
  const auto fitted = [](double microseconds, std::string_view tables) {
    return Sourced<Seconds>{Seconds(1e-6 * microseconds), Provenance::Measured,
                            fmt::format("fitted to nccl-tests tables of {}: tests/golden/nccl", tables)};
  };
  switch (kind) {
    case NetworkKind::Infiniband:
    case NetworkKind::Roce:
      return fitted(15.8, "four owners of InfiniBand or RoCE");
    case NetworkKind::Efa:
      return fitted(50, "three machines with EFA");
    case NetworkKind::Slingshot:
      return fitted(31, "two machines with Slingshot, which differ by a factor of two");
    case NetworkKind::Tcpx:
      return fitted(43, "one machine with GPUDirect-TCPXO");
    case NetworkKind::Ethernet:
      return {Seconds(50e-6), Provenance::Assumed, "no table over TCP was found; as over EFA"};
  }
  return {};
}

Sourced<BytesPerSecond> nvme_bandwidth(const Cluster& cluster) {
  if (cluster.nvme_rate) return *cluster.nvme_rate;
  return {kOneDrive, Provenance::Assumed,
          "one data-center drive on PCIe 4.0 x4, which reads 6.5 GB/s and writes 3.5 (Samsung PM9A3), of each as much"};
}

Bytes reserved_by_others(const Cluster& cluster) {
  return cluster.reserved_memory ? cluster.reserved_memory->value : Bytes(0);
}

int world_size(const Cluster& cluster) {
  return cluster.gpus_per_node * cluster.nodes;
}

std::optional<Sourced<FlopsPerSecond>> peak_rate(const Gpu& gpu, Dtype dtype, bool allow_tf32) {
  switch (dtype) {
    case Dtype::Float32:
      return allow_tf32 && gpu.tf32 ? gpu.tf32 : gpu.fp32;
    case Dtype::Float16:
      return gpu.fp16;
    case Dtype::BFloat16:
      return gpu.bf16;
    default:
      return std::nullopt;
  }
}

Result<Cluster> override_cluster(Cluster cluster, const ClusterOverrides& overrides) {
  cluster.nccl.version = overrides.nccl_version.value_or(cluster.nccl.version);
  cluster.nccl.algorithms = overrides.nccl_algorithms.value_or(cluster.nccl.algorithms);
  cluster.nccl.protocols = overrides.nccl_protocols.value_or(cluster.nccl.protocols);
  Errors errors = check(overrides);
  if (Result<NcclRules> rules = nccl_rules(cluster.nccl); !rules) append(errors, std::move(rules.error()));
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  cluster.gpus_per_node = overrides.gpus_per_node.value_or(cluster.gpus_per_node);
  cluster.nodes = overrides.nodes.value_or(cluster.nodes);
  if (overrides.memory) {
    const Bytes shown = cluster.gpu.memory.value;
    if (*overrides.memory > shown && cluster.gpu.memory.provenance != Provenance::Given) {
      cluster.assumptions.push_back(fmt::format("Assumes {} of device memory, as given: more than the {} of {}.",
                                                format_bytes(*overrides.memory), format_bytes(shown),
                                                cluster.gpu.name));
    }
    rename_stand_in(cluster, shown, *overrides.memory);
    cluster.gpu.memory = given(*overrides.memory, "--mem");
    cluster.gpu.usable_memory = cluster.gpu.memory;
  }
  if (Result<void> changed = reserve_memory(cluster, overrides.reserve); !changed) {
    return tl::unexpected(changed.error());
  }
  if (Result<void> changed = override_intra_node(cluster, overrides); !changed) return tl::unexpected(changed.error());
  if (overrides.network && *overrides.network != cluster.network.kind) {
    cluster.network.kind = *overrides.network;
    cluster.network.latency = usual_latency(*overrides.network);
  }
  if (overrides.nic_bandwidth) cluster.network.nic_bandwidth = given(*overrides.nic_bandwidth, "--nic-bandwidth");
  if (overrides.gpus_per_nic) cluster.network.gpus_per_nic = *overrides.gpus_per_nic;
  cluster.network.sharp = overrides.sharp.value_or(cluster.network.sharp);
  if (overrides.host_memory) cluster.host_memory = given(*overrides.host_memory, "--host-mem");
  if (overrides.nvme_bandwidth) cluster.nvme_rate = given(*overrides.nvme_bandwidth, "--nvme-bandwidth");
  if (overrides.nvme_capacity) cluster.nvme_capacity = given(*overrides.nvme_capacity, "--nvme-capacity");
  if (overrides.node_spread) cluster.node_spread = given(*overrides.node_spread, "--node-spread");
  return cluster;
}

Result<Cluster> make_cluster(const Gpu& gpu, int gpus_per_node, int nodes, const ClusterOverrides& overrides) {
  Cluster cluster;
  cluster.gpu = gpu;
  cluster.intra_node = gpu.intra_node;
  cluster.host_link = gpu.host_link;
  cluster.network = gpu.network;
  ClusterOverrides all = overrides;
  all.gpus_per_node = gpus_per_node;
  all.nodes = nodes;
  FSDP_TRY(cluster, override_cluster(std::move(cluster), all));
  const std::string per_node = fmt::format("{}x {}", gpus_per_node, gpu.name);
  cluster.name = nodes == 1 ? per_node : fmt::format("{} nodes of {}", nodes, per_node);
  if (gpus_per_node > 1 && !overrides.intra_link) {
    cluster.assumptions.push_back(fmt::format("The GPUs of a node are linked by {} at {} each way, as is usual for {}.",
                                              describe(cluster.intra_node.kind),
                                              format_bandwidth(cluster.intra_node.bandwidth.value), gpu.name));
  }
  if (nodes > 1 && !(overrides.network && overrides.nic_bandwidth)) {
    cluster.assumptions.push_back(fmt::format("The nodes are linked by {} each way, as is usual for {}.",
                                              describe_network(cluster.network, gpus_per_node), gpu.name));
  }
  return cluster;
}

Result<Cluster> assumed_cluster(std::span<const Gpu> library, int gpus_per_node, int nodes, Bytes memory,
                                const ClusterOverrides& overrides) {
  ClusterOverrides all = overrides;
  all.memory = memory;
  // A memory of zero is an error of `make_cluster`; until then any GPU will do.
  const Gpu& chosen = stand_in(library, std::max(memory, Bytes(1)));
  Gpu gpu = chosen;
  // The user gave this value, so it needs no assumption.
  gpu.memory.provenance = Provenance::Given;
  FSDP_TRY(Cluster cluster, make_cluster(gpu, gpus_per_node, nodes, all));
  std::vector<std::string> lines = stand_in_assumptions(library, chosen, memory);
  lines.insert(lines.end(), cluster.assumptions.begin(), cluster.assumptions.end());
  cluster.assumptions = std::move(lines);
  cluster.gpu.name = chosen.name + with_memory(memory);
  const std::string per_node = std::to_string(gpus_per_node) + gpus_of(memory);
  cluster.name = nodes == 1 ? per_node : fmt::format("{} nodes of {}", nodes, per_node);
  return cluster;
}

bool is_stand_in(const Gpu& gpu) {
  return gpu.name.find(kWith) != std::string::npos;
}

std::string card_of(const Gpu& gpu) {
  return gpu.name.substr(0, gpu.name.find(kWith));
}

std::vector<std::string> unproven_figures(const Cluster& cluster) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view what, const auto& figure, std::string text) {
    if (figure.provenance != Provenance::Assumed && figure.provenance != Provenance::Given) return;
    lines.push_back(
        fmt::format("{} {} ({}: {})", what, text, name_of(kProvenanceNames, figure.provenance), figure.source));
  };
  const Gpu& gpu = cluster.gpu;
  const auto add_share = [&](std::string_view what, const Sourced<double>& share) {
    add(what, share, fmt::format("{:.0f} %", 100 * share.value));
  };
  const auto add_rate = [&](std::string_view what, const std::optional<Sourced<FlopsPerSecond>>& rate) {
    if (rate) add(what, *rate, format_flops_rate(rate->value));
  };
  add("Device memory", gpu.memory, format_bytes(gpu.memory.value));
  add("Usable device memory", gpu.usable_memory, format_bytes(gpu.usable_memory.value));
  add("CUDA context", gpu.context, format_bytes(gpu.context.value));
  add("Memory bandwidth", gpu.memory_bandwidth, format_bandwidth(gpu.memory_bandwidth.value));
  add_rate("Peak in fp32", gpu.fp32);
  add_rate("Peak in tf32", gpu.tf32);
  add_rate("Peak in fp16", gpu.fp16);
  add_rate("Peak in bf16", gpu.bf16);
  add_rate("Peak in fp8", gpu.fp8);
  add_share("Reachable share of the peak rate", gpu.achievable_compute);
  add_share("Reachable share of the memory bandwidth", gpu.achievable_bandwidth);
  if (gpu.achievable_attention) add_share("Reachable share of the peak rate in attention", *gpu.achievable_attention);
  if (gpu.achievable_fp32) add_share("Reachable share of the peak rate in fp32 without TF32", *gpu.achievable_fp32);
  const auto add_factor = [&](std::string_view what, const std::optional<Sourced<double>>& factor) {
    if (factor) add(what, *factor, fmt::format("{:.3g}", factor->value));
  };
  add_factor("Time of kernels in 16 bits over what the shares say", gpu.pace_16_bit);
  add_factor("Time of kernels in TF32 over what the shares say", gpu.pace_tf32);
  add_factor("Published steps over predicted ones, at most", gpu.time_spread);
  const auto add_link = [&](std::string_view what, const Sourced<BytesPerSecond>& bandwidth) {
    add(what, bandwidth, format_bandwidth(bandwidth.value));
  };
  add_link("PCIe bandwidth to the host", cluster.host_link.bandwidth);
  if (cluster.reserved_memory) {
    add("Memory of other programs", *cluster.reserved_memory, format_bytes(cluster.reserved_memory->value));
  }
  if (cluster.host_memory) add("Host memory", *cluster.host_memory, format_bytes(cluster.host_memory->value));
  if (cluster.nvme_rate) add_link("Bandwidth of the NVMe drives", *cluster.nvme_rate);
  if (cluster.nvme_capacity) {
    add("Capacity of the NVMe drives", *cluster.nvme_capacity, format_bytes(cluster.nvme_capacity->value));
  }
  if (cluster.gpus_per_node > 1) {
    add_link("Link bandwidth in a node", cluster.intra_node.bandwidth);
    add("Link latency in a node", cluster.intra_node.latency, format_time(cluster.intra_node.latency.value));
    if (cluster.intra_node.bus_bandwidth) add_link("Bus bandwidth in a node", *cluster.intra_node.bus_bandwidth);
  }
  if (cluster.nodes > 1) {
    add_link("NIC bandwidth", cluster.network.nic_bandwidth);
    add("Network latency", cluster.network.latency, format_time(cluster.network.latency.value));
    const Sourced<double> spread = node_spread(cluster);
    add("Spread of the nodes' speed", spread, fmt::format("{:.3g} %", 100 * spread.value));
  }
  return lines;
}

}  // namespace fsdp
