#include "core/cluster/cluster.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/files.h"
#include "core/cluster/cluster_library.h"
#include "core/cluster/cluster_reader.h"

namespace fsdp {
namespace {

using namespace literals;
using Lines = std::vector<std::string>;

const std::string kFolder = "model_specs/clusters";

const ClusterLibrary& library() {
  static const ClusterLibrary shipped = [] {
    Result<ClusterLibrary> read = read_cluster_library(kFolder);
    if (!read) ADD_FAILURE() << to_string(read.error().front());
    return read.value_or(ClusterLibrary{});
  }();
  return shipped;
}

Gpu gpu(std::string_view name) {
  const Result<Gpu> found = find_gpu(name, library().gpus, "--gpu");
  EXPECT_TRUE(found) << name;
  return found.value_or(Gpu{});
}

template <class T>
std::string message(const Result<T>& result) {
  if (result) return "good";
  std::string lines;
  for (const Error& error : result.error()) lines += (lines.empty() ? "" : "\n") + to_string(error);
  return lines;
}

TEST(ClusterLibrary, HasTheCommonGpus) {
  Lines names;
  for (const Gpu& card : library().gpus) names.push_back(card.name);
  EXPECT_EQ(names, (Lines{"A100 40GB PCIe",
                          "A100 40GB SXM",
                          "A100 80GB PCIe",
                          "A100 80GB SXM",
                          "A10G",
                          "B200",
                          "GB200",
                          "GB300",
                          "GH200",
                          "H100 NVL",
                          "H100 PCIe",
                          "H100 SXM",
                          "H100 SXM 96GB",
                          "H200",
                          "L4",
                          "L40S",
                          "RTX 3060",
                          "RTX 3090",
                          "RTX 4080",
                          "RTX 4090",
                          "RTX 5090",
                          "RTX A6000",
                          "T4",
                          "V100 16GB PCIe",
                          "V100 16GB SXM",
                          "V100 32GB PCIe",
                          "V100 32GB SXM"}));
}

TEST(ClusterLibrary, HasInstancesAndMultiNodeClusters) {
  for (const char* name : {"g4dn.12xlarge", "g5.12xlarge", "g5.48xlarge", "g6.12xlarge", "p4d", "p4de", "p5", "p5en",
                           "DGX A100", "DGX H100", "DGX SuperPOD H100", "Llama 3 training cluster"}) {
    EXPECT_TRUE(find_cluster(name, library().clusters, "--cluster")) << name;
  }
  const Cluster p4d = *find_cluster("p4d", library().clusters, "");
  EXPECT_EQ(p4d.gpu.name, "A100 40GB SXM");
  EXPECT_EQ(world_size(p4d), 8);
  // 400 Gb/s of a node are four NICs of 12.5 GB/s, one for each two GPUs.
  EXPECT_EQ(p4d.network.nic_bandwidth.value * 8 * (8.0 / p4d.network.gpus_per_nic), BytesPerSecond(400e9));
}

TEST(ClusterLibrary, FiguresMatchTheirSources) {
  const Gpu t4 = gpu("T4");
  EXPECT_EQ(t4.memory.value, 15360_MiB);
  EXPECT_EQ(t4.usable_memory.value, 14909_MiB);  // 14.56 GiB
  EXPECT_EQ(t4.compute_capability, 75);
  EXPECT_EQ(t4.fp16->value, FlopsPerSecond(65e12));
  EXPECT_EQ(t4.intra_node.kind, IntraLink::PcieHost);
  EXPECT_EQ(gpu("H100").intra_node.bandwidth.value, BytesPerSecond(450e9));
  EXPECT_EQ(gpu("H200").memory.value, 143771_MiB);
}

TEST(ClusterLibrary, FiguresAreConsistent) {
  for (const Gpu& card : library().gpus) {
    SCOPED_TRACE(card.name);
    EXPECT_LT(card.usable_memory.value, card.memory.value);
    EXPECT_GT(ratio(card.usable_memory.value, card.memory.value), 0.95);
    EXPECT_LT(card.shared_memory_per_block.value.count(), card.shared_memory_per_sm.value.count() + 1);
    EXPECT_EQ(card.bf16.has_value(), card.compute_capability >= 80);
    EXPECT_EQ(card.tf32.has_value(), card.compute_capability >= 80);
    EXPECT_GE(card.fp16->value, card.fp32->value);
    EXPECT_LT(card.context.value, 1_GiB);
    EXPECT_EQ(card.host_link.bandwidth.value.count() > 50e9, card.host_link.pcie_generation == 5);
    if (card.intra_node.bus_bandwidth) {
      EXPECT_LT(card.intra_node.bus_bandwidth->value, card.intra_node.bandwidth.value);
    }
  }
}

TEST(ClusterLibrary, EveryCardWritesBackToTheSameBytes) {
  std::size_t num_cards = 0;
  for (const char* file :
       {"t4_16gb",        "v100_16gb_pcie", "v100_16gb_sxm",  "v100_32gb_pcie", "v100_32gb_sxm",  "a10g_24gb",
        "l4_24gb",        "rtx_3060_12gb",  "rtx_3090_24gb",  "rtx_4080_16gb",  "rtx_4090_24gb",  "rtx_5090_32gb",
        "rtx_a6000_48gb", "l40s_48gb",      "a100_40gb_pcie", "a100_40gb_sxm",  "a100_80gb_pcie", "a100_80gb_sxm",
        "h100_80gb_pcie", "h100_80gb_sxm",  "h100_94gb_nvl",  "h100_96gb_sxm",  "h200_141gb_sxm", "gh200_96gb",
        "b200_192gb_sxm", "gb200_186gb",    "gb300_279gb"}) {
    const auto document = read_json_file(kFolder + "/gpus/" + file + ".json");
    ASSERT_TRUE(document) << message(document);
    const Result<Gpu> card = read_gpu(*document);
    ASSERT_TRUE(card) << message(card);
    JsonWriter json;
    write_gpu(*card, json);
    EXPECT_EQ(std::move(json).take(), document->text) << file;
    ++num_cards;
  }
  EXPECT_EQ(num_cards, library().gpus.size());
}

TEST(WriteCluster, ReadsBackAsTheSameCluster) {
  std::vector<Cluster> clusters = library().clusters;
  clusters.push_back(*make_cluster(gpu("T4"), 4, 2, {.host_memory = 100_GiB}));
  clusters.push_back(*assumed_cluster(library().gpus, 4, 1, 16_GiB));
  for (const Cluster& cluster : clusters) {
    JsonWriter json;
    write_cluster(cluster, json);
    const auto document = parse_json(std::move(json).take(), "plan.json");
    ASSERT_TRUE(document) << message(document);
    // Without the library: the file holds all of it but what others measured.
    Result<Cluster> again = read_cluster(*document, {});
    ASSERT_TRUE(again) << message(again);
    take_measurements(again->gpu, library().gpus);
    EXPECT_EQ(*again, cluster) << cluster.name;
  }
}

TEST(FindGpu, AcceptsNamesOfUsersAndDrivers) {
  EXPECT_EQ(gpu("t4").name, "T4");
  EXPECT_EQ(gpu("Tesla T4").name, "T4");
  EXPECT_EQ(gpu("NVIDIA A100-SXM4-80GB").name, "A100 80GB SXM");
  EXPECT_EQ(gpu("NVIDIA H100 80GB HBM3").name, "H100 SXM");
  EXPECT_EQ(gpu("NVIDIA GeForce RTX 4090").name, "RTX 4090");
  EXPECT_EQ(gpu("rtx4090").name, "RTX 4090");
  EXPECT_EQ(gpu("a100_40gb_pcie").name, "A100 40GB PCIe");
}

TEST(FindGpu, AnUnknownNameGetsTheNearestOrTheList) {
  const auto of = [](std::string_view name) { return message(find_gpu(name, library().gpus, "--gpu")); };
  EXPECT_EQ(of("rtx4900"), "--gpu: Unknown GPU \"rtx4900\". Did you mean \"RTX 4090\"?");
  EXPECT_EQ(of("H1000"), "--gpu: Unknown GPU \"H1000\". Did you mean \"H100\"?");
  EXPECT_EQ(
      of("banana"),
      "--gpu: Unknown GPU \"banana\". Known are A100 40GB PCIe, A100 40GB SXM, A100 80GB PCIe, A100 80GB SXM, A10G, "
      "B200, GB200, GB300, GH200, H100 NVL, H100 PCIe, H100 SXM, H100 SXM 96GB, H200, L4, L40S, RTX 3060, RTX 3090, "
      "RTX 4080, RTX 4090, RTX 5090, RTX A6000, T4, V100 16GB PCIe and 3 more.");
  EXPECT_EQ(message(find_cluster("p4", library().clusters, "--cluster")),
            "--cluster: Unknown cluster \"p4\". Did you mean \"p4d\"?");
}

TEST(PeakRate, FollowsTheHardware) {
  EXPECT_EQ(peak_rate(gpu("T4"), Dtype::BFloat16), std::nullopt);
  EXPECT_EQ(peak_rate(gpu("T4"), Dtype::Float32, true)->value, FlopsPerSecond(8.1e12));  // no TF32 there
  EXPECT_EQ(peak_rate(gpu("A100"), Dtype::Float32)->value, FlopsPerSecond(19.5e12));
  EXPECT_EQ(peak_rate(gpu("A100"), Dtype::Float32, true)->value, FlopsPerSecond(156e12));
  EXPECT_EQ(peak_rate(gpu("A100"), Dtype::BFloat16)->value, FlopsPerSecond(312e12));
  EXPECT_EQ(peak_rate(gpu("A100"), Dtype::Int64), std::nullopt);
}

TEST(MakeCluster, AssumesUsualLinksAndListsThem) {
  const auto cluster = make_cluster(gpu("T4"), 4, 2);
  ASSERT_TRUE(cluster) << message(cluster);
  EXPECT_EQ(cluster->name, "2 nodes of 4x T4");
  EXPECT_EQ(world_size(*cluster), 8);
  EXPECT_EQ(cluster->gpu, gpu("T4"));
  EXPECT_EQ(
      cluster->assumptions,
      (Lines{"The GPUs of a node are linked by PCIe through host memory at 15.8 GB/s each way, as is usual for T4.",
             "The nodes are linked by Ethernet, one NIC per node of 3.12 GB/s each way, as is usual for T4."}));
}

TEST(MakeCluster, OneGpuNeedsNoAssumptions) {
  EXPECT_EQ(make_cluster(gpu("T4"), 1, 1)->assumptions, Lines{});
  EXPECT_EQ(make_cluster(gpu("T4"), 1, 1)->name, "1x T4");
}

TEST(MakeCluster, SixteenThousandGpusCostNoMoreThanOne) {
  const auto cluster = make_cluster(gpu("H100"), 8, 2048);
  ASSERT_TRUE(cluster);
  EXPECT_EQ(world_size(*cluster), 16384);
  EXPECT_EQ(cluster->assumptions.size(), 2U);
}

TEST(MakeCluster, UserValuesOverrideDefaults) {
  const auto cluster = make_cluster(gpu("RTX 3090"), 2, 2,
                                    {.memory = 20_GiB,
                                     .intra_link = IntraLink::NvLink,
                                     .intra_bandwidth = BytesPerSecond(56e9),
                                     .network = NetworkKind::Infiniband,
                                     .nic_bandwidth = BytesPerSecond(25e9),
                                     .gpus_per_nic = 1,
                                     .host_memory = 128_GiB});
  ASSERT_TRUE(cluster) << message(cluster);
  EXPECT_EQ(cluster->gpu.memory, (Sourced<Bytes>{20_GiB, Provenance::Given, "--mem"}));
  EXPECT_EQ(cluster->gpu.usable_memory, cluster->gpu.memory);
  EXPECT_EQ(cluster->intra_node.kind, IntraLink::NvLink);
  EXPECT_EQ(cluster->intra_node.bandwidth.value, BytesPerSecond(56e9));
  EXPECT_EQ(cluster->intra_node.bus_bandwidth, std::nullopt);  // it was measured over PCIe
  EXPECT_EQ(cluster->network.kind, NetworkKind::Infiniband);
  EXPECT_EQ(cluster->network.gpus_per_nic, 1);
  EXPECT_EQ(cluster->host_memory->value, 128_GiB);
  EXPECT_EQ(cluster->assumptions, Lines{});
}

TEST(MakeCluster, GivenBusBandwidthAppliesToTheGivenLink) {
  const auto cluster =
      make_cluster(gpu("A100"), 4, 1, {.intra_link = IntraLink::PcieHost, .bus_bandwidth = BytesPerSecond(12e9)});
  ASSERT_TRUE(cluster) << message(cluster);
  EXPECT_EQ(cluster->intra_node.bus_bandwidth,
            (Sourced<BytesPerSecond>{BytesPerSecond(12e9), Provenance::Given, "--bus-bandwidth"}));
  EXPECT_EQ(message(make_cluster(gpu("T4"), 4, 1, {.bus_bandwidth = BytesPerSecond(0)})),
            "--bus-bandwidth: The bandwidth of collectives must be above 0. Write it as \"12GB/s\".");
}

TEST(MakeCluster, ANetworkOfAnotherKindHasTheHopsOfThatKind) {
  const Gpu h100 = gpu("H100 SXM");
  EXPECT_EQ(make_cluster(h100, 8, 2)->network.latency.value, usual_latency(NetworkKind::Infiniband).value);
  const auto efa = make_cluster(h100, 8, 2, {.network = NetworkKind::Efa});
  EXPECT_EQ(efa->network.latency, usual_latency(NetworkKind::Efa));
  EXPECT_GT(efa->network.latency.value, 3 * kNcclNetworkLatency);
}

TEST(MakeCluster, NcclSettingsAreReadAndChecked) {
  const auto cluster =
      make_cluster(gpu("T4"), 4, 2,
                   {.sharp = true, .nccl_version = "2.27.5", .nccl_algorithms = "Ring", .nccl_protocols = "^LL128"});
  ASSERT_TRUE(cluster) << message(cluster);
  EXPECT_TRUE(cluster->network.sharp);
  EXPECT_EQ(cluster->nccl, (NcclSettings{"2.27.5", "Ring", "^LL128"}));
  EXPECT_EQ(message(make_cluster(gpu("T4"), 4, 2, {.nccl_protocols = "simpel"})),
            "--nccl-proto: Unknown protocol of NCCL \"simpel\". Did you mean Simple?");
  EXPECT_EQ(make_cluster(gpu("T4"), 0, 2, {.nccl_protocols = "simpel"}).error().size(), 2U);
}

TEST(ShippedMachines, HaveTheUsualLatencyOfTheirNetwork) {
  const auto library = read_cluster_library("model_specs/clusters");
  ASSERT_TRUE(library);
  const auto expect_usual = [](const Network& network, const std::string& machine) {
    const Sourced<Seconds> usual = usual_latency(network.kind);
    EXPECT_DOUBLE_EQ(network.latency.value.count(), usual.value.count()) << machine;
    EXPECT_EQ(network.latency.provenance, usual.provenance) << machine;
    EXPECT_EQ(network.latency.source, usual.source) << machine;
  };
  for (const Gpu& card : library->gpus) expect_usual(card.network, card.name);
  for (const Cluster& cluster : library->clusters) expect_usual(cluster.network, cluster.name);
}

TEST(MakeCluster, MemoryAboveTheGpusIsAcceptedWithANote) {
  EXPECT_EQ(make_cluster(gpu("T4"), 1, 1, {.memory = 80_GiB})->assumptions,
            Lines{"Assumes 80.0 GiB of device memory, as given: more than the 15.0 GiB of T4."});
}

TEST(MakeCluster, WithoutNvlinkGpusUseTheHostLink) {
  const auto cluster = make_cluster(gpu("A100"), 4, 1, {.intra_link = IntraLink::PcieHost});
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->intra_node.bandwidth, cluster->host_link.bandwidth);
  EXPECT_GT(cluster->intra_node.latency.value, gpu("A100").intra_node.latency.value);
}

TEST(MakeCluster, InvalidNumbersAreAllReported) {
  EXPECT_EQ(
      message(make_cluster(gpu("T4"), 0, -1, {.memory = 0_B, .nic_bandwidth = BytesPerSecond(0), .gpus_per_nic = 0})),
      "--gpus: 0 is not a valid number of GPUs per node. Write an integer from 1 to 1024.\n"
      "--nodes: -1 is not a valid number of nodes. Write an integer from 1 to 1000000.\n"
      "--gpus-per-nic: 0 is not a valid number of GPUs per NIC. Write an integer from 1 to 1024.\n"
      "--mem: The memory of a GPU must be above 0. Write it as \"16G\".\n"
      "--nic-bandwidth: The bandwidth of a link must be above 0. Write it as \"12.5GB/s\".");
  EXPECT_EQ(
      message(make_cluster(gpu("T4"), 4, 1, {.intra_link = IntraLink::NvLink})),
      "--intra-link: The NVLink bandwidth of T4 is not known. Give it with --intra-bandwidth, such as \"56GB/s\" per "
      "direction.");
}

TEST(AssumedCluster, SixteenGigabytesAreASlowGpuWithBf16) {
  const auto cluster = assumed_cluster(library().gpus, 4, 1, 16_GiB);
  ASSERT_TRUE(cluster) << message(cluster);
  EXPECT_EQ(cluster->name, "4 GPUs of 16.0 GiB");
  EXPECT_EQ(cluster->gpu.name, "L4 with 16.0 GiB");
  EXPECT_EQ(cluster->gpu.memory.value, 16_GiB);
  EXPECT_EQ(cluster->gpu.usable_memory.value, 16_GiB);
  EXPECT_TRUE(cluster->gpu.bf16);
  EXPECT_EQ(
      cluster->assumptions,
      (Lines{"No GPU named: an L4's speed and PCIe links, memory capped at 16.0 GiB.",
             "L4 is the slowest of the smallest GPUs known with bf16 and 16.0 GiB; its CUDA context is assumed, too.",
             "Assumes all 16.0 GiB are usable; some GPUs sold with that much have less: RTX 4080 15.7 GiB, T4 14.6 "
             "GiB, V100 16GB PCIe "
             "15.8 GiB, V100 16GB SXM 15.8 GiB.",
             "Assumes bf16 and FlashAttention are supported; T4, V100 16GB PCIe, V100 16GB SXM do not support them: "
             "name yours with --gpu.",
             "The GPUs of a node are linked by PCIe through host memory at 31.5 GB/s each way, as is usual for L4."}));
}

TEST(AssumedCluster, OtherMemoryKeepsTheAssumedCard) {
  const auto cluster = override_cluster(*assumed_cluster(library().gpus, 4, 2, 16_GiB), {.memory = 12_GiB});
  ASSERT_TRUE(cluster) << message(cluster);
  EXPECT_EQ(cluster->name, "2 nodes of 4 GPUs of 12.0 GiB");
  EXPECT_EQ(cluster->gpu.name, "L4 with 12.0 GiB");
  EXPECT_EQ(cluster->assumptions.front(), "No GPU named: an L4's speed and PCIe links, memory capped at 12.0 GiB.");
}

TEST(OverrideCluster, OtherProgramsTakeASizeOrAShare) {
  const Cluster whole = *assumed_cluster(library().gpus, 4, 1, 40_GiB);
  const auto size = override_cluster(whole, {.reserve = Reserve{.bytes = 30_GiB}});
  ASSERT_TRUE(size) << message(size);
  EXPECT_EQ(size->reserved_memory, (Sourced<Bytes>{30_GiB, Provenance::Given, "--reserve"}));
  const auto share = override_cluster(whole, {.memory = 16_GiB, .reserve = Reserve{.share = 0.25}});
  ASSERT_TRUE(share) << message(share);
  EXPECT_EQ(share->reserved_memory->value, 4_GiB) << "a share of the memory that is given with it";
  const auto all = override_cluster(whole, {.reserve = Reserve{.bytes = 40_GiB}});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().front().what, "Other programs take 40.0 GiB, and a GPU has 40.0 GiB.");
}

