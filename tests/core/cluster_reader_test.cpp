#include "core/cluster/cluster_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/json_writer.h"
#include "core/cluster/cluster_library.h"

namespace fsdp {
namespace {

std::string message(const std::string& text) {
  const auto library = read_cluster_library("model_specs/clusters");
  const auto document = parse_json(text, "c.json");
  if (!library || !document) return "not read";
  const Result<Cluster> cluster = read_cluster(*document, library->gpus);
  if (cluster) return "good";
  std::string lines;
  for (const Error& error : cluster.error()) lines += (lines.empty() ? "" : "\n") + to_string(error);
  return lines;
}

const std::string kHead = R"({"format_version": "1.0", "kind": "cluster", "name": "mine", )";

TEST(ReadCluster, TheShortestFileNamesAGpuAndACount) {
  const auto library = read_cluster_library("model_specs/clusters");
  ASSERT_TRUE(library);
  const auto document = parse_json(kHead + R"("gpu": "tesla-t4", "gpus_per_node": 4, "nodes": 2})", "c.json");
  ASSERT_TRUE(document);
  const auto cluster = read_cluster(*document, library->gpus);
  ASSERT_TRUE(cluster) << to_string(cluster.error().front());
  EXPECT_EQ(cluster->gpu.name, "T4");
  EXPECT_EQ(cluster->intra_node, cluster->gpu.intra_node);
  EXPECT_EQ(cluster->network, cluster->gpu.network);
  EXPECT_EQ(cluster->assumptions,
            (std::vector<std::string>{"The GPUs of a node are linked by PCIe through host memory, as is usual for T4.",
                                      "The nodes are linked by Ethernet, as is usual for T4."}));
}

/// The cluster, written and read.
Cluster again(const Cluster& cluster, const ClusterLibrary& library) {
  JsonWriter writer;
  write_cluster(cluster, writer);
  const auto document = parse_json(std::move(writer).take(), "c.json");
  const auto read = document ? read_cluster(*document, library.gpus) : tl::unexpected(document.error());
  EXPECT_TRUE(read) << to_string(read.error().front());
  return read.value_or(Cluster());
}

TEST(ReadCluster, WrittenClusterReadsBackUnchanged) {
  const auto library = read_cluster_library("model_specs/clusters");
  ASSERT_TRUE(library);
  for (const Cluster& cluster : library->clusters) EXPECT_EQ(again(cluster, *library), cluster) << cluster.name;
  int others = 0;
  for (const Gpu& gpu : library->gpus) {
    for (const IntraLink kind : {IntraLink::NvSwitch, IntraLink::NvLink, IntraLink::PciePeer, IntraLink::PcieHost}) {
      for (const int gpus_per_nic : {1, 8, kMostGpusPerNode}) {
        const auto cluster = make_cluster(gpu, 8, 2, {.intra_link = kind, .gpus_per_nic = gpus_per_nic});
        if (!cluster) continue;  // No NVLink that anybody knows of.
        EXPECT_EQ(again(*cluster, *library), *cluster) << cluster->name;
        others += cluster->intra_node.kind != gpu.intra_node.kind ? 1 : 0;
      }
    }
  }
  EXPECT_GT(others, 100);
}

TEST(ReadCluster, NamedLinkTakesNothingFromTheCard) {
  const auto library = read_cluster_library("model_specs/clusters");
  ASSERT_TRUE(library);
  const std::string figure = R"({"value": "32GB/s", "provenance": "given", "source": "us"})";
  const std::string latency = R"({"value": "1us", "provenance": "given", "source": "us"})";
  const auto document =
      parse_json(kHead + R"("gpu": "H100 SXM", "gpus_per_node": 8, "intra_node": {"kind": "pcie-host", "bandwidth": )" +
                     figure + R"(, "latency": )" + latency + R"(}, "network": {"kind": "ethernet", "nic_bandwidth": )" +
                     figure + R"(, "latency": )" + latency + "}}",
                 "c.json");
  ASSERT_TRUE(document);
  const auto cluster = read_cluster(*document, library->gpus);
  ASSERT_TRUE(cluster) << to_string(cluster.error().front());
  EXPECT_TRUE(cluster->gpu.intra_node.bus_bandwidth);
  EXPECT_FALSE(cluster->intra_node.bus_bandwidth);
  EXPECT_EQ(cluster->gpu.network.gpus_per_nic, 1);
  EXPECT_EQ(cluster->network.gpus_per_nic, kMostGpusPerNode);
}

TEST(ReadCluster, NcclIsSetUpInASectionOfItsOwn) {
  const auto library = read_cluster_library("model_specs/clusters");
  ASSERT_TRUE(library);
  const std::string nccl = R"("gpu": "H100 SXM", "gpus_per_node": 8,
    "nccl": {"version": "2.27.5", "algorithms": "^NVLS", "protocols": "Simple"}})";
  const auto document = parse_json(kHead + nccl, "c.json");
  ASSERT_TRUE(document);
  const auto cluster = read_cluster(*document, library->gpus);
  ASSERT_TRUE(cluster) << to_string(cluster.error().front());
  EXPECT_EQ(cluster->nccl, (NcclSettings{"2.27.5", "^NVLS", "Simple"}));
  EXPECT_EQ(again(*cluster, *library), *cluster);
  EXPECT_EQ(message(kHead + "\n\"gpu\": \"T4\", \"gpus_per_node\": 1, \"nccl\": {\"protocols\": \"LL127\"}}"),
            "c.json:2:42: /nccl: Unknown protocol of NCCL \"LL127\". Did you mean LL128?");
}

