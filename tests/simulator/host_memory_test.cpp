// Host memory, by paper and pencil.

#include "simulator/memory/host_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kProcess = std::int64_t{2} << 30;

// One parameter of 6 rows of 1000, over 4 ranks: 2 rows each on the first three, and a padded shard on the last.
Layout six_rows_over_four() {
  Layout layout;
  layout.mesh = {1, 4};
  layout.parameter_dtype = {Dtype::Float32};
  ShardedUnit unit;
  unit.parameters = {{.parameter = 0, .elements = 6000, .shard_elements = 2000, .local_elements = 2000}};
  layout.units = {unit};
  return layout;
}

Cluster nodes_of(int gpus_per_node, int nodes) {
  Cluster cluster;
  cluster.gpu.compute_capability = 80;
  cluster.gpus_per_node = gpus_per_node;
  cluster.nodes = nodes;
  return cluster;
}

Plan offloaded() {
  Plan plan;
  plan.mesh = {1, 4};
  plan.cpu_offload = true;
  plan.optimizer = {.kind = OptimizerKind::AdamW};
  return plan;
}

std::map<std::string, std::int64_t> terms_of(const HostMemory& host) {
  std::map<std::string, std::int64_t> terms;
  std::int64_t sum = 0;
  for (const DeviceTerm& term : host.terms) {
    terms[term.name] = term.bytes.count();
    sum += term.bytes.count();
  }
  EXPECT_EQ(sum, host.needed.count());
  return terms;
}

using Terms = std::map<std::string, std::int64_t>;

TEST(HostMemory, PinnedMemoryComesInPowersOfTwo) {
  EXPECT_EQ(pinned_block(0), 0);
  EXPECT_EQ(pinned_block(1), 1);
  EXPECT_EQ(pinned_block(4096), 4096);
  EXPECT_EQ(pinned_block(4097), 8192);
  EXPECT_EQ(pinned_block((std::int64_t{1} << 31) + 1), std::int64_t{1} << 32);
}

TEST(HostMemory, ANodeHoldsWhatAllItsRanksOffload) {
  const auto host = host_memory(nodes_of(4, 1), offloaded(), six_rows_over_four());
  ASSERT_TRUE(host.has_value());
  // A shard of 8000 bytes is a block of 8192, padded or not; the last rank has no gradient, no moments, no results.
  EXPECT_EQ(terms_of(*host), (Terms{{"shards", 4 * 8192},
                                    {"gradients", 3 * 8192},
                                    {"optimizer states", 3 * 2 * 8000},
                                    {"temporaries", 3 * 3 * 8000},
                                    {"processes", 4 * kProcess}}));
}

TEST(HostMemory, Fsdp1PinsFlatShardsAndAsMuchForTheirGradients) {
  Layout layout = six_rows_over_four();
  layout.flat = FlatParameters::Whole;
  ShardedUnit& unit = layout.units[0];
  unit.original_dtype = Dtype::Float32;
  unit.shard_elements = 1500;
  unit.true_elements = unit.reduced_true_elements = 6000;
  ShardedUnit frozen = unit;
  frozen.reduced_true_elements = 0;
  layout.units.push_back(frozen);
  // Of the frozen one no moments; a loop over flat shards has three results of one.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), offloaded(), layout)), (Terms{{"shards", 4 * 2 * 8192},
                                                                                {"gradients", 4 * 2 * 8192},
                                                                                {"optimizer states", 4 * 2 * 6000},
                                                                                {"temporaries", 4 * 3 * 6000},
                                                                                {"processes", 4 * kProcess}}));
  EXPECT_EQ(pinned_memory(offloaded(), layout), Bytes(4 * 8192));
}

TEST(HostMemory, TheNodeThatHoldsMostCounts) {
  // Ranks 0 and 1 on the first node, 2 and 3 on the second, which has the empty shard.
  const auto host = host_memory(nodes_of(2, 2), offloaded(), six_rows_over_four());
  EXPECT_EQ(terms_of(*host).at("gradients"), 2 * 8192);
  EXPECT_EQ(terms_of(*host).at("optimizer states"), 2 * 2 * 8000);
  EXPECT_EQ(terms_of(*host).at("processes"), 2 * kProcess);
}

TEST(HostMemory, CopiesOfTheModelInOneNodeAddUp) {
  Plan plan = offloaded();
  plan.mesh = {2, 4};
  Layout layout = six_rows_over_four();
  layout.mesh = plan.mesh;
  const auto host = host_memory(nodes_of(8, 1), plan, layout);
  EXPECT_EQ(terms_of(*host).at("shards"), 8 * 8192);
  EXPECT_EQ(terms_of(*host).at("gradients"), 6 * 8192);
}

TEST(HostMemory, AFurtherMicroBatchArrivesInACopyOfItsOwn) {
  Plan plan = offloaded();
  plan.optimizer = {.kind = OptimizerKind::Sgd, .weight_decay = 0, .momentum = 0};
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).count("temporaries"), 0u);
  plan.accumulation = 2;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).at("temporaries"), 3 * 8000);
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).count("temporaries"), 0u);
}

TEST(HostMemory, AFrozenModelNeedsMostWhileItIsMade) {
  Layout layout = six_rows_over_four();
  layout.units[0].parameters[0].receives_gradient = false;
  // Each shard once as to_empty makes it, of its true size, and once in its pinned block.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), offloaded(), layout)),
            (Terms{{"model while it is made", 4 * 8192 + 3 * 8000}, {"processes", 4 * kProcess}}));
}

TEST(HostMemory, AModelThatIsMadeOnTheCpuIsThereOnceForEachRank) {
  Plan plan = offloaded();
  plan.cpu_offload = false;
  EXPECT_FALSE(host_memory(nodes_of(4, 1), plan, six_rows_over_four()).has_value());
  plan.initialization = Initialization::Cpu;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())),
            (Terms{{"model while it is made", 4 * 24000}, {"processes", 4 * kProcess}}));
}

TEST(HostMemory, WhatANodeLacksIncludesTheMargin) {
  Cluster cluster = nodes_of(4, 1);
  const auto unknown = host_memory(cluster, offloaded(), six_rows_over_four());
  EXPECT_FALSE(unknown->budget.has_value());
  EXPECT_EQ(unknown->missing(), Bytes(0));
  const Bytes all = unknown->needed + unknown->margin;
  EXPECT_GT(unknown->margin, Bytes(0));
  cluster.host_memory = {all, Provenance::Given, "--host-mem"};
  EXPECT_EQ(host_memory(cluster, offloaded(), six_rows_over_four())->missing(), Bytes(0));
  cluster.host_memory->value = all - Bytes(1);
  EXPECT_EQ(host_memory(cluster, offloaded(), six_rows_over_four())->missing(), Bytes(1));
}

TEST(HostMemory, ACpuHasNoOther) {
  Cluster cluster = nodes_of(4, 1);
  cluster.gpu.compute_capability = 0;
  EXPECT_FALSE(host_memory(cluster, offloaded(), six_rows_over_four()).has_value());
}

}  // namespace
}  // namespace fsdp::simulator
