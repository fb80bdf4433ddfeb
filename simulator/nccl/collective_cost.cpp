// From NCCL's choice to a clock.
//
// NCCL's predictor ranks its own algorithms well, but is too fast as a clock: against published measurements it
// predicts 0.9 to 1.0 of the time for large buffers, 0.4 to 0.8 for 1 to 64 MiB, and 0.25 to 0.8 for less on several
// nodes. So we correct the time of the cell that NCCL chooses, with latency L and transfer X, to
//
//   t = L  +  2 sqrt(X in us)  +  X / eta
//
// inside one NVLink node. The square root is the ramp of a pipeline. A buffer cut into chunks pays one latency for each
// chunk and one chunk's transfer for each hop; the best cut gives alpha + beta S + 2 sqrt(alpha beta S). If the cluster
// states the bus bandwidth that large all-gathers reach inside a node, eta is that figure over the bus of NCCL's rings
// (not for NVLS, which all-gathers do not use), otherwise 1.
//
// Over several nodes the network's hops decide, and between GPUs that have only PCIe the path through host memory does;
// these have clocks of their own (network_clock.cpp, pcie_clock.cpp).
//
// The curve is made monotone (NCCL's own table is not: its tree correction jumps at powers of two) and stored at 4
// sizes per octave, so a query is a table look-up for any number of ranks.
//
// If a published measurement of such a group exists (one node of that card with as many ranks and that link), we use
// its times (log-log between its sizes). Beyond its table, the clock continues it, times the ratio at its end. We
// compared the tables of one laboratory with those of five others (measured_collectives_test.cpp): from 64 MiB on all
// but one agree within 3 percent; below, the methods of measurement differ by up to a factor of two.
//
// If this very machine was measured (fsdp-plan calibrate), its times take precedence: those of a collective alone at
// all sizes, times its slowdown inside steps. There it follows a pause, after which the network is slower: BBR, the
// congestion control of many machines, paces an all-gather over loopback to a seventh of its rate.
//
// Under a ring of n ranks each rank sends (n-1)/n of the buffer, twice that for all-reduce. That is exact when n
// divides the buffer, as FSDP pads it to do.
//
// Sources: the ramp was fitted (grid search, relative error) to measurements published by owners of the machines;
// tests/golden/nccl holds an extract with the source of every table, and collective_cost_test.cpp states the error of
// each class and size band. Ring: Thakur et al., "Optimization of Collective Communication Operations in MPICH",
// IJHPCA, 2005; "busbw" in nccl-tests, doc/PERFORMANCE.md.
//
// Not modeled: other traffic on the links, PCIe lanes shared by sibling groups of one node, kernels that compete for
// SMs, rails of different length, the first call (which connects), and one process driving several GPUs, which adds
// about 5 us for each GPU. On the wire, LL doubles the bytes, LL128 adds 1/15, and trees and NVLS send less from some
// ranks than from others.

#include "simulator/nccl/collective_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <optional>

#include "simulator/nccl/network_clock.h"
#include "simulator/nccl/pcie_clock.h"

