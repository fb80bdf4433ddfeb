#pragma once

// The machines: the GPU, their number, and the links between them.
//
// A cluster is uniform: every node has the same GPUs and links. So 2 GPUs cost as much to compute as 16,384. Every
// figure names its source, because a prediction is only as good as its figures.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/object_reader.h"
#include "core/base/provenance.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/intra_link.h"
#include "core/cluster/machine_tables.h"
#include "core/cluster/measurements.h"
#include "core/cluster/nccl_settings.h"

namespace fsdp {

class KernelWorkspaces;

/// A figure and its source.
template <class T>
struct Sourced {
  T value{};
  Provenance provenance = Provenance::Assumed;
  std::string source;

  bool operator==(const Sourced&) const = default;
};

enum class NetworkKind { Infiniband, Roce, Ethernet, Efa, Slingshot, Tcpx };

/// One hop between nodes, as NCCL assumes it for every network: protocol Simple of its rings (src/graph/tuning.cc).
inline constexpr Seconds kNcclNetworkLatency{14e-6};

enum class CpuVendor { Unknown, Intel, Amd, Arm };

/// The link that the collectives of one node use.
struct IntraNodeLink {
  IntraLink kind = IntraLink::PcieHost;
  Sourced<BytesPerSecond> bandwidth;  ///< Nominal, of one GPU, per direction: 450 GB/s for H100 SXM.
  Sourced<Seconds> latency;           ///< Latency of one hop.
  /// The measured bus bandwidth (as nccl-tests defines it) of large all-gathers, if there is one.
  std::optional<Sourced<BytesPerSecond>> bus_bandwidth;

  bool operator==(const IntraNodeLink&) const = default;
};

/// The PCIe link of one GPU to its host, which offloading uses with any kind of `IntraNodeLink`.
struct HostLink {
  int pcie_generation = 3;
  int pcie_lanes = 16;
  Sourced<BytesPerSecond> bandwidth;  ///< Nominal, per direction.

  bool operator==(const HostLink&) const = default;
};

/// The most GPUs of a node. As `Network::gpus_per_nic`: all GPUs of the node, whatever their number.
inline constexpr int kMostGpusPerNode = 1024;
inline constexpr int kMostNodes = 1'000'000;

/// The network between the nodes.
struct Network {
  NetworkKind kind = NetworkKind::Ethernet;
  Sourced<BytesPerSecond> nic_bandwidth;  ///< Per direction, of one NIC or of all NICs that one GPU owns together.
  int gpus_per_nic = kMostGpusPerNode;    ///< GPUs that share one NIC; more than a node has means all of them.
  bool nic_near_gpu = false;              ///< NIC and GPU under one PCIe switch (GPUDirect).
  bool sharp = false;                     ///< The switches reduce (NCCL's CollNet plugin).
  Sourced<Seconds> latency;               ///< Latency of one hop; `kNcclNetworkLatency` or less is NCCL's own
                                          ///< assumption.

  bool operator==(const Network&) const = default;
};

struct Gpu {
  std::string name;                  ///< "T4", "A100 80GB SXM".
  std::vector<std::string> aliases;  ///< Other names that users and drivers use.
  std::string architecture;          ///< "Turing".
  int compute_capability = 0;        ///< 75 for 7.5.
  Sourced<int> num_sms;
  Sourced<Bytes> l2_cache;
  Sourced<Bytes> shared_memory_per_block;  ///< The most that one thread block may request.
  Sourced<Bytes> shared_memory_per_sm;
  Sourced<Bytes> memory;         ///< Total as the driver reports it (nvidia-smi), not as the label does.
  Sourced<Bytes> usable_memory;  ///< The memory that a process may allocate in all, its context included
                                 ///< (cudaMemGetInfo's total).
  Sourced<BytesPerSecond> memory_bandwidth;

  // Dense peak rates of matrix products. `nullopt` if the hardware has no such mode.
  std::optional<Sourced<FlopsPerSecond>> fp32;
  std::optional<Sourced<FlopsPerSecond>> tf32;
  std::optional<Sourced<FlopsPerSecond>> fp16;
  std::optional<Sourced<FlopsPerSecond>> bf16;
  std::optional<Sourced<FlopsPerSecond>> fp8;  ///< Both kinds, with sums in fp32.

