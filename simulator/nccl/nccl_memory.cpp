// NCCL's device memory for a communicator.
//
// Each connection between two GPUs owns one buffer for each protocol: LL 0.5 MiB, LL128 4.69 MiB, Simple 4 MiB. Between
// GPUs that map each other's memory the receiver holds them (9.19 MiB, in pages of 2 MiB: 10 MiB) and the sender a
// control page (2 MiB). A ring has one connection out and one in for each channel, so
//
//   ring        12 MiB x channels
//   trees       12 MiB x channels    the way back along the same neighbors; connected by the first all-reduce
//   network     10 MiB for each direction and channel that leaves the node at this GPU, with GPUDirect; trees again
//   NVLS        channels x 2 x (8 x 128 KiB) x ranks of the node; connected by the first all-reduce
//   peers       12 MiB x 32 channels for each other GPU of the node; connected by the first all-to-all
//   the rest    work queues, kernels, proxies: the remainder of measured totals
//
//   8 x H100:  24 channels: 288 + 288 + 16 x 2 x 1 MiB x 8 = 256, + 180 = 1012 MiB; measured 1.06 GB
//              after an all-to-all: 7 x (384 + 63) = 3129 MiB more; measured 4.34 GB, from which the 63 are
//   8 x A100:  24 channels: 288 + 288, + 80 = 656 MiB; measured 688 MB (4 GPUs of a node)
//
// GPUs that cannot map each other's memory exchange data through host memory, and the device holds only a few MiB for
// each channel.
//
// Sources: NCCL 2.28.9 and 2.30.7, src/include/comm.h and src/transport/{p2p,shm,net,nvls}.cc; exact block sizes in
// NVIDIA/nccl#1685; measured totals in NVIDIA/nccl#964 (A100) and #1685 (H100). Trees and NVLS are connected at the
// first use of the algorithm (`NCCL_RUNTIME_CONNECT`, 2.22).
//
// Not modeled: `NCCL_BUFFSIZE` and `NCCL_MAX_CTAS`, communicators that share buffers (`ncclCommSplit` with
// `splitShare`), registered and symmetric buffers, send/recv connections of pipelines, and those of an all-to-all
// over the network, whose buffers are shared. The rest is a guess until it is measured: reported totals for one
// communicator go from 0.5 to 1.6 GB.

#include "simulator/nccl/nccl_memory.h"

#include <fmt/format.h>

#include <utility>

#include "simulator/nccl/nccl_topology.h"

namespace fsdp::simulator {

namespace {

constexpr Bytes kMiB(1 << 20);
constexpr Bytes kPeerConnections = 12 * kMiB;   // One in, one out, in one channel.
constexpr Bytes kNetworkDirection = 10 * kMiB;  // LL128 and Simple, in pages of 2 MiB.
constexpr Bytes kHostConnections = 4 * kMiB;    // Bookkeeping on the device; the buffers are in host memory.
constexpr int kPeerChannels = 32;               // To each peer, on 8 H100 (NVIDIA/nccl#1685).
constexpr Bytes kPeerRest = 63 * kMiB;          // What its measured total has beyond the buffers, by peer.
constexpr Bytes kNvlsBuffer = 1 * kMiB;         // 8 steps of 128 KiB, for one head and direction.

struct Terms {
  std::string name;
  std::vector<DeviceTerm> terms;

  void add(const char* what, Bytes bytes, Provenance provenance, std::string source) {
    if (bytes <= Bytes(0)) return;
    terms.push_back({fmt::format("nccl {}: {}", name, what), bytes, provenance, std::move(source)});
  }
};

Bytes node_buffers(const GroupShape& shape, int channels) {
  if (shape.ranks_per_node < 2) return Bytes(0);
  return channels * (shape.intra_link == IntraLink::PcieHost ? kHostConnections : kPeerConnections);
}

// Channels leave a node at different GPUs; this is the GPU that has the most of them.
Bytes network_buffers(const GroupShape& shape, int channels) {
  if (shape.nodes < 2 || !shape.nic_near_gpu) return Bytes(0);
  const int at_this_gpu = (channels + shape.ranks_per_node - 1) / shape.ranks_per_node;
  return 2 * at_this_gpu * kNetworkDirection;
}

}  // namespace

std::vector<DeviceTerm> nccl_memory(const NcclCommunicator& communicator) {
  const GroupShape& shape = communicator.shape;
  if (shape.ranks <= 1) return {};
  const NcclTopology topology = nccl_topology(shape);
  Terms result{.name = communicator.name, .terms = {}};

  const bool host = shape.intra_link == IntraLink::PcieHost;
  const std::string per_channel =
      fmt::format("{} MiB for each of {} channels ({}).", (host ? kHostConnections : kPeerConnections).count() >> 20,
                  topology.channels, host ? "buffers in host memory" : "NCCL src/transport/p2p.cc");
  const std::string per_direction =
      "10 MiB for each channel and direction that leaves the node here (NCCL src/transport/net.cc).";
  const Provenance buffers = host ? Provenance::Assumed : Provenance::Derived;
  result.add("ring", node_buffers(shape, topology.channels), buffers, per_channel);
  result.add("ring, network", network_buffers(shape, topology.channels), Provenance::Derived, per_direction);
  if (communicator.all_reduce) {
    result.add("trees", node_buffers(shape, topology.channels), buffers, per_channel);
    result.add("trees, network", network_buffers(shape, topology.channels), Provenance::Derived, per_direction);
    result.add("nvls", 2 * topology.nvls_channels * topology.nvls.channels * kNvlsBuffer, Provenance::Derived,
               fmt::format("{} channels x 2 x 1 MiB x {} ranks of a node (NCCL src/transport/nvls.cc).",
                           topology.nvls_channels, topology.nvls.channels));
  }
  if (communicator.all_to_all && shape.ranks_per_node > 1) {
    const Bytes peer = kPeerChannels * (host ? kHostConnections : kPeerConnections) + kPeerRest;
    result.add("peers", (shape.ranks_per_node - 1) * peer, Provenance::Assumed,
               fmt::format("{} MiB for each of {} GPUs of the node that exchange tokens: 4.34 GB measured on 8 H100 "
                           "(NVIDIA/nccl#1685).",
                           peer.count() >> 20, shape.ranks_per_node - 1));
  }
  const bool hopper = shape.compute_capability >= 90;
  result.add("queues and kernels", (hopper ? 180 : 80) * kMiB, Provenance::Assumed,
             hopper ? "1.06 GB measured on 8 H100 (NVIDIA/nccl#1685), less the buffers."
                    : "688 MB measured on A100 (NVIDIA/nccl#964), less the buffers.");
  return result.terms;
}

Bytes total_bytes(const std::vector<DeviceTerm>& terms) {
  Bytes total;
  for (const DeviceTerm& term : terms) total += term.bytes;
  return total;
}

}  // namespace fsdp::simulator