namespace fsdp::simulator {

namespace {

constexpr double kRamp = 2;  // Microseconds for each square root of a microsecond of transfer.

bool knows_plateau(const GroupShape& shape) {
  return shape.nodes == 1 && shape.bus_bandwidth > BytesPerSecond(0);
}

// NCCL's efficiency according to a known bus bandwidth. An all-gather measures nothing of NVLS.
std::optional<double> known_efficiency(const NcclTuning& tuning, const NcclChoice& choice, const GroupShape& shape) {
  const bool in_switch = choice.algorithm == NcclAlgorithm::Nvls;
  if (!knows_plateau(shape) || in_switch) return std::nullopt;
  const NcclGraph& ring = tuning.topology.ring;
  return shape.bus_bandwidth.count() / (1e9 * ring.channels * ring.intra_bandwidth);
}

LinkClass link_class_of(const GroupShape& shape) {
  if (shape.nodes > 1) return LinkClass::SeveralNodes;
  const bool nvlink = shape.intra_link == IntraLink::NvSwitch || shape.intra_link == IntraLink::NvLink;
  return nvlink ? LinkClass::NvlinkNode : LinkClass::PcieNode;
}

// Bytes of a knot: octave 2^e is cut into four equal parts, so no logarithm is needed to find a size again.
std::int64_t knot_bytes(int knot) {
  const int octave = TimeTable::kFirstOctave + knot / TimeTable::kStepsPerOctave;
  const std::int64_t step = (std::int64_t{1} << octave) / TimeTable::kStepsPerOctave;
  return (std::int64_t{1} << octave) + step * (knot % TimeTable::kStepsPerOctave);
}

const MeasuredCollectives* measured_collectives(const GroupShape& shape) {
  return shape.measured.get() == nullptr ? nullptr : &*shape.measured.get()->collectives;
}

MeasuredCollective measured_kind(CollectiveKind kind) {
  if (kind == CollectiveKind::ReduceScatter) return MeasuredCollective::ReduceScatter;
  return kind == CollectiveKind::AllReduce ? MeasuredCollective::AllReduce : MeasuredCollective::AllGather;
}

const MachineTables* own_tables(const GroupShape& shape) {
  return shape.machine.of_ranks(shape.ranks);
}

// The slowdown of a collective inside a step, at the nearest measured size.
double slowdown_in_steps(const MachineTables& tables, CollectiveKind kind, double size) {
  const std::string work = in_steps(name_of(kind));
  const auto found = std::find_if(tables.collectives.begin(), tables.collectives.end(),
                                  [&](const WorkTimes& times) { return times.work == work; });
  if (found == tables.collectives.end() || found->sizes.empty()) return 1;
  const double nearest = std::clamp(size, found->sizes.front(), found->sizes.back());
  const auto inside = look_up(tables.collectives, work, 0, nearest);
  const auto alone = look_up(tables.collectives, name_of(kind), 0, nearest);
  return inside && alone ? std::max(1., inside->time / alone->time) : 1;
}

// The same for this very machine. Below its smallest size a collective takes as long as that size.
std::optional<Seconds> time_of_machine(const NcclTuning& tuning, LinkClass link_class, const GroupShape& shape,
                                       CollectiveKind kind, Bytes total) {
  const MachineTables* tables = own_tables(shape);
  if (tables == nullptr) return std::nullopt;
  const auto bytes = static_cast<double>(total.count());
  const auto found = look_up(tables->collectives, name_of(kind), 0, bytes);
  if (!found) return std::nullopt;
  const Seconds in_step = slowdown_in_steps(*tables, kind, bytes) * found->time;
  if (found->beyond <= 1) return in_step;
  const auto clock = [&](Bytes size) { return corrected_time(tuning, link_class, shape, kind, size); };
  const Bytes edge(static_cast<std::int64_t>(bytes / found->beyond));
  return in_step * (clock(total) / clock(edge));
}

// Measured times, continued by the clock beyond the table; nullopt without a measurement.
std::optional<Seconds> time_as_measured(const NcclTuning& tuning, LinkClass link_class, const GroupShape& shape,
                                        CollectiveKind kind, Bytes total) {
  const MeasuredCollectives* tables = measured_collectives(shape);
  if (tables == nullptr) return std::nullopt;
  const Bytes nearest(std::clamp(total.count(), tables->bytes.front(), tables->bytes.back()));
  const std::optional<Seconds> time = measured_time(*tables, measured_kind(kind), shape.ranks, nearest.count());
  if (!time || nearest == total) return time;
  const auto clock = [&](Bytes size) { return corrected_time(tuning, link_class, shape, kind, size); };
  return *time * (clock(total) / clock(nearest));
}

TimeTable tabulate(const NcclTuning& tuning, LinkClass link_class, const GroupShape& shape, CollectiveKind kind) {
  TimeTable table;
  double longest = 0;
  for (int knot = 0; knot < TimeTable::kNumKnots; ++knot) {
    const Bytes total(knot_bytes(knot));
    const std::optional<Seconds> own = time_of_machine(tuning, link_class, shape, kind, total);
    const std::optional<Seconds> measured = own ? own : time_as_measured(tuning, link_class, shape, kind, total);
    const Seconds time = measured ? *measured : corrected_time(tuning, link_class, shape, kind, total);
    longest = std::max(longest, time.count());
    table.seconds[knot] = longest;
  }
  return table;
}

double look_up(const TimeTable& table, std::int64_t bytes) {
  constexpr int kStepBits = std::countr_zero(static_cast<unsigned>(TimeTable::kStepsPerOctave));
  if (bytes <= knot_bytes(0)) return table.seconds[0];
  const int octave = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes))) - 1;
  const int shift = octave - kStepBits;
  const int step = static_cast<int>(bytes >> shift) - TimeTable::kStepsPerOctave;
  // Beyond the table the last slope continues.
  const int knot =
      std::min((octave - TimeTable::kFirstOctave) * TimeTable::kStepsPerOctave + step, TimeTable::kNumKnots - 2);
  const double left = table.seconds[knot];
  const double right = table.seconds[static_cast<std::size_t>(knot) + 1];
  const auto begin = knot_bytes(knot);
  const auto part = static_cast<double>(bytes - begin) / static_cast<double>(knot_bytes(knot + 1) - begin);
  return left + part * (right - left);
}

struct Bands {
  UncertaintyBand small;
  UncertaintyBand large;
};