TEST(ReadCluster, AllErrorsOfAFileComeAtOnce) {
  EXPECT_EQ(message(kHead + "\n\"gpu\": \"T44\",\n\"gpus_pernode\": 4,\n\"nodes\": 0,\n\"host_memory\": \"192GiB\"}"),
            "c.json:2:8: /gpu: Unknown GPU \"T44\". Did you mean \"T4\"?\n"
            "c.json:3:1: /gpus_pernode: Unknown key \"gpus_pernode\". Did you mean \"gpus_per_node\"?\n"
            "c.json:4:10: /nodes: 0 is out of range. Write an integer from 1 to 1000000.\n"
            "c.json:5:16: /host_memory: Expected an object, found the string \"192GiB\".");
}

TEST(ReadCluster, AFigureNeedsItsProvenanceAndItsSource) {
  EXPECT_EQ(
      message(kHead + R"("gpu": "T4", "gpus_per_node": 1, "host_memory": {"value": 192, "provenance": "guess"}})"),
      "c.json:1:110: /host_memory: \"source\" is missing. Add \"source\" to this object.\n"
      "c.json:1:120: /host_memory/value: Expected a size with its unit, found the number 192. Did you mean "
      "\"192G\"?\n"
      "c.json:1:139: /host_memory/provenance: Unknown provenance \"guess\". Known are measured, published, assumed and "
      "given.");
}

TEST(ReadCluster, OtherKindOrVersionIsReported) {
  EXPECT_EQ(message(R"({"format_version": "2.0", "kind": "gpu", "name": "x", "gpu": "T4", "gpus_per_node": 1})"),
            "c.json:1:20: /format_version: Format version \"2.0\" is not known. Write \"1.0\".\n"
            "c.json:1:35: /kind: This file describes a gpu. A file of kind \"cluster\" belongs here.");
}

TEST(ReadCluster, ComputeCapabilityIsTwoNumbers) {
  const auto document = parse_json(R"({"compute_capability": "8"})", "g.json");
  ASSERT_TRUE(document);
  const Result<Gpu> gpu = read_gpu(*document);
  ASSERT_FALSE(gpu);
  EXPECT_EQ(to_string(gpu.error().back()),
            "g.json:1:24: /compute_capability: \"8\" is not a compute capability. Write it as \"8.0\".");
}

TEST(ReadClusterLibrary, MissingFolderErrorNamesItsPlace) {
  const auto library = read_cluster_library("no/such/folder");
  ASSERT_FALSE(library);
  EXPECT_EQ(
      to_string(library.error().front()),
      "no/such/folder/gpus: The folder of the clusters cannot be read: No such file or directory. It is installed "
      "next to the program, as share/fsdp-plan/model_specs/clusters.");
}

TEST(ReadClusterLibrary, TwoGpusWithOneNameAreAnError) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "fsdp_two_names";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "gpus");
  const std::string card = "model_specs/clusters/gpus/t4_16gb.json";
  std::filesystem::copy_file(card, folder / "gpus/a.json");
  std::filesystem::copy_file(card, folder / "gpus/b.json");
  const auto library = read_cluster_library(folder.string());
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(library);
  ASSERT_EQ(library.error().size(), 3U);  // the name and two aliases
  EXPECT_EQ(library.error().back().what, "\"T4\" and \"T4\" are both called \"T4\".");
}

}  // namespace
}  // namespace fsdp
