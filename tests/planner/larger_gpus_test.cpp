// Which GPUs are offered in the place of others: real ones, as the options that name them.

#include "planner/request/larger_gpus.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "command/cli_request.h"
#include "core/cluster/cluster_library.h"
#include "render/choice_words.h"

namespace fsdp::planner {
namespace {

const std::string kLibrary = "model_specs";

std::vector<LargerGpu> offers(std::vector<std::string> words, bool of_plan = false) {
  words.insert(words.begin(), "mlp");
  const command::CommandLine line = *command::parse_command_line(words);
  Errors errors;
  return larger_gpus(command::read_choices(line, errors).choices, *command::read_machines(line, kLibrary), of_plan,
                     kLibrary);
}

std::string flags(const LargerGpu& offer) {
  return render::flags_of(offer.change);
}

std::vector<std::string> flags(const std::vector<LargerGpu>& offers) {
  std::vector<std::string> all;
  for (const LargerGpu& offer : offers) all.push_back(flags(offer));
  return all;
}

const Gpu& card(const std::string& name) {
  static const ClusterLibrary library = *read_cluster_library(kLibrary + "/clusters");
  return *std::find_if(library.gpus.begin(), library.gpus.end(), [&](const Gpu& gpu) { return gpu.name == name; });
}

/// The words of a flag, as a shell takes them apart.
std::vector<std::string> words_in(const std::string& flag) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < flag.size();) {
    const std::size_t end = std::min(flag.find(' ', begin), flag.size());
    words.push_back(flag.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

TEST(LargerGpus, CardIsReplacedByACardOfTheLibrary) {
  const auto found = offers({"--gpu", "L4", "--gpus", "2"});
  const auto a100 = std::find_if(found.begin(), found.end(),
                                 [](const LargerGpu& offer) { return flags(offer) == "--gpu A100-80GB-PCIe"; });
  ASSERT_NE(a100, found.end());
  EXPECT_EQ(a100->what, "A100 80GB PCIe");
  EXPECT_TRUE(a100->cluster.gpu == card("A100 80GB PCIe"));
  EXPECT_TRUE(a100->cluster.intra_node == card("A100 80GB PCIe").intra_node);
  EXPECT_EQ(a100->cluster.gpus_per_node, 2);
  for (const LargerGpu& offer : found) {
    EXPECT_TRUE(offer.cluster.gpu == card(offer.what)) << flags(offer);
    EXPECT_GT(offer.cluster.gpu.usable_memory.value, card("L4").usable_memory.value) << flags(offer);
    EXPECT_TRUE(offer.cluster.gpu.bf16.has_value()) << flags(offer);
  }
}

TEST(LargerGpus, LeastMemoryAndMostAlikeCardsComeFirst) {
  const auto of_l4 = flags(offers({"--gpu", "L4", "--gpus", "2"}));
  const auto place = [&](const char* flag) { return std::find(of_l4.begin(), of_l4.end(), flag) - of_l4.begin(); };
  EXPECT_LT(place("--gpu L40S"), place("--gpu A100-80GB-PCIe"));
  EXPECT_LT(place("--gpu A100-80GB-PCIe"), place("--gpu H200"));
  // 81008 MiB of an H100 PCIe and 81039 of an A100 are the same 80 GB.
  EXPECT_EQ(flags(offers({"--gpu", "A100 40GB SXM", "--gpus", "4"})).front(), "--gpu A100-80GB-SXM");
  EXPECT_EQ(flags(offers({"--gpu", "A100 40GB PCIe", "--gpus", "4"})).front(), "--gpu L40S");
}

TEST(LargerGpus, OffersKeepNvlink) {
  for (const LargerGpu& offer : offers({"--gpu", "A100 40GB SXM", "--gpus", "8", "--nodes", "2"})) {
    EXPECT_TRUE(offer.cluster.intra_node.kind == IntraLink::NvSwitch ||
                offer.cluster.intra_node.kind == IntraLink::NvLink)
        << flags(offer);
  }
}

// Memory by itself would be another card in silence, which is faster as well.
TEST(LargerGpus, NoGpuNamedStillOffersNamedCards) {
  const auto found = offers({"--gpus", "4", "--mem", "16G"});
  for (const LargerGpu& offer : found) {
    ASSERT_TRUE(offer.change.gpu_name.has_value()) << flags(offer);
    EXPECT_EQ(offer.what, *offer.change.gpu_name);
    EXPECT_EQ(offer.cluster.gpu.name, *offer.change.gpu_name);
    EXPECT_EQ(offer.cluster.gpu.memory_bandwidth.value, card(offer.what).memory_bandwidth.value) << flags(offer);
  }
  // The one that stands in before others with as much.
  EXPECT_EQ(flags(found).front(), "--gpu L4 --mem 21G");
  // A T4 has 14 GiB and no bfloat16.
  for (const LargerGpu& offer : offers({"--gpus", "4", "--mem", "12G"})) EXPECT_NE(offer.what, "T4");
}

TEST(LargerGpus, AShareOfACardGrowsToAllOfItFirst) {
  const auto found = flags(offers({"--gpu", "L4", "--gpus", "2", "--mem", "8G"}));
  EXPECT_TRUE(std::find(found.begin(), found.end(), "--mem 21G") != found.end());
  EXPECT_TRUE(std::find(found.begin(), found.end(), "--gpu L40S --mem 44G") != found.end());
  const auto full = flags(offers({"--gpu", "L4", "--gpus", "2", "--mem", "22G"}));
  EXPECT_TRUE(std::find(full.begin(), full.end(), "--mem 21G") == full.end());
}

TEST(LargerGpus, AClusterIsReplacedByAClusterWithAsManyGpus) {
  const auto found = offers({"--cluster", "DGX H100", "--gpus", "4"});
  ASSERT_FALSE(found.empty());
  for (const LargerGpu& offer : found) {
    EXPECT_TRUE(flags(offer).starts_with("--cluster ")) << flags(offer);
    EXPECT_EQ(world_size(offer.cluster), 4) << flags(offer);
  }
  const auto all = flags(found);
  EXPECT_TRUE(std::find(all.begin(), all.end(), "--cluster DGX-H200 --gpus 4") != all.end());
  // A p4d has 40 GB.
  for (const std::string& flag : all) EXPECT_EQ(flag.find("p4d."), std::string::npos);
  // A g6e.12xlarge has larger GPUs than a g5.48xlarge, and four of them instead of eight.
  const auto of_eight = flags(offers({"--cluster", "AWS g5.48xlarge"}));
  EXPECT_FALSE(of_eight.empty());
  for (const std::string& flag : of_eight) EXPECT_EQ(flag.find("g6e"), std::string::npos);
}

TEST(LargerGpus, OffersForAPlanFileNameTheNumberOfGpus) {
  for (const LargerGpu& offer : offers({"--gpu", "L4", "--gpus", "4", "--nodes", "2"}, true)) {
    EXPECT_EQ(world_size(offer.cluster), 8);
  }
  const command::CommandLine line =
      *command::parse_command_line(std::vector<std::string>{"mlp", "--gpu", "L4", "--gpus", "4", "--nodes", "2"});
  const auto found = flags(larger_gpus({}, *command::read_machines(line, kLibrary), true, kLibrary));
  EXPECT_TRUE(std::find(found.begin(), found.end(), "--gpu A100-80GB-PCIe --gpus 4 --nodes 2") != found.end());
}

TEST(LargerGpus, OptionsNameThePricedMachine) {
  struct Case {
    std::vector<std::string> words;
    std::vector<std::string> kept;  // What the options of an offer leave of the line.
  };
  const std::vector<Case> cases = {
      {{"--gpu", "L4", "--gpus", "2", "--nodes", "3"}, {"--gpus", "2", "--nodes", "3"}},
      {{"--gpus", "4", "--mem", "16G", "--intra-bandwidth", "8GB/s"}, {"--gpus", "4", "--intra-bandwidth", "8GB/s"}},
      {{"--gpu", "H100", "--gpus", "8", "--host-mem", "1T"}, {"--gpus", "8", "--host-mem", "1T"}},
      {{"--cluster", "DGX H100"}, {}},
  };
  for (const Case& each : cases) {
    const auto found = offers(each.words);
    EXPECT_FALSE(found.empty()) << each.words[1];
    for (const LargerGpu& offer : found) {
      std::vector<std::string> words = {"mlp"};
      words.insert(words.end(), each.kept.begin(), each.kept.end());
      const std::vector<std::string> named = words_in(flags(offer));
      for (std::size_t i = 0; i < named.size(); i += 2) {
        // The same option is replaced.
        if (const auto old = std::find(words.begin(), words.end(), named[i]); old != words.end())
          words.erase(old, old + 2);
      }
      words.insert(words.end(), named.begin(), named.end());
      const auto typed = command::read_machines(*command::parse_command_line(words), kLibrary);
      ASSERT_TRUE(typed.has_value()) << flags(offer) << ": " << to_string(typed.error().front());
      EXPECT_TRUE(*typed == offer.cluster) << flags(offer);
    }
  }
}

}  // namespace
}  // namespace fsdp::planner