// RDMA to the GPU behaves alike everywhere. For other networks no two machines were alike, or there was no second one,
// and NICs that do not access the GPU's memory directly are slower by up to a factor of two.
Bands bands_of(NetworkKind network, bool nic_near_gpu) {
  const bool is_rdma = network == NetworkKind::Infiniband || network == NetworkKind::Roce;
  if (is_rdma && nic_near_gpu) return {.small = {.low = .8, .high = 2}, .large = {.low = .85, .high = 1.15}};
  if (network == NetworkKind::Efa && nic_near_gpu) {
    return {.small = {.low = .75, .high = 2}, .large = {.low = .78, .high = 1.2}};
  }
  return {.small = {.low = .75, .high = 4}, .large = {.low = .8, .high = nic_near_gpu ? 1.6 : 2.2}};
}

// Between GPUs that have only PCIe, without a stated bus bandwidth (pcie_clock.cpp).
constexpr Bands kPeerBands{.small = {.low = .65, .high = 1.6}, .large = {.low = .85, .high = 1.3}};
constexpr Bands kHostBands{.small = {.low = .85, .high = 7.5}, .large = {.low = .85, .high = 7.5}};
// With the bandwidth of another box of the card: boxes of one kind differ by a factor of sixteen.
constexpr Bands kOtherBoxBands{.small = {.low = .17, .high = 3}, .large = {.low = .17, .high = 3}};
// With the bandwidth of this box.
constexpr Bands kThisBoxBands{.small = {.low = .8, .high = 1.25}, .large = {.low = .9, .high = 1.15}};

// Nine of ten measured points lie inside (measured over predicted, all published tables at hand).
Bands bands_of(const GroupShape& shape, LinkClass link_class) {
  switch (link_class) {
    case LinkClass::NvlinkNode:
      return {.small = {.low = .8, .high = 1.7}, .large = {.low = .85, .high = 1.25}};
    case LinkClass::PcieNode:
      return shape.intra_link == IntraLink::PciePeer ? kPeerBands : kHostBands;
    case LinkClass::SeveralNodes:
      return bands_of(shape.network, shape.nic_near_gpu);
  }
  return {};
}

// A known plateau narrows the band if it is valid for this very node. Two owners' NVLink boxes of one kind differ by up
// to 15 percent; PCIe boxes of one kind reach anything from 1 to 15 GB/s, so there only the user knows.
Bands bands_with_plateau(const GroupShape& shape, LinkClass link_class) {
  const Provenance provenance = shape.bus_bandwidth_provenance;
  if (link_class == LinkClass::PcieNode) return provenance == Provenance::Given ? kThisBoxBands : kOtherBoxBands;
  Bands bands = bands_of(shape, link_class);
  const bool was_seen = provenance == Provenance::Given || provenance == Provenance::Measured;
  if (was_seen) bands.large = {.low = .85, .high = 1.2};
  return bands;
}

// Nine of ten points of other laboratories lie inside (their times over the table's).
constexpr Bands kMeasuredBands{.small = {.low = .9, .high = 1.9}, .large = {.low = .95, .high = 1.1}};

// For this very machine: plans that were not part of the calibration (docs/executor.md).
constexpr Bands kOwnBands{.small = {.low = .8, .high = 1.25}, .large = {.low = .9, .high = 1.1}};

constexpr Bytes kSmall(64LL << 20);
constexpr double kLargeUnit = 1LL << 40;

std::string measured_provenance(const CollectiveCost& cost) {
  return fmt::format(
      "Collectives: measured on {} {}, {} ({}), which is not this machine: expect {} to {} times the predicted time "
      "({} "
      "to {} times below 64 MiB).",
      cost.shape.ranks, cost.shape.measured.get()->gpus.front(), measured_collectives(cost.shape)->library,
      cost.shape.measured.get()->package, cost.band.low, cost.band.high, cost.small_band.low, cost.small_band.high);
}