  // The share of the peak that eager training reaches, 0 to 1. It includes clocks under load, shapes that tile badly
  // and gaps between kernels. If measured, fitted to published training steps of this card. A benchmark of one large
  // product reaches more.
  Sourced<double> achievable_compute;    ///< Share of a peak rate of matrix products and convolutions.
  Sourced<double> achievable_bandwidth;  ///< Share of the memory bandwidth of memory-bound ops.
  /// Share of a peak rate of fused attention. Defaults to `kAttentionShare` of the products' share
  /// (simulator/time/roofline.h).
  std::optional<Sourced<double>> achievable_attention;
  /// Share of the rate in fp32 without TF32 of matrix products. Defaults to `achievable_compute`.
  std::optional<Sourced<double>> achievable_fp32;
  // Time of kernels of all kinds over their time by the shares. Defaults to 1.
  std::optional<Sourced<double>> pace_16_bit;  ///< In fp16 and bf16,
  std::optional<Sourced<double>> pace_tf32;    ///< and in fp32 with TF32.
  /// Published steps of such cards take up to this factor more or less than predicted. `nullopt` if unknown.
  std::optional<Sourced<double>> time_spread;
  Sourced<Bytes> context;  ///< Memory of the CUDA context of one process with PyTorch loaded.

  // The usual node of this GPU: the default of a cluster.
  IntraNodeLink intra_node;
  HostLink host_link;
  Network network;

  /// For a CPU: measurements of its kernels (core/model/kernel_workspaces.h). May be null.
  std::shared_ptr<const KernelWorkspaces> kernel_workspaces = {};
  /// Published measurements of such cards. Not written with the card: it belongs to the library (`take_measurements`).
  MeasuredCard measured = {};
  /// Measurements of this very machine. Written with the cluster, not with the card.
  MeasuredMachine machine = {};

  bool operator==(const Gpu&) const = default;
};

/// Memory of each GPU that other programs take, such as an inference engine beside the trainer.
struct Reserve {
  Bytes bytes;       ///< Counts if `share` is 0.
  double share = 0;  ///< A fraction of what a process may allocate, as vLLM's gpu_memory_utilization.

  bool operator==(const Reserve&) const = default;
};

struct Cluster {
  std::string name;  ///< "4x T4", "AWS p4d.24xlarge".
  std::vector<std::string> aliases;
  Gpu gpu;
  int gpus_per_node = 1;  ///< One rank each: torchrun's --nproc-per-node.
  int nodes = 1;
  CpuVendor cpu = CpuVendor::Unknown;
  IntraNodeLink intra_node;
  HostLink host_link;
  Network network;                            ///< Counts only if there are several nodes.
  NcclSettings nccl;                          ///< REQUIRES: `nccl_rules` has no error for them.
  std::optional<Sourced<Bytes>> host_memory;  ///< Memory of one node.
  /// Rate of a node's NVMe drives together, for files read or written. If missing, `nvme_bandwidth` assumes one drive.
  std::optional<Sourced<BytesPerSecond>> nvme_rate = {};
  std::optional<Sourced<Bytes>> nvme_capacity = {};    ///< Capacity of a node's NVMe drives together. Not checked if
                                                       ///< missing.
  std::optional<Sourced<Bytes>> reserved_memory = {};  ///< Memory of each GPU that other programs take.
  /// Spread of the time that its nodes take for the same work: standard deviation, as a share. Defaults to that of
  /// `node_spread`.
  std::optional<Sourced<double>> node_spread = {};
  /// Assumptions for values that were not given, as sentences for the report.
  std::vector<std::string> assumptions;

