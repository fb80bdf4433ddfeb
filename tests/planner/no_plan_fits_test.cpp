// "No plan fits" is said where there is none, units inside blocks included.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"
#include "planner/advice/explained_search.h"
#include "planner/search/search.h"
#include "tests/support/search_cases.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

/// What --wrap, --wrap-ends, --reshard, --activation-checkpointing and --offload can ask for, and no search tries by
/// itself.
std::vector<Space> widened(const Space& space) {
  std::vector<Space> spaces;
  for (const std::string wrap : {"blocks", "2", "3", "root", "sublayers", "projections"}) {
    for (const bool ends : {true, false}) {
      Space wide = space;
      wide.every_number = true;
      wide.wrap = *parse_wrap(wrap);
      wide.wrap_ends = ends;
      spaces.push_back(wide);
    }
  }
  return spaces;
}

/// What the plan of these spaces needs that needs least.
std::int64_t least_of(const Case& c, const std::vector<Space>& spaces, const Engine& first) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Space& space : spaces) {
    Case wide = c;
    wide.space = space;
    if (!families_of(space, *build_model(c.spec, c.workload), c.cluster)) continue;
    Engine engine(wide, first);
    for (const Priced& point : price_all(engine, Bytes(least))) least = std::min(least, point.needed);
  }
  return least;
}

/// Whether the step of the answer is shorter by one part in twenty than without expandable segments.
bool saves_a_twentieth(const SearchResult& result, Case c) {
  c.space.may_expand_segments = false;
  const auto usual = search(c.spec, c.workload, c.cluster, c.space);
  return usual && result.best.step < .95 * usual->best.step;
}

bool predicts_offload(const Space& space) {
  if (!torch_version_of(space.base.runtime).predicts_offload) return false;
  return !traits_of(space.base).has_flat_parameters || (*space.shard > 1 && !space.base.fsdp1.use_orig_params);
}

RC_GTEST_PROP(NoPlanFits, IsReportedIfNoWideningFits, ()) {
  Case c = random_case();
  // DDP and ZeRO have one way to wrap and one mesh, so that nothing of them is widened but checkpointing.
  if (!traits_of(c.space.base).wraps_units) c.space.base.runtime.framework = Framework::Fsdp2;
  c.space.base.ddp = {};
  c.space.base.zero = {};
  c.space = Space{.base = c.space.base, .pareto_points = 0, .explain = false};
  c.space.checkpoint_ways = {CheckpointMode::Full};
  // One mesh at a time.
  c.space.shard = *rc::gen::elementOf(shard_sizes(c.cluster));
  c.space.cpu_offload = predicts_offload(c.space) && *rc::gen::arbitrary<bool>();
  struct Widest {
    std::int64_t needed = 0;
    std::string label;
  };
  c.space.may_expand_segments = *rc::gen::arbitrary<bool>();
  Space expanded = c.space;
  expanded.base.runtime.allocator_settings = "expandable_segments:True";
  std::int64_t least_expanded = std::numeric_limits<std::int64_t>::max();
  // The few that need least are told exactly; of the others it is enough to know that they need more.
  constexpr std::size_t kNumLeast = 40;
  std::vector<Widest> points;
  const Engine first(c);
  for (const Space& space : widened(c.space)) {
    Case wide = c;
    wide.space = space;
    const auto families = families_of(space, *build_model(c.spec, c.workload), c.cluster);
    if (!families) continue;  // No block of the model can be cut.
    Engine engine(wide, first);
    const bool is_full = points.size() == kNumLeast;
    for (const Priced& point : price_all(engine, is_full ? Bytes(points.back().needed) : simulator::kWholePrediction)) {
      if (is_full && point.needed > points.back().needed) continue;
      points.push_back({point.needed, label_of(engine.families, engine.cost.plan_point_of(point.box))});
    }
    std::stable_sort(points.begin(), points.end(),
                     [](const Widest& a, const Widest& b) { return a.needed < b.needed; });
    if (points.size() > kNumLeast) points.resize(kNumLeast);
  }
  if (c.space.may_expand_segments) least_expanded = least_of(c, widened(expanded), first);
  for (int i = 0; i < 2; ++i) {
    const auto last = static_cast<int>(points.size());
    const std::int64_t needed = points[*rc::gen::inRange(0, last)].needed;
    const bool is_expanded = c.space.may_expand_segments && *rc::gen::arbitrary<bool>();
    const std::int64_t budget = (is_expanded ? least_expanded : needed) - *rc::gen::element(0, 1, 1 << 10);
    c.cluster.gpu.usable_memory.value = Bytes(budget);
    const auto result = search(c.spec, c.workload, c.cluster, c.space);
    RC_ASSERT(result.has_value());
    RC_LOG() << "needs " << points.front().needed << " of " << budget << ": " << points.front().label << "; found "
             << result->best.label << " short of " << result->best.missing.count() << "; " << least_expanded
             << " with expandable segments\n";
    const bool fits = points.front().needed <= budget;
    const bool fits_expanded = !fits && least_expanded <= budget;
    RC_ASSERT((result->verdict == Verdict::Fits) == (fits || fits_expanded));
    // Where nothing fits, expandable segments are told of only where they save one part in twenty.
    const std::int64_t needed_by_all = points.front().needed;
    const bool is_nearer = least_expanded < needed_by_all && 20 * (needed_by_all - least_expanded) > needed_by_all;
    const bool is_told_expanded = fits_expanded || (!fits && is_nearer);
    const bool is_expanded_plan = !result->best.plan.runtime.allocator_settings.empty();
    const bool is_faster_expanded = fits && is_expanded_plan && saves_a_twentieth(*result, c);
    RC_ASSERT(is_expanded_plan == (is_told_expanded || is_faster_expanded));
    RC_CLASSIFY(fits_expanded, "fits with expandable segments");
    RC_CLASSIFY(result->verdict == Verdict::Fits, "fits");
    if (result->verdict == Verdict::DoesNotFit) {
      const std::int64_t least = is_told_expanded ? least_expanded : needed_by_all;
      RC_ASSERT(result->best.missing == Bytes(least - budget));
    }
  }
}