std::string provenance_of(const CollectiveCost& cost, const NcclTuning& tuning) {
  if (own_tables(cost.shape) != nullptr) return fmt::format("Collectives: {}.", describe(*own_tables(cost.shape)));
  if (measured_collectives(cost.shape) != nullptr) return measured_provenance(cost);
  const bool is_pcie = cost.link_class == LinkClass::PcieNode;
  std::string plateau;
  if (knows_plateau(cost.shape)) {
    plateau = fmt::format(" at {:.3g} GB/s ({})", 1e-9 * cost.shape.bus_bandwidth.count(),
                          name_of(cost.shape.bus_bandwidth_provenance));
  } else if (is_pcie) {
    plateau = fmt::format(" at {:.3g} GB/s (a share of the link's rate)", 1e-9 * pcie_bus(cost.shape).count());
  }
  const bool would_help = is_pcie && cost.shape.bus_bandwidth_provenance != Provenance::Given;
  const bool has_one_band = cost.band.low == cost.small_band.low && cost.band.high == cost.small_band.high;
  const std::string small =
      has_one_band ? "" : fmt::format(" ({} to {} times below 64 MiB)", cost.small_band.low, cost.small_band.high);
  const std::string network =
      cost.shape.nodes > 1 ? fmt::format(" over {}", describe(cost.shape.network)) : std::string();
  return fmt::format(
      "Collectives: NCCL {} tuning tables on {}, corrected for {}{}{}. Not calibrated on this machine: expect {} to {} "
      "times the predicted time{}.{}",
      tuning.topology.rules.minor_version > kLastMinorOfOldNvls ? ">=2.28" : "<=2.27", describe(tuning.topology),
      to_string(cost.link_class), network, plateau, cost.band.low, cost.band.high, small,
      would_help ? " The busbw that nccl-tests reports narrows it: --bus-bandwidth." : "");
}

}  // namespace

const char* to_string(LinkClass link_class) {
  switch (link_class) {
    case LinkClass::NvlinkNode:
      return "one NVLink node";
    case LinkClass::PcieNode:
      return "one PCIe node";
    case LinkClass::SeveralNodes:
      return "several nodes";
  }
  return "";
}

Seconds corrected_time(const NcclTuning& tuning, LinkClass link_class, const GroupShape& shape, CollectiveKind kind,
                       Bytes total) {
  if (shape.nodes > 1) return time_over_network(tuning, shape, kind, total);
  if (link_class == LinkClass::PcieNode) return time_over_pcie(tuning, shape, kind, total);
  const NcclChoice choice = nccl_choice(tuning, kind, total);
  const double efficiency = known_efficiency(tuning, choice, shape).value_or(1);
  const double latency = 1e6 * choice.latency.count();
  const double transfer = 1e6 * choice.transfer.count();
  return Seconds(1e-6 * (latency + kRamp * std::sqrt(transfer) + transfer / efficiency));
}

CollectiveCost collective_cost(const GroupShape& shape) {
  CollectiveCost cost{
      .shape = shape, .link_class = link_class_of(shape), .small_band = {}, .band = {}, .provenance = {}, .tables = {}};
  if (shape.ranks <= 1) {
    cost.provenance = "A group of one rank sends nothing.";
    return cost;
  }
  Bands bands = knows_plateau(shape) ? bands_with_plateau(shape, cost.link_class) : bands_of(shape, cost.link_class);
  if (measured_collectives(shape) != nullptr) bands = kMeasuredBands;
  if (own_tables(shape) != nullptr) bands = kOwnBands;
  cost.small_band = bands.small;
  cost.band = bands.large;
  const NcclTuning tuning = nccl_tuning(nccl_topology(shape));
  for (int kind = 0; kind < kNumCollectiveKinds; ++kind) {
    cost.tables[static_cast<std::size_t>(kind)] =
        tabulate(tuning, cost.link_class, shape, static_cast<CollectiveKind>(kind));
    if (own_tables(shape) != nullptr) {
      cost.busy[static_cast<std::size_t>(kind)] =
          1 / slowdown_in_steps(*own_tables(shape), static_cast<CollectiveKind>(kind), kLargeUnit);
    }
  }
  cost.provenance = provenance_of(cost, tuning);
  return cost;
}

Seconds collective_time(const CollectiveCost& cost, CollectiveKind kind, Bytes total) {
  if (total <= Bytes(0)) return Seconds(0);
  // A ring passes each byte of a broadcast on once, as it does with those of an all-gather.
  // An all-to-all sends as many bytes as an all-gather of that total.
  if (kind == CollectiveKind::Broadcast || kind == CollectiveKind::AllToAll) kind = CollectiveKind::AllGather;
  return Seconds(look_up(cost.tables[static_cast<std::size_t>(kind)], total.count()));
}

UncertaintyBand uncertainty(const CollectiveCost& cost, Bytes total) {
  return total < kSmall ? cost.small_band : cost.band;
}

Bytes ring_bytes_sent(CollectiveKind kind, Bytes total, int ranks) {
  assert(ranks >= 1 && total >= Bytes(0));
  // Divides first, so that (n-1) times a large buffer does not overflow.
  const std::int64_t whole = total.count() / ranks * (ranks - 1);
  const std::int64_t rest = total.count() % ranks;
  const Bytes once(whole + (rest * (ranks - 1) + ranks - 1) / ranks);
  if (kind == CollectiveKind::Broadcast) return ranks > 1 ? total : Bytes(0);
  return kind == CollectiveKind::AllReduce ? 2 * once : once;
}

}  // namespace fsdp::simulator