  bool operator==(const Cluster&) const = default;
};

/// Rate at which a node reads from its NVMe drives. The rate for writing is the same.
Sourced<BytesPerSecond> nvme_bandwidth(const Cluster& cluster);

/// Memory of each GPU that other programs take; 0 if none is known.
Bytes reserved_by_others(const Cluster& cluster);

/// The number of GPUs, which equals the number of ranks.
int world_size(const Cluster& cluster);

/// Peak rate of matrix products in this dtype; `nullopt` if the hardware has no such mode (bf16 before Ampere). With
/// `allow_tf32`, float32 products run as TF32 if the GPU has it, as PyTorch does with
/// `torch.set_float32_matmul_precision("high")`.
std::optional<Sourced<FlopsPerSecond>> peak_rate(const Gpu& gpu, Dtype dtype, bool allow_tf32 = false);

/// The user's values, which override a cluster of the library or of a file.
struct ClusterOverrides {
  std::optional<int> gpus_per_node = {};
  std::optional<int> nodes = {};
  std::optional<Bytes> memory = {};     ///< Total device memory of a GPU.
  std::optional<Reserve> reserve = {};  ///< As `Cluster::reserved_memory`.
  std::optional<IntraLink> intra_link = {};
  std::optional<BytesPerSecond> intra_bandwidth = {};  ///< Nominal, of one GPU, per direction.
  std::optional<BytesPerSecond> bus_bandwidth = {};    ///< As `IntraNodeLink::bus_bandwidth`.
  std::optional<NetworkKind> network = {};
  std::optional<BytesPerSecond> nic_bandwidth = {};
  std::optional<int> gpus_per_nic = {};
  std::optional<bool> sharp = {};
  std::optional<std::string> nccl_version = {};       ///< As `NcclSettings::version`.
  std::optional<std::string> nccl_algorithms = {};    ///< NCCL_ALGO.
  std::optional<std::string> nccl_protocols = {};     ///< NCCL_PROTO.
  std::optional<Bytes> host_memory = {};              ///< Memory of one node.
  std::optional<BytesPerSecond> nvme_bandwidth = {};  ///< Bandwidth of a node's NVMe drives together.
  std::optional<Bytes> nvme_capacity = {};            ///< The same.
  std::optional<double> node_spread = {};             ///< As `Cluster::node_spread`, 0 to 1.
};

/// The cluster with the user's values. Error: each invalid number, by its flag (`--gpus`, `--mem`, ...).
Result<Cluster> override_cluster(Cluster cluster, const ClusterOverrides& overrides);

/// Nodes of GPUs with their usual links: `--gpu T4 --gpus 4 --nodes 2`. Lists assumed links in `assumptions`. Error: as
/// `override_cluster`.
Result<Cluster> make_cluster(const Gpu& gpu, int gpus_per_node, int nodes, const ClusterOverrides& overrides = {});

/// The cluster if no GPU is named: `--gpus 4 --mem 16G`. It has the given memory, and all else from the slowest GPU of
/// the library that has bf16 and at least about that much memory. `assumptions` states this, and the consequences for
/// other GPUs. REQUIRES: a library with a GPU that has bf16. Error: as `override_cluster`.
Result<Cluster> assumed_cluster(std::span<const Gpu> library, int gpus_per_node, int nodes, Bytes memory,
                                const ClusterOverrides& overrides = {});

/// Whether a GPU stands in for an unnamed one.
bool is_stand_in(const Gpu& gpu);
/// The card that gives a GPU its speed and links: "L4" for "L4 with 16.0 GiB".
std::string card_of(const Gpu& gpu);

/// Every assumed or given figure of the cluster, as a line: "CUDA context 300 MiB (assumed: ...)".
std::vector<std::string> unproven_figures(const Cluster& cluster);

extern const EnumTable<Provenance> kProvenanceNames;  ///< "measured", "published", "assumed", "given".
extern const EnumTable<IntraLink> kIntraLinkNames;    ///< "nvswitch", "nvlink", "pcie-peer", "pcie-host".
extern const EnumTable<NetworkKind> kNetworkNames;    ///< "infiniband", "roce", "ethernet", "efa", ...
extern const EnumTable<CpuVendor> kCpuVendorNames;    ///< "unknown", "intel", "amd", "arm".

/// For people: "NVLink through NVSwitch", "PCIe through host memory"; "InfiniBand", "RoCE", "Ethernet", "EFA".
std::string_view describe(IntraLink kind);
std::string_view describe(NetworkKind kind);

/// One hop between nodes over such a network, fitted to published tables (simulator/nccl/network_clock.cpp).
Sourced<Seconds> usual_latency(NetworkKind kind);

}  // namespace fsdp