/// Wide blocks and little else, so that how they are cut decides what fits.
Case wide_blocks_case(Bytes memory) {
  Case c;
  c.spec = small_transformer({.layers = 3, .hidden = 1024, .vocabulary = 256, .batch = 1, .sequence = 16});
  c.cluster = small_cluster(4, 1, memory);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.shard = 4;
  c.space.cpu_offload = false;
  c.space.reshard = ReshardChoice{ReshardAfterForward::Kind::Always, 0, 0};
  c.space.checkpoint = CheckpointChoice{CheckpointMode::Full, {}};
  return c;
}

Bytes least_with(const std::string& wrap) {
  Case c = wide_blocks_case(Bytes(1 << 20));
  c.space.wrap = *parse_wrap(wrap);
  c.space.explain = false;
  return c.cluster.gpu.usable_memory.value + search(c.spec, c.workload, c.cluster, c.space)->best.missing;
}

TEST(NoPlanFits, UnitsInsideBlocksAreFoundIfWholeBlocksDoNotFit) {
  const Bytes least = least_with("projections");
  ASSERT_LT(least, least_with("blocks"));
  Case c = wide_blocks_case(least);
  const auto found = search(c.spec, c.workload, c.cluster, c.space);
  EXPECT_EQ(found->verdict, Verdict::Fits);
  EXPECT_EQ(found->best.label, "FULL_SHARD, per projection, checkpoint 3 of 3");
  // Also where no block is large enough to be cut from the start.
  c.space.parts_from = 1;
  EXPECT_LT(families_of(c.space, *build_model(c.spec), c.cluster)->size(), found->proof.space);
  const auto late = search(c.spec, c.workload, c.cluster, c.space);
  EXPECT_EQ(late->best, found->best);
  EXPECT_EQ(late->proof.space, found->proof.space);
}

TEST(NoPlanFits, UnitsInsideBlocksAreOfferedIfWholeBlocksWereRequested) {
  Case c = wide_blocks_case(least_with("projections"));
  c.space.wrap = Wrap{1, {}};
  const auto none = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_EQ(none->verdict, Verdict::DoesNotFit);
  const auto remedy =
      std::find_if(none->explanation.remedies.begin(), none->explanation.remedies.end(), [](const Remedy& each) {
        return each.change.wrap == std::optional(Wrap{1, {}, BlockParts::Projections});
      });
  ASSERT_NE(remedy, none->explanation.remedies.end());
  EXPECT_EQ(remedy->what, "wrap the projections of each block separately");
  EXPECT_EQ(remedy->verdict, Verdict::Fits);
}

TEST(NoPlanFits, PlanThatFitsByExpandableSegmentsNamesThem) {
  Case c = wide_blocks_case(Bytes(1 << 20));
  c.space.explain = false;
  const auto least = [&](const std::string& settings) {
    Case with = c;
    with.space.base.runtime.allocator_settings = settings;
    return with.cluster.gpu.usable_memory.value + search(c.spec, c.workload, c.cluster, with.space)->best.missing;
  };
  const Bytes enough = least("expandable_segments:True");
  ASSERT_LT(enough, least(""));
  c.cluster.gpu.usable_memory.value = enough;
  EXPECT_EQ(search(c.spec, c.workload, c.cluster, c.space)->verdict, Verdict::DoesNotFit);
  EXPECT_EQ(*has_fitting_plan(c.spec, c.workload, c.cluster, c.space), false);
  c.space.may_expand_segments = true;
  const auto found = search(c.spec, c.workload, c.cluster, c.space);
  EXPECT_EQ(found->verdict, Verdict::Fits);
  EXPECT_EQ(found->best.plan.runtime.allocator_settings, "expandable_segments:True");
  EXPECT_EQ(found->notes.front(),
            "No plan fits without expandable segments: set PYTORCH_ALLOC_CONF=expandable_segments:True, as the plan "
            "says.");
  EXPECT_EQ(*has_fitting_plan(c.spec, c.workload, c.cluster, c.space), true);
}

}  // namespace
}  // namespace fsdp::planner