TEST(AssumedCluster, GivenMemoryDecidesTheAssumedCard) {
  const auto like = [](Bytes memory) {
    const std::string name = assumed_cluster(library().gpus, 8, 1, memory)->gpu.name;
    return name.substr(0, name.find(" with"));
  };
  EXPECT_EQ(like(1_GiB), "L4");
  EXPECT_EQ(like(24_GiB), "L4");  // sold as 24 GB, shown as 22.5 GiB
  EXPECT_EQ(like(32_GiB), "RTX 5090");
  EXPECT_EQ(like(40_GiB), "A100 40GB PCIe");
  EXPECT_EQ(like(48_GiB), "RTX A6000");  // slower than an L40S of the same size
  EXPECT_EQ(like(80_GiB), "A100 80GB PCIe");
  EXPECT_EQ(like(141_GiB), "H200");
  EXPECT_EQ(like(192_GiB), "B200");
  EXPECT_EQ(like(1000_GiB), "GB300");
}

TEST(AssumedCluster, AssumesTheSlowestCardOfAMemorySize) {
  const auto card = [](std::string name, Bytes memory, double bandwidth) {
    Gpu made = gpu("L4");
    made.name = std::move(name);
    made.memory.value = memory;
    made.memory_bandwidth.value = BytesPerSecond(bandwidth);
    return made;
  };
  const auto like = [](const std::vector<Gpu>& gpus) { return assumed_cluster(gpus, 1, 1, 20_GiB)->gpu.name; };
  const Gpu fast = card("fast", 20_GiB, 900e9);
  EXPECT_EQ(like({fast, card("slow", 21_GiB, 300e9)}), "slow with 20.0 GiB");
  // 25 GiB are another class, however slow.
  EXPECT_EQ(like({fast, card("slow", 25_GiB, 300e9)}), "fast with 20.0 GiB");
  // A GPU without bf16 never stands in.
  Gpu old = card("old", 20_GiB, 300e9);
  old.bf16.reset();
  EXPECT_EQ(like({fast, old}), "fast with 20.0 GiB");
}

TEST(AssumedCluster, NoMemoryIsAnError) {
  EXPECT_EQ(message(assumed_cluster(library().gpus, 4, 1, 0_B)),
            "--mem: The memory of a GPU must be above 0. Write it as \"16G\".");
}

TEST(UnprovenFigures, ListAssumedAndGivenFigures) {
  const Lines lines = unproven_figures(*make_cluster(gpu("T4"), 1, 1, {.memory = 12_GiB}));
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0], "Device memory 12.0 GiB (given: --mem)");
  EXPECT_EQ(lines[1], "Usable device memory 12.0 GiB (given: --mem)");
  EXPECT_TRUE(lines[2].starts_with("Reachable share of the peak rate 50 % (assumed: ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("Reachable share of the memory bandwidth 58 % (assumed: ")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("Reachable share of the peak rate in attention 41 % (assumed: ")) << lines[4];
  EXPECT_TRUE(lines[5].starts_with("Published steps over predicted ones, at most 1.4 (assumed: ")) << lines[5];
}

}  // namespace
}  // namespace fsdp
