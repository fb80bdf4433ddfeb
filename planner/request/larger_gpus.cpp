// Cards with more memory than the current one.
//
// A user cannot add memory to a card, and has to take another one, which has its own speed and links. So each offer is
// a card of the library by its name, whether or not the user named one, or all the memory of the named one. The order
// is by memory, in classes of 3 % (80 GB are 81008 to 81080 MiB). Within a class, the card most like the current one
// comes first, by generation and link; then the slowest, so that the machine is not slower than promised.
//
// We replace GPUs with NVLink by GPUs with NVLink, and a card with bfloat16 by a card with bfloat16.

#include "planner/request/larger_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "planner/request/plan_machines.h"

namespace fsdp::planner {

namespace {

constexpr double kSameClass = 1.03;

bool has_nvlink(const Cluster& cluster) {
  return cluster.intra_node.kind == IntraLink::NvSwitch || cluster.intra_node.kind == IntraLink::NvLink;
}

Bytes usable(const Cluster& cluster) {
  return cluster.gpu.usable_memory.value;
}

std::int64_t whole_gib(const Gpu& gpu) {
  return gpu.usable_memory.value.count() >> 30;
}

Bytes whole_memory(const Gpu& gpu) {
  return Bytes(whole_gib(gpu) << 30);
}

/// The requirements for a machine with other GPUs.
class Offers {
 public:
  Offers(const PlanChoices& choices, const Cluster& now, const ClusterLibrary& library)
      : choices_(choices), now_(now), library_(library) {}

  std::vector<LargerGpu> named(bool of_plan);
  std::vector<LargerGpu> clusters();

 private:
  /// Adds the number of GPUs, if no choice has it or a cluster has another.
  void add_numbers(PlanChoices& change, int gpus_per_node, int nodes, bool are_said) const;
  std::optional<LargerGpu> machine(std::string what, PlanChoices change) const;
  std::optional<LargerGpu> own_memory(const Gpu& card, bool of_plan) const;
  void sort(std::vector<LargerGpu>& offers) const;

  const PlanChoices& choices_;
  const Cluster& now_;
  const ClusterLibrary& library_;
};

void Offers::add_numbers(PlanChoices& change, int gpus_per_node, int nodes, bool are_said) const {
  if (!are_said || gpus_per_node != now_.gpus_per_node) change.gpus = now_.gpus_per_node;
  if ((!are_said && now_.nodes > 1) || nodes != now_.nodes) change.nodes = now_.nodes;
}

std::optional<LargerGpu> Offers::machine(std::string what, PlanChoices change) const {
  PlanChoices choices = with_change(choices_, change);
  choices.gpus = now_.gpus_per_node;
  choices.nodes = now_.nodes;
  Result<Cluster> cluster = resolve_machines(choices, library_);
  if (!cluster || usable(*cluster) <= usable(now_)) return std::nullopt;
  if (now_.gpu.bf16 && !cluster->gpu.bf16) return std::nullopt;
  if (now_.gpus_per_node > 1 && has_nvlink(now_) && !has_nvlink(*cluster)) return std::nullopt;
  return LargerGpu{std::move(what), std::move(change), *std::move(cluster)};
}

/// All the memory of the current card, if the user took a part of it.
std::optional<LargerGpu> Offers::own_memory(const Gpu& card, bool of_plan) const {
  ClusterOverrides overrides;
  overrides.memory = whole_memory(card);
  Result<Cluster> cluster = override_cluster(now_, overrides);
  if (of_plan || !choices_.memory || !cluster || usable(*cluster) <= usable(now_)) return std::nullopt;
  return LargerGpu{fmt::format("{} GiB per GPU, which {} has", whole_gib(card), card.name),
                   {.memory = whole_memory(card)},
                   *std::move(cluster)};
}

std::vector<LargerGpu> Offers::named(bool of_plan) {
  std::vector<LargerGpu> offers;
  const bool are_said = !of_plan || choices_.gpus.has_value();
  for (const Gpu& card : library_.gpus) {
    if (card.name == now_.gpu.name) {
      if (auto own = own_memory(card, of_plan)) offers.push_back(*std::move(own));
      continue;
    }
    PlanChoices change{.gpu_name = card.name};
    if (choices_.memory) change.memory = whole_memory(card);
    add_numbers(change, now_.gpus_per_node, now_.nodes, are_said);
    if (auto offer = machine(card.name, std::move(change))) offers.push_back(*std::move(offer));
  }
  sort(offers);
  return offers;
}

std::vector<LargerGpu> Offers::clusters() {
  std::vector<LargerGpu> offers;
  for (const Cluster& other : library_.clusters) {
    // More GPUs than its nodes have would be another machine.
    if (other.gpus_per_node < now_.gpus_per_node) continue;
    PlanChoices change{.cluster_file = other.name};
    if (choices_.memory) change.memory = whole_memory(other.gpu);
    add_numbers(change, other.gpus_per_node, other.nodes, true);
    if (auto offer = machine(other.name, std::move(change))) offers.push_back(*std::move(offer));
  }
  sort(offers);
  return offers;
}

void Offers::sort(std::vector<LargerGpu>& offers) const {
  std::stable_sort(offers.begin(), offers.end(),
                   [](const LargerGpu& a, const LargerGpu& b) { return usable(a.cluster) < usable(b.cluster); });
  const auto unlikeness = [&](const LargerGpu& offer) {
    const Cluster& cluster = offer.cluster;
    return std::tuple(cluster.gpu.name != card_of(now_.gpu), cluster.gpu.architecture != now_.gpu.architecture,
                      cluster.intra_node.kind != now_.intra_node.kind, cluster.network.kind != now_.network.kind,
                      cluster.gpu.memory_bandwidth.value);
  };
  for (auto begin = offers.begin(); begin != offers.end();) {
    const auto end = std::find_if(begin, offers.end(), [&](const LargerGpu& offer) {
      return ratio(usable(offer.cluster), usable(begin->cluster)) > kSameClass;
    });
    std::stable_sort(begin, end, [&](const LargerGpu& a, const LargerGpu& b) { return unlikeness(a) < unlikeness(b); });
    begin = end;
  }
}

}  // namespace

std::vector<LargerGpu> larger_gpus(const PlanChoices& choices, const Cluster& now, bool of_plan,
                                   const std::string& library) {
  const Result<ClusterLibrary> shipped = read_cluster_library(library + "/clusters");
  if (!shipped) return {};
  Offers offers(choices, now, *shipped);
  if (choices.cluster_file) return offers.clusters();
  return offers.named(of_plan);
}

}  // namespace fsdp::planner
