// The search over a captured model: that of the spec which it was made from, in the ways that were recorded.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/spec/captured_model.h"
#include "planner/advice/explained_search.h"
#include "planner/search/search.h"
#include "tests/support/recorded_model.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

constexpr SmallTransformer kSizes{
    .layers = 6, .hidden = 512, .heads = 8, .vocabulary = 4096, .batch = 8, .sequence = 512, .mixed_precision = false};

Model model_of_batch(int batch, const Cluster& cluster) {
  SmallTransformer sizes = kSizes;
  sizes.batch = batch;
  auto model = build_model(small_transformer(sizes));
  Plan plan;
  return recorded_model(*model, {plan}, cluster.gpu);
}

ModelSpec captured(const std::vector<Model>& points) {
  auto spec = parse_model_spec(captured_text(points), "small.model.json");
  if (!spec) ADD_FAILURE() << to_string(spec.error().front());
  return spec.value_or(ModelSpec{});
}

Result<SearchResult> search_for(const ModelSpec& spec, const Cluster& cluster, std::int64_t samples = 0) {
  Space space;
  auto base = base_plan(spec, {});
  space.base = *base;
  space.checkpoint_ways = {CheckpointMode::Full};
  if (samples > 0) space.global_batch = samples;
  return search(spec, {}, cluster, space, {});
}

TEST(CapturedSearch, FindsThePlanOfTheSpec) {
  const ModelSpec spec = small_transformer(kSizes);
  int checkpointed = 0;
  for (const std::int64_t mebibytes : {700, 800, 900, 1100, 4000}) {
    SCOPED_TRACE(mebibytes);
    const Cluster cluster = small_cluster(4, 1, Bytes(mebibytes << 20));
    const auto wanted = search_for(spec, cluster);
    const auto found = search_for(captured({model_of_batch(kSizes.batch, cluster)}), cluster);
    ASSERT_TRUE(wanted.has_value() && found.has_value());
    EXPECT_EQ(found->verdict, wanted->verdict);
    EXPECT_EQ(found->best.plan.units, wanted->best.plan.units);
    EXPECT_EQ(found->best.plan.mesh, wanted->best.plan.mesh);
    EXPECT_EQ(found->best.plan.checkpointing, wanted->best.plan.checkpointing);
    EXPECT_EQ(found->best.plan.cpu_offload, wanted->best.plan.cpu_offload);
    EXPECT_EQ(found->report.memory.peaks, wanted->report.memory.peaks);
    EXPECT_EQ(found->report.time, wanted->report.time);
    checkpointed += found->best.plan.checkpointing.entries.empty() ? 0 : 1;
  }
  // Else the budgets say nothing about recomputation.
  EXPECT_GT(checkpointed, 0);
  EXPECT_LT(checkpointed, 5);
}

TEST(CapturedSearch, TriesTheMicroBatchesThatWereCaptured) {
  const Cluster cluster = small_cluster(4, 1, Bytes(std::int64_t{4} << 30));
  const ModelSpec spec = captured({model_of_batch(2, cluster), model_of_batch(4, cluster)});
  const auto found = search_for(spec, cluster, 64);
  ASSERT_TRUE(found.has_value());
  const Dimension* batch = find_dimension(found->best.plan.dimensions, "batch");
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->value, 4);
  EXPECT_EQ(found->best.plan.accumulation, 4);
  const auto none = search_for(spec, cluster, 4);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(to_string(none.error().front()),
            "dimension batch: small was not captured with batch 1, seq 512. It was with batch 2, seq 512; batch 4, seq "
            "512: take one of these, or capture the script with other sizes.");
}

// Reducing once a step is faster, and a script has to say which micro-batch is the last one.
TEST(CapturedSearch, ReducesEveryMicroBatchIfTheScriptMarksNoLast) {
  const Cluster cluster = small_cluster(4, 1, Bytes(std::int64_t{4} << 30));
  ModelSpec spec = captured({model_of_batch(4, cluster)});
  const auto found = search_for(spec, cluster, 64);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->best.plan.accumulation, 4);
  EXPECT_TRUE(found->best.plan.sync_every_micro_batch);
  auto changed = std::make_shared<CapturedModel>(*spec.captured);
  changed->points.front().says_last_micro_batch = true;
  spec.captured = std::move(changed);
  const auto faster = search_for(spec, cluster, 64);
  ASSERT_TRUE(faster.has_value());
  EXPECT_FALSE(faster->best.plan.sync_every_micro_batch);
}

/// The same, trained by Muon: all matrices of its layers.
ModelSpec with_muon(ModelSpec spec) {
  auto changed = std::make_shared<CapturedModel>(*spec.captured);
  for (Model& model : changed->points) {
    for (Parameter& parameter : model.parameters) {
      parameter.is_muon = parameter.shape.size() == 2 && parameter.name.find("layers.") != std::string::npos;
    }
  }
  spec.captured = std::move(changed);
  spec.recipes[0].optimizer.muon.emplace();
  return spec;
}

TEST(CapturedSearch, FindsPlansOfMuonWithinItsBounds) {
  int fitting = 0;
  for (const std::int64_t mebibytes : {500, 600, 700, 900, 4000}) {
    SCOPED_TRACE(mebibytes);
    const Cluster cluster = small_cluster(4, 1, Bytes(mebibytes << 20));
    const ModelSpec plain = captured({model_of_batch(kSizes.batch, cluster)});
    const auto found = search_for(with_muon(plain), cluster);
    const auto usual = search_for(plain, cluster);
    ASSERT_TRUE(found.has_value() && usual.has_value());
    EXPECT_FALSE(found->best.plan.cpu_offload);
    EXPECT_TRUE(found->proof.is_proven);
    if (found->verdict != Verdict::Fits) continue;
    ++fitting;
    // One moment for each matrix in the place of two; the products take their time.
    if (found->best.plan.mesh == usual->best.plan.mesh && found->best.plan.units == usual->best.plan.units) {
      EXPECT_GT(found->report.time.step, usual->report.time.step);
    }
    const auto sent = std::count_if(found->report.traffic.collectives.begin(), found->report.traffic.collectives.end(),
                                    [](const Collective& each) { return each.phase == StepPhase::Optimizer; });
    EXPECT_EQ(sent > 0, found->best.plan.mesh.dp_shard() > 1);
  }
  EXPECT_GT(fitting, 0);
}

TEST(CapturedSearch, DoesNotCheckpointBlocksRecordedWithout) {
  const Cluster cluster = small_cluster(4, 1, Bytes(std::int64_t{700} << 20));
  Model model = model_of_batch(kSizes.batch, cluster);
  for (Block& block : model.blocks) {
    std::erase_if(block.recorded->tapes, [](const RecordedTape& tape) { return tape.checkpointed; });
  }
  const auto found = search_for(captured({model}), cluster);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->best.plan.checkpointing.entries.empty());
  ASSERT_FALSE(found->notes.empty());
  EXPECT_EQ(found->notes.front(),
            "Activation checkpointing was not searched: the capture has no recording of it in this precision.");
}

}  // namespace
}  // namespace fsdp::planner
