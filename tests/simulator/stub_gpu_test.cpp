// The memory walk against what the real PyTorch allocated in runs of FSDP2 (tests/golden/stub_gpu): each allocation of
// each phase of the first step and of a steady one, and the peaks.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/memory_phases.h"
#include "tests/support/prepared_plan.h"
#include "tests/support/traced_models.h"

namespace fsdp::simulator {
namespace {

struct RecordedPhase {
  MemoryPhase memory;
  AllocatorPhase allocator;
};

std::vector<RecordedPhase> read_golden(const std::string& name) {
  std::ifstream file("tests/golden/stub_gpu/" + name + ".txt");
  EXPECT_TRUE(file.is_open()) << name;
  std::vector<RecordedPhase> phases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "phase") {
      RecordedPhase& phase = phases.emplace_back();
      words >> phase.memory.name >> phase.memory.peak >> phase.memory.at_end >> phase.allocator.peak_allocated >>
          phase.allocator.peak_reserved;
    } else {
      int stream = 0;
      words >> stream;
      for (std::int64_t bytes = 0; words >> bytes;) {
        char times = 0;
        int count = 0;
        words >> times >> count;
        phases.back().memory.allocations[{stream, bytes}] = count;
      }
    }
  }
  return phases;
}

enum class Family { Llama, Gpt2, Vit };

struct Drawn {
  std::string name;
  Family family = Family::Llama;
  TracedSizes sizes;
  Plan plan;
  int compute_capability = 90;
  std::int64_t rank = 0;  // In the shard group.
};

Model build(const Drawn& of) {
  switch (of.family) {
    case Family::Llama:
      return traced_llama(of.sizes);
    case Family::Gpt2:
      return traced_gpt2(of.sizes);
    default:
      return traced_vit(of.sizes);
  }
}

// Every block and the root a unit, bf16 compute, fp32 reduction, the modules of plain PyTorch.
Plan plan_of(const Mesh& mesh, std::int64_t layers,
             ReshardAfterForward::Kind reshard = ReshardAfterForward::Kind::Always) {
  Plan plan;
  plan.mesh = mesh;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    plan.units.push_back({{"blocks." + std::to_string(layer)}, {reshard, 0}});
  }
  plan.units.push_back({{""}, {reshard, 0}});
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  plan.runtime.implementations.rms_norm = RmsNormImplementation::Fused;
  plan.runtime.implementations.rotary = RotaryImplementation::HalvesSeqFirst;
  return plan;
}

void checkpoint(Plan& plan, std::int64_t layers, CheckpointMode mode) {
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    plan.checkpointing.entries.push_back({"blocks." + std::to_string(layer), mode});
  }
}

// Every phase after initialization. `constants` are the bytes of tables that were made before training, of which a
// model spec knows nothing. Allocations and live bytes must be equal. Blocks and segments depend on what was freed
// before: the recorded runs made and dropped tables and copies of shards first, which the walk does not.
void expect_equal(const Drawn& of, std::int64_t constants, double reserved_tolerance = 0.015) {
  const std::vector<RecordedPhase> golden = read_golden(of.name);
  const PreparedRun run(build(of), of.plan, of.compute_capability, of.rank);
  const std::vector<MemoryPhase> ours = walk_phases(run.prepared(), 2);
  const std::vector<AllocatorPhase> peaks = allocate_phases(run.prepared(), 2, of.plan.runtime.allocator_settings);
  ASSERT_EQ(ours.size(), golden.size());
  for (std::size_t p = 1; p < golden.size(); ++p) {
    SCOPED_TRACE(of.name + " " + golden[p].memory.name);
    EXPECT_EQ(ours[p].name, golden[p].memory.name);
    EXPECT_EQ(differences(golden[p].memory, ours[p]), "");
    EXPECT_EQ(ours[p].peak + constants, golden[p].memory.peak);
    EXPECT_EQ(ours[p].at_end + constants, golden[p].memory.at_end);
    const auto near = [&](std::int64_t got, std::int64_t wanted, double tolerance) {
      EXPECT_NEAR(static_cast<double>(got) / static_cast<double>(wanted), 1, tolerance);
    };
    near(peaks[p].peak_allocated + constants, golden[p].allocator.peak_allocated, 0.003);
    near(peaks[p].peak_reserved, golden[p].allocator.peak_reserved, reserved_tolerance);
  }
}

// cos and sin, [seq, head_dim] each.
std::int64_t rotary_tables(const TracedSizes& sizes) {
  return 2 * 2 * sizes.seq * sizes.head_dim();
}

TEST(StubGpu, LlamaOnSixRanksInMixedPrecision) {
  const TracedSizes sizes{.kv_heads = 4};
  expect_equal({.name = "llama_fsdp6_mixed", .sizes = sizes, .plan = plan_of({1, 6}, 6)}, rotary_tables(sizes));
}

TEST(StubGpu, LastRankWithoutReshardAndWithFusedOptimizer) {
  const TracedSizes sizes{.kv_heads = 4};
  Plan plan = plan_of({1, 6}, 6, ReshardAfterForward::Kind::Never);
  plan.optimizer.implementation = OptimizerImplementation::Fused;
  expect_equal({.name = "llama_fsdp6_no_reshard_fused", .sizes = sizes, .plan = plan, .rank = 5}, rotary_tables(sizes),
               0.022);
}

TEST(StubGpu, SelectiveCheckpointingClippingAndExpandableSegments) {
  const TracedSizes sizes{.kv_heads = 4, .seq = 2048};
  Plan plan = plan_of({1, 16}, 6);
  plan.mixed_precision.reduce_dtype = Dtype::BFloat16;
  plan.optimizer.clip_grad_norm = 1.0;
  plan.runtime.allocator_settings = "expandable_segments:True";
  checkpoint(plan, 6, CheckpointMode::Selective);
  expect_equal({.name = "llama_fsdp16_ac_op_clip_expandable", .sizes = sizes, .plan = plan}, rotary_tables(sizes));
}

