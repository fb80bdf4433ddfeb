// Host memory, by paper and pencil.

#include "simulator/memory/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
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

TEST(HostMemory, NodeCountsOffloadOfAllItsRanks) {
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
  // No moments for the frozen one; a loop over flat shards has three results of one.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), offloaded(), layout)), (Terms{{"shards", 4 * 2 * 8192},
                                                                                {"gradients", 4 * 2 * 8192},
                                                                                {"optimizer states", 4 * 2 * 6000},
                                                                                {"temporaries", 4 * 3 * 6000},
                                                                                {"processes", 4 * kProcess}}));
  EXPECT_EQ(pinned_memory(offloaded(), layout), Bytes(std::int64_t{4} * 8192));
}

TEST(HostMemory, LargestNodeCounts) {
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

TEST(HostMemory, FurtherMicroBatchesNeedAnotherCopy) {
  Plan plan = offloaded();
  plan.optimizer = {.kind = OptimizerKind::Sgd, .weight_decay = 0, .momentum = 0};
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).count("temporaries"), 0u);
  plan.accumulation = 2;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).at("temporaries"), 3 * 8000);
  plan.sync_every_micro_batch = false;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).count("temporaries"), 0u);
}

TEST(HostMemory, EightBitStatesAreUpdatedInFp32OneParameterAfterAnother) {
  Plan plan = offloaded();
  plan.optimizer.kind = OptimizerKind::BnbAdamW8bit;
  // For 2000 fp32 elements both moments, the gradient, the root and the quotient: 5 x 8000 bytes on each of three
  // ranks.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())).at("temporaries"), 3 * 5 * 8000);
}

TEST(HostMemory, AFrozenModelNeedsMostWhileItIsMade) {
  Layout layout = six_rows_over_four();
  layout.units[0].parameters[0].receives_gradient = false;
  // Each shard once as to_empty makes it, of its true size, and once in its pinned block.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), offloaded(), layout)),
            (Terms{{"model while it is made", 4 * 8192 + 3 * 8000}, {"processes", 4 * kProcess}}));
}

TEST(HostMemory, ModelMadeOnTheCpuCountsOncePerRank) {
  Plan plan = offloaded();
  plan.cpu_offload = false;
  EXPECT_FALSE(host_memory(nodes_of(4, 1), plan, six_rows_over_four()).has_value());
  plan.initialization = Initialization::Cpu;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, six_rows_over_four())),
            (Terms{{"model while it is made", 4 * 24000}, {"processes", 4 * kProcess}}));
}

TEST(HostMemory, ShortfallOfANodeIncludesTheMargin) {
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

TEST(HostMemory, CpuMachinesHaveNoSeparateHost) {
  Cluster cluster = nodes_of(4, 1);
  cluster.gpu.compute_capability = 0;
  EXPECT_FALSE(host_memory(cluster, offloaded(), six_rows_over_four()).has_value());
}

// Parameters of 3000 and 3004 elements in one flat buffer over 4 ranks: parts of 1501, of which rank 1 has both.
Layout flat_over_four(bool cuts_gradients = false) {
  Layout layout;
  layout.mesh = {1, 4};
  layout.parameter_dtype = {Dtype::BFloat16, Dtype::BFloat16};
  ShardedUnit unit;
  unit.parameters = {{.parameter = 0, .elements = 3000}, {.parameter = 1, .elements = 3004}};
  layout.units = {unit};
  layout.zero = {
      .parameters = {0, 1}, .begins = {0, 3000, 6004}, .ranks = 4, .elements = 6004, .dtype = Dtype::BFloat16};
  layout.zero.cuts_gradients = cuts_gradients;
  layout.buckets = {{.parameters = {1, 0}, .dtype = Dtype::BFloat16, .elements = 6004}};
  return layout;
}

// The same, each cut by itself: 750 and 751 elements a rank, in a sub-group each.
Layout cut_over_four() {
  Layout layout = flat_over_four(true);
  layout.hooked = layout.units;
  layout.zero.begins = {0, 750, 1501};
  layout.zero.group_begins = {0, 1, 2};
  return layout;
}

Plan offloaded_by(Framework framework) {
  Plan plan = offloaded();
  plan.runtime.framework = framework;
  return plan;
}

TEST(HostMemory, Zero1KeepsTheStatesThatARankUpdates) {
  const auto host = host_memory(nodes_of(4, 1), offloaded_by(Framework::Zero1), flat_over_four());
  ASSERT_TRUE(host.has_value());
  // For 1501 elements 6004 bytes in fp32 are a block of 8192, and 3002 in 16 bits one of 4096; of 3004 in 16 bits 8192.
  EXPECT_EQ(terms_of(*host), (Terms{{"fp32 parameters", 4 * 8192},
                                    {"optimizer states", 4 * 2 * 6004},
                                    {"gradients", 4 * 8192},
                                    {"parameters on their way back", 4 * 4096},
                                    {"largest gradient", 4 * 8192},
                                    {"processes", 4 * kProcess}}));
  EXPECT_EQ(host->pinned, Bytes(std::int64_t{4} * (3 * 8192 + 4096)));
}

TEST(HostMemory, Zero2KeepsWholeGradientsOfEarlierMicroBatches) {
  Plan plan = offloaded_by(Framework::Zero2);
  plan.accumulation = 2;
  const auto host = host_memory(nodes_of(4, 1), plan, flat_over_four(true));
  // Ranks 0, 2 and 3 have one parameter, rank 1 has both: blocks of 8192 of 6000 and 6008 bytes.
  EXPECT_EQ(terms_of(*host).at("gradients of earlier micro-batches"), 5 * 8192);
  // The node of ranks 0 and 1 holds most.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(2, 2), plan, flat_over_four(true))).at("gradients of earlier micro-batches"),
            3 * 8192);
  plan.zero.pin_memory = false;
  const auto loose = host_memory(nodes_of(4, 1), plan, flat_over_four(true));
  EXPECT_EQ(terms_of(*loose).at("gradients of earlier micro-batches"), 6000 + 6000 + 6008 + 6008 + 6008);
  EXPECT_EQ(loose->pinned, Bytes(0));
}

