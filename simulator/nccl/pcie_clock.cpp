// A clock for collectives between GPUs that have only PCIe.
//
// One number of the machine decides: b, the bus bandwidth that large collectives reach. With it, NCCL's own latency L
// of its chosen algorithm, and its predicted transfer X, scaled from its bus to b, give
//
//   t = ((L + 8 us)^1.3 + X'^1.3)^(1 / 1.3),   X' = X (NCCL's bus / b).
//
// A collective takes the 8 us to start, in addition to NCCL's latency, which is that of links like NVLink. They are
// fitted to the points below 1 MiB, where the mean error over eleven machines falls from 23 to 18 % on a machine that
// took no part. Nothing else is fitted to tables over PCIe: the norm is that of rings over networks. With b from one
// line of nccl-tests, the error is 5.5 % from 1 MiB on. Without it, b is a share of a link's rate in one direction:
//
//   peer to peer      0.72   GPUs write into each other's memory
//   host memory       0.45   the sender writes there and the receiver reads, both kernels of NCCL (its SHM transport)
//
//   4 x RTX 4090, peer to peer    31.5 GB/s x 0.72 = 22.7 GB/s;  measured: 25.3
//   2 x V100 PCIe, host memory    15.8 GB/s x 0.45 =  7.1 GB/s;   measured: 7.1
//
// GPUs behind one switch share its link to the CPU, so each has a part of the rate through host memory.
//
// No published number gives the rate at which a GPU reads host memory. On four machines with separate links it is 0.43
// to 0.47 of the rate, on a fifth 0.34 if its host has PCIe 3; three others with RTX 4090 reach 0.9 to 3.8 GB/s, a
// seventh. One owner found that there the same link carries 20 GB/s when copy engines read instead of kernels, behind
// an IOMMU that translates. So the band through host memory is wide, and only a measurement narrows it.
//
// Sources: seventeen tables of thirteen machines, which their owners published; tests/golden/nccl/README.md names them,
// and the error on each.
//
// Not modeled: switches and sockets on the way (two sockets of EPYC 7542 take a fifth of the rate of peer-to-peer),
// NCCL_SHM_USE_CUDA_MEMCPY, and other groups of the node on the same lanes.

#include "simulator/nccl/pcie_clock.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "simulator/nccl/smooth_maximum.h"

namespace fsdp::simulator {

namespace {

constexpr double kPeerShare = .72;
constexpr double kHostShare = .45;
constexpr double kBeginUs = 8;
constexpr double kGen3Lane = 15.75e9 / 16;  // After 128b/130b encoding.

double link_rate(const GroupShape& shape) {
  return kGen3Lane * shape.pcie_lanes * std::exp2(shape.pcie_generation - 3);
}

}  // namespace

BytesPerSecond pcie_bus(const GroupShape& shape) {
  assert(shape.intra_link == IntraLink::PciePeer || shape.intra_link == IntraLink::PcieHost);
  if (shape.bus_bandwidth > BytesPerSecond(0)) return shape.bus_bandwidth;
  return BytesPerSecond((shape.intra_link == IntraLink::PciePeer ? kPeerShare : kHostShare) * link_rate(shape));
}

Seconds time_over_pcie(const NcclTuning& tuning, const GroupShape& shape, CollectiveKind kind, Bytes total) {
  assert(shape.nodes == 1 && total > Bytes(0));
  const NcclChoice choice = nccl_choice(tuning, kind, total);
  const double believed = 1e9 * tuning.topology.bus(tuning.topology.ring);
  const double transfer = choice.transfer.count() * believed / pcie_bus(shape).count();
  return Seconds(1e-6 * smooth_maximum(1e6 * choice.latency.count() + kBeginUs, 1e6 * transfer));
}

}  // namespace fsdp::simulator