TEST(StubGpu, HybridShardingAccumulatesThreeMicroBatchesWithoutSync) {
  const TracedSizes sizes{.kv_heads = 4, .batch = 1};
  Plan plan = plan_of({4, 2}, 6);
  plan.accumulation = 3;
  plan.sync_every_micro_batch = false;
  expect_equal({.name = "llama_hsdp_4x2_accumulate3", .sizes = sizes, .plan = plan, .rank = 1}, rotary_tables(sizes));
}

TEST(StubGpu, AFrozenEmbeddingAndHalfOfTheBlocks) {
  const TracedSizes sizes{.kv_heads = 4, .frozen = {"embed", "blocks.0.", "blocks.1.", "blocks.2."}};
  expect_equal({.name = "llama_fsdp4_frozen_embed_and_half", .sizes = sizes, .plan = plan_of({1, 4}, 6)},
               rotary_tables(sizes));
}

TEST(StubGpu, Gpt2WithDropoutAndATiedHead) {
  const TracedSizes sizes{.ffn = 3072, .layers = 12, .vocabulary = 50257, .batch = 4, .dropout = 0.1};
  expect_equal({.name = "gpt2_small_fsdp4", .family = Family::Gpt2, .sizes = sizes, .plan = plan_of({1, 4}, 12)}, 0);
}

TEST(StubGpu, VitHasNoCausalMask) {
  const TracedSizes sizes{.ffn = 3072, .layers = 12, .vocabulary = 1000, .seq = 196, .batch = 64};
  expect_equal({.name = "vit_base_fsdp2", .family = Family::Vit, .sizes = sizes, .plan = plan_of({1, 2}, 12)}, 0);
}

TEST(StubGpu, OnATeslaT4GroupedAttentionTakesTheMathPath) {
  const TracedSizes sizes{.kv_heads = 4, .seq = 512, .turns_first = true};
  Plan plan = plan_of({1, 4}, 6);
  plan.mixed_precision.param_dtype = Dtype::Float16;
  expect_equal({.name = "t4_llama_fsdp4_fp16", .sizes = sizes, .plan = plan, .compute_capability = 75},
               rotary_tables(sizes));
}

const TracedSizes kSmall{
    .hidden = 512, .heads = 8, .kv_heads = 2, .ffn = 1408, .layers = 3, .vocabulary = 8000, .seq = 512};

TEST(StubGpu, WrittenOutNormsComplexRotaryAndRepeatedKeys) {
  Plan plan = plan_of({1, 4}, 3);
  plan.runtime.implementations.rms_norm = RmsNormImplementation::WrittenOut;
  plan.runtime.implementations.rotary = RotaryImplementation::Complex;
  TracedSizes sizes = kSmall;
  sizes.repeat_kv = true;
  expect_equal({.name = "llama_fsdp4_written_out_complex_repeat", .sizes = sizes, .plan = plan},
               8 * kSmall.seq * kSmall.head_dim() / 2);
}

TEST(StubGpu, FullCheckpointingWithNormsOnTheHeads) {
  TracedSizes sizes = kSmall;
  sizes.qk_norm = true;
  Plan plan = plan_of({1, 4}, 3);
  checkpoint(plan, 3, CheckpointMode::Full);
  expect_equal({.name = "llama_fsdp4_full_checkpoint_qk_norm", .sizes = sizes, .plan = plan}, rotary_tables(sizes));
}

TEST(StubGpu, Bf16ThroughoutSgdAndNoEarlyStop) {
  TracedSizes sizes = kSmall;
  sizes.kv_heads = 8;
  sizes.dtype = Dtype::BFloat16;
  Plan plan = plan_of({1, 4}, 3);
  plan.mixed_precision = {};
  plan.checkpointing.early_stop = false;
  plan.optimizer = {.kind = OptimizerKind::Sgd, .weight_decay = 0, .momentum = 0.9};
  checkpoint(plan, 3, CheckpointMode::Full);
  expect_equal({.name = "llama_fsdp4_bf16_sgd_late_stop", .sizes = sizes, .plan = plan}, rotary_tables(sizes));
}

TEST(StubGpu, OffloadToTheHostAndMathAttention) {
  Plan plan = plan_of({1, 4}, 3);
  plan.cpu_offload = true;
  plan.runtime.implementations.attention = AttentionBackend::Math;
  TracedSizes sizes = kSmall;
  sizes.turns_first = true;
  expect_equal({.name = "llama_fsdp4_offload_math", .sizes = sizes, .plan = plan}, rotary_tables(sizes));
}

TEST(StubGpu, MemoryEfficientAttentionAndSplitEnds) {
  TracedSizes sizes = kSmall;
  sizes.kv_heads = 8;
  Plan plan = plan_of({1, 4}, 3);
  plan.units[2].reshard_after_forward.kind = ReshardAfterForward::Kind::Never;
  plan.units.insert(plan.units.begin(), {{"norm", "head"}, {ReshardAfterForward::Kind::Never, 0}});
  plan.units.insert(plan.units.begin(), {{"embed"}, {ReshardAfterForward::Kind::Always, 0}});
  plan.runtime.implementations.attention = AttentionBackend::MemoryEfficient;
  expect_equal({.name = "llama_fsdp4_efficient_split_ends", .sizes = sizes, .plan = plan}, rotary_tables(sizes));
}

}  // namespace
}  // namespace fsdp::simulator