TEST(HostMemory, Zero3PinsGradientsAndNotTheFp32Copy) {
  Plan plan = offloaded_by(Framework::Zero3);
  const auto host = host_memory(nodes_of(4, 1), plan, cut_over_four());
  // 3000 and 3004 bytes are blocks of 4096; a sub-group of 751 elements is cast on the host.
  EXPECT_EQ(terms_of(*host), (Terms{{"fp32 parameters", 4 * 6004},
                                    {"optimizer states", 4 * 2 * 6004},
                                    {"gradients", 4 * 2 * 4096},
                                    {"16-bit gradients", 4 * 4096},
                                    {"temporaries", 4 * 1502},
                                    {"processes", 4 * kProcess}}));
  plan.zero.offload_param = true;
  const auto all = host_memory(nodes_of(4, 1), plan, cut_over_four());
  // 3002 bytes in one block, after 1500 and 1502 in blocks of 2048, which PyTorch keeps.
  EXPECT_EQ(terms_of(*all).at("16-bit parameters"), 4 * 4096);
  EXPECT_EQ(terms_of(*all).at("blocks of 16-bit parameters and of gradients that have moved"), 4 * 2 * 2048);
  EXPECT_EQ(terms_of(*all).count("temporaries"), 0u);
}

TEST(HostMemory, NvmeOffloadLeavesBuffers) {
  Plan plan = offloaded_by(Framework::Zero3);
  plan.zero.nvme.optimizer = true;
  // Sub-groups of 3 KB are too small for files, and stay; four buffers of 751 elements, which are 768.
  const auto small = terms_of(*host_memory(nodes_of(4, 1), plan, cut_over_four()));
  EXPECT_EQ(small.at("fp32 parameters"), 4 * 6004);
  EXPECT_EQ(small.at("buffers of the optimizer's files"), 4 * 4 * 4 * 768);
  // 500 times as large both are on the drive: of what is fp32 nothing is left but the moments of a first step.
  Layout layout = cut_over_four();
  layout.zero.begins = {0, 375'000, 750'500};
  layout.zero.elements = 4 * 750'500;
  const auto host = host_memory(nodes_of(4, 1), plan, layout);
  EXPECT_EQ(terms_of(*host), (Terms{{"16-bit gradients", 4 * 2'097'152},
                                    {"buffers of the optimizer's files", 4 * 4 * 4 * 375'552},
                                    {"temporaries", 4 * (2 * 4 + 2) * 375'500},
                                    {"processes", 4 * kProcess}}));
  EXPECT_EQ(host->pinned, Bytes(std::int64_t{4} * 2'097'152));
  plan.zero.nvme.pipeline_read = true;
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, layout)).at("temporaries"),
            4 * (2 * 4 * 750'500 + 2 * 375'500));
}

TEST(HostMemory, AnEngineWithoutStatesNeedsMostWhileItIsMade) {
  Plan plan = offloaded_by(Framework::Zero3);
  plan.optimizer = {.kind = OptimizerKind::Sgd, .weight_decay = 0, .momentum = 0};
  // 6004 bytes in fp32; zeros of the largest sub-group, and of the one that is to be pinned; and blocks of both.
  EXPECT_EQ(terms_of(*host_memory(nodes_of(4, 1), plan, cut_over_four())),
            (Terms{{"model while it is made", 4 * (6004 + 3004 + 3004 + 2 * 4096)}, {"processes", 4 * kProcess}}));
}

}  // namespace
}  // namespace fsdp::simulator
