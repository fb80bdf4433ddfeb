#include "core/cluster/nccl_settings.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

using enum NcclAlgorithm;
using enum NcclProtocol;

constexpr int kAllGather = 0;
constexpr int kReduceScatter = 1;
constexpr int kAllReduce = 2;

std::string first_error(const NcclSettings& settings) {
  const Result<NcclRules> rules = nccl_rules(settings);
  return rules ? "none" : to_string(rules.error().front());
}

TEST(NcclSettings, EmptySettingsForbidNothing) {
  EXPECT_EQ(*nccl_rules({}), NcclRules{});
}

TEST(NcclSettings, ListAllowsItsNamesInAnyCase) {
  const NcclRules rules = *nccl_rules({.algorithms = "ring,TREE", .protocols = "simple"});
  EXPECT_TRUE(rules.allows(kAllReduce, Ring, Simple));
  EXPECT_TRUE(rules.allows(kAllReduce, Tree, Simple));
  EXPECT_FALSE(rules.allows(kAllReduce, Nvls, Simple));
  EXPECT_FALSE(rules.allows(kAllGather, Ring, LL128));
}

TEST(NcclSettings, CaretForbidsItsNames) {
  const NcclRules rules = *nccl_rules({.algorithms = "^NVLS,NVLSTree"});
  EXPECT_FALSE(rules.allows(kAllReduce, Nvls, Simple));
  EXPECT_FALSE(rules.allows(kAllReduce, NvlsTree, Simple));
  EXPECT_TRUE(rules.allows(kAllReduce, Tree, LL));
  EXPECT_TRUE(rules.allows(kAllGather, Pat, Simple));
}

TEST(NcclSettings, RulesApplyPerCollective) {
  const NcclRules rules = *nccl_rules({.algorithms = "allreduce:Tree;allgather:Ring"});
  EXPECT_FALSE(rules.allows(kAllReduce, Ring, Simple));
  EXPECT_FALSE(rules.allows(kAllGather, Pat, Simple));
  EXPECT_TRUE(rules.allows(kReduceScatter, Pat, Simple));
  EXPECT_EQ(first_error({.version = "2.23.4", .algorithms = "allreduce:Tree"}),
            "--nccl-algo: NCCL tells functions apart from 2.24 on. Write a list without \"allreduce:\".");
}

TEST(NcclSettings, AVersionIsItsMinorNumber) {
  EXPECT_EQ(nccl_rules({.version = "2.27.5"})->minor_version, 27);
  EXPECT_EQ(nccl_rules({.version = "2.20"})->minor_version, 20);
  for (const char* text : {"2.19", "2.31", "3.1", "27", "2.", "2.27x"}) {
    EXPECT_EQ(first_error({.version = text}),
              std::string("--nccl-version: NCCL \"") + text + "\" is not known. Write 2.20 to 2.30, such as 2.27.5.");
  }
}

TEST(NcclSettings, AnUnknownNameIsRefusedWithTheNearest) {
  EXPECT_EQ(first_error({.algorithms = "Rign"}), "--nccl-algo: Unknown algorithm of NCCL \"Rign\". Did you mean Ring?");
  EXPECT_EQ(first_error({.protocols = "TCP"}),
            "--nccl-proto: Unknown protocol of NCCL \"TCP\". Known are LL, LL128, Simple.");
  EXPECT_EQ(first_error({.algorithms = "alreduce:Ring"}),
            "--nccl-algo: Unknown collective \"alreduce\". Did you mean allreduce?");
  EXPECT_EQ(nccl_rules({.version = "1", .algorithms = "a", .protocols = "b"}).error().size(), 3U);
}

// NCCL ends with "no algorithm/protocol available"; until 2.23 it kept rings for all but all-reduces.
TEST(NcclSettings, EachCollectiveMustKeepAChoice) {
  EXPECT_EQ(first_error({.algorithms = "Tree"}),
            "--nccl-algo: This leaves allgather no choice that every machine has. Add Ring, or write "
            "\"allgather:Ring;...\".");
  EXPECT_TRUE(nccl_rules({.version = "2.23", .algorithms = "Tree"})->allows(kAllGather, Ring, Simple));
  EXPECT_EQ(first_error({.algorithms = "allreduce:NVLS"}),
            "--nccl-algo: This leaves allreduce no choice that every machine has. Add Ring or Tree.");
  EXPECT_EQ(first_error({.protocols = "LL128"}),
            "--nccl-proto: This leaves allgather no choice that every machine has. Add LL or Simple.");
  EXPECT_EQ(first_error({.algorithms = "^Ring,Tree"}).substr(0, 11), "--nccl-algo");
}

}  // namespace
}  // namespace fsdp
