// Cards that hold more than the one in use.
//
// Nobody can add memory to a card: what can be done is to take another, which has its own speed and links. So each
// offer is a card of the library, or the memory that one has. The order is by memory, in classes of 3 % (80 GB are
// 81008 to 81080 MiB): within a class the card that is most like the one in use stands first, by generation and link;
// then the slowest, so that the machine is hardly slower than promised.
//
// GPUs with NVLink are replaced by GPUs with NVLink; a card with bfloat16 by a card with bfloat16.

#include "planner/larger_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "core/cluster_library.h"
#include "planner/cli_request.h"

namespace fsdp::planner {

namespace {

constexpr double kSameClass = 1.03;

bool has_nvlink(const Cluster& cluster) {
  return cluster.intra_node.kind == IntraLink::NvSwitch || cluster.intra_node.kind == IntraLink::NvLink;
}

Bytes usable(const Cluster& cluster) {
  return cluster.gpu.usable_memory.value;
}

/// One word that the options take as a name: "A100-80GB-PCIe".
std::string typed(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::int64_t whole_gib(const Gpu& gpu) {
  return gpu.usable_memory.value.count() >> 30;
}

CommandLine with(CommandLine line, Option option, std::string text) {
  line.values[static_cast<std::size_t>(option)] = {std::move(text)};
  return line;
}

/// What a machine with other GPUs is asked for.
class Offers {
 public:
  Offers(const CommandLine& line, const Cluster& now, const ClusterLibrary& library)
      : line_(line), now_(now), library_(library) {}

  std::vector<LargerGpu> named(bool of_plan);
  std::vector<LargerGpu> unnamed();
  std::vector<LargerGpu> clusters();

 private:
  /// The words for the number of GPUs, where the line does not have it or a cluster has another.
  std::string numbers(int gpus_per_node, int nodes, bool are_said) const;
  std::optional<LargerGpu> machine(std::string what, std::string flag, CommandLine line) const;
  std::optional<LargerGpu> own_memory(const Gpu& card, bool of_plan) const;
  void sort(std::vector<LargerGpu>& offers) const;

  const CommandLine& line_;
  const Cluster& now_;
  const ClusterLibrary& library_;
};

std::string Offers::numbers(int gpus_per_node, int nodes, bool are_said) const {
  std::string words;
  if (!are_said || gpus_per_node != now_.gpus_per_node) words += fmt::format(" --gpus {}", now_.gpus_per_node);
  if ((!are_said && now_.nodes > 1) || nodes != now_.nodes) words += fmt::format(" --nodes {}", now_.nodes);
  return words;
}

std::optional<LargerGpu> Offers::machine(std::string what, std::string flag, CommandLine line) const {
  line = with(std::move(line), Option::Gpus, std::to_string(now_.gpus_per_node));
  line = with(std::move(line), Option::Nodes, std::to_string(now_.nodes));
  Result<Cluster> cluster = read_machines(line, library_);
  if (!cluster || usable(*cluster) <= usable(now_)) return std::nullopt;
  if (now_.gpu.bf16 && !cluster->gpu.bf16) return std::nullopt;
  if (now_.gpus_per_node > 1 && has_nvlink(now_) && !has_nvlink(*cluster)) return std::nullopt;
  return LargerGpu{std::move(what), std::move(flag), *std::move(cluster)};
}

/// All of the memory of the card in use, of which --mem may be a share.
std::optional<LargerGpu> Offers::own_memory(const Gpu& card, bool of_plan) const {
  ClusterOverrides overrides;
  overrides.memory = Bytes(whole_gib(card) << 30);
  Result<Cluster> cluster = override_cluster(now_, overrides);
  if (of_plan || !line_.has(Option::Memory) || !cluster || usable(*cluster) <= usable(now_)) return std::nullopt;
  return LargerGpu{fmt::format("{} GiB per GPU, which {} has", whole_gib(card), card.name),
                   fmt::format("--mem {}G", whole_gib(card)), *std::move(cluster)};
}

std::vector<LargerGpu> Offers::named(bool of_plan) {
  std::vector<LargerGpu> offers;
  const bool are_said = !of_plan || line_.has(Option::Gpus);
  for (const Gpu& card : library_.gpus) {
    if (card.name == now_.gpu.name) {
      if (auto own = own_memory(card, of_plan)) offers.push_back(*std::move(own));
      continue;
    }
    std::string flag = "--gpu " + typed(card.name);
    CommandLine line = with(line_, Option::GpuName, card.name);
    if (line_.has(Option::Memory)) {
      flag += fmt::format(" --mem {}G", whole_gib(card));
      line = with(std::move(line), Option::Memory, fmt::format("{}G", whole_gib(card)));
    }
    flag += numbers(now_.gpus_per_node, now_.nodes, are_said);
    if (auto offer = machine(card.name, std::move(flag), std::move(line))) offers.push_back(*std::move(offer));
  }
  sort(offers);
  return offers;
}

std::vector<LargerGpu> Offers::unnamed() {
  std::vector<LargerGpu> offers;
  for (const Gpu& card : library_.gpus) {
    if (!card.bf16) continue;
    const std::string memory = fmt::format("{}G", whole_gib(card));
    const auto is_same = [&](const LargerGpu& offer) { return offer.flag == "--mem " + memory; };
    if (std::any_of(offers.begin(), offers.end(), is_same)) continue;
    auto offer = machine(fmt::format("{} GiB per GPU, as of {}", whole_gib(card), card.name), "--mem " + memory,
                         with(line_, Option::Memory, memory));
    if (offer) offers.push_back(*std::move(offer));
  }
  std::stable_sort(offers.begin(), offers.end(),
                   [](const LargerGpu& a, const LargerGpu& b) { return usable(a.cluster) < usable(b.cluster); });
  return offers;
}

std::vector<LargerGpu> Offers::clusters() {
  std::vector<LargerGpu> offers;
  for (const Cluster& other : library_.clusters) {
    // More GPUs than its nodes have would be another machine.
    if (other.gpus_per_node < now_.gpus_per_node) continue;
    CommandLine line = with(line_, Option::ClusterFile, other.name);
    std::string flag = "--cluster " + typed(other.name);
    if (line_.has(Option::Memory)) {
      flag += fmt::format(" --mem {}G", whole_gib(other.gpu));
      line = with(std::move(line), Option::Memory, fmt::format("{}G", whole_gib(other.gpu)));
    }
    flag += numbers(other.gpus_per_node, other.nodes, true);
    if (auto offer = machine(other.name, std::move(flag), std::move(line))) offers.push_back(*std::move(offer));
  }
  sort(offers);
  return offers;
}

void Offers::sort(std::vector<LargerGpu>& offers) const {
  std::stable_sort(offers.begin(), offers.end(),
                   [](const LargerGpu& a, const LargerGpu& b) { return usable(a.cluster) < usable(b.cluster); });
  const auto unlikeness = [&](const LargerGpu& offer) {
    const Cluster& cluster = offer.cluster;
    return std::tuple(cluster.gpu.name != now_.gpu.name, cluster.gpu.architecture != now_.gpu.architecture,
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

std::vector<LargerGpu> larger_gpus(const CommandLine& line, const Cluster& now, bool of_plan,
                                   const std::string& library) {
  const Result<ClusterLibrary> shipped = read_cluster_library(library + "/clusters");
  if (!shipped) return {};
  Offers offers(line, now, *shipped);
  if (line.has(Option::ClusterFile)) return offers.clusters();
  if (!of_plan && !line.has(Option::GpuName)) return offers.unnamed();
  return offers.named(of_plan);
}

bool is_stand_in(const Gpu& gpu) {
  return gpu.name.find(" with ") != std::string::npos;
}

}  // namespace fsdp::planner
