// The search with the real predictor against brute force with the real predictor.

#include "planner/search/search.h"
#include "planner/advice/explained_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/parse_units.h"
#include "core/plan/framework_traits.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/predictors.h"
#include "planner/search/ties.h"
#include "planner/space/families.h"
#include "render/render_search.h"
#include "render/result_json.h"
#include "tests/support/search_cases.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {
namespace {

const Priced* fastest_within(const std::vector<Priced>& points, std::int64_t budget) {
  const Priced* best = nullptr;
  for (const Priced& point : points) {
    if (point.needed <= budget && (best == nullptr || point.nanoseconds < best->nanoseconds)) best = &point;
  }
  return best;
}

std::int64_t counted(const LevelCounts& counts) {
  return counts.evaluated + std::accumulate(counts.too_large.begin(), counts.too_large.end(), std::int64_t{0}) +
         std::accumulate(counts.too_slow.begin(), counts.too_slow.end(), std::int64_t{0});
}

/// A budget near the points: between the smallest and the largest, or just outside.
std::int64_t random_budget(const std::vector<Priced>& points) {
  const Priced& point = points[*rc::gen::inRange<int>(0, static_cast<int>(points.size()))];
  return point.needed + *rc::gen::inRange(-1, 2) * *rc::gen::element(0, 1, 1 << 20);
}

void finds_the_fastest(const Case& c, const Engine& all, const std::vector<Priced>& points) {
  Engine engine(c, all);
  for (int i = 0; i < 12; ++i) {
    const std::int64_t budget = random_budget(points);
    BranchAndBound search(engine.cost, Objective::Time);
    const auto found = search.next(budget);
    const Priced* best = fastest_within(points, budget);
    RC_ASSERT(found.has_value() == (best != nullptr));
    if (best != nullptr) {
      RC_ASSERT(found->cost.time == best->nanoseconds);
      RC_ASSERT(found->point == best->box);
    }
    RC_ASSERT(search.num_broken_bounds() == 0);
    RC_ASSERT(counted(search.counts()) == static_cast<std::int64_t>(points.size()));
    RC_ASSERT(search.gap() == 0);
  }
}

// Without limits the comparison of ties is a proof, too.
void names_the_one_that_needs_least_of_equally_fast_ones(const Case& c, const Engine& all,
                                                         const std::vector<Priced>& points) {
  Engine engine(c, all);
  for (int i = 0; i < 4; ++i) {
    const std::int64_t budget = random_budget(points);
    const Priced* fastest = fastest_within(points, budget);
    if (fastest == nullptr) continue;
    const auto [named, is_whole] =
        named_among_ties(engine.cost, engine.cost, engine.families,
                         {fastest->box, {fastest->nanoseconds, fastest->needed}}, budget, {}, {}, {1 << 30, 1 << 30});
    RC_ASSERT(is_whole);
    const double latest = fastest->nanoseconds * (1 + kTieShare);
    const Priced* least = fastest;
    for (const Priced& point : points) {
      if (point.nanoseconds <= latest && point.needed < least->needed) least = &point;
    }
    RC_ASSERT(named.cost.time <= latest);
    RC_ASSERT(named.cost.memory <= budget);
    RC_ASSERT(static_cast<double>(named.cost.memory) <= static_cast<double>(least->needed) * (1 + kTieMemoryShare));
    const auto complexity = [&](const Box& box) {
      return complexity_of(engine.families, engine.cost.plan_point_of(box));
    };
    RC_ASSERT(complexity(named.point) <= complexity(least->box));
    // Where one of those that count as equal is said by a trainer, one that is said is named.
    const auto is_said = [](const Plan& plan) { return plan.checkpointing.entries.empty(); };
    const auto said = [&](const Box& box) { return is_said(engine.cost.plan_of(engine.cost.plan_point_of(box))); };
    const double enough = static_cast<double>(least->needed) * (1 + kTieMemoryShare);
    const bool is_any = std::any_of(points.begin(), points.end(), [&](const Priced& point) {
      return point.nanoseconds <= latest && point.needed <= budget && static_cast<double>(point.needed) <= enough &&
             said(point.box);
    });
    const NamedPoint typed = named_among_ties(engine.cost, engine.cost, engine.families,
                                              {fastest->box, {fastest->nanoseconds, fastest->needed}}, budget, {},
                                              is_said, {1 << 30, 1 << 30});
    RC_ASSERT(said(typed.point.point) == is_any);
    RC_ASSERT(static_cast<double>(typed.point.cost.memory) <= enough);
  }
}

void finds_the_smallest(const Case& c, const Engine& all, const std::vector<Priced>& points) {
  Engine engine(c, all);
  SmallestCost memory(engine.cost);
  BranchAndBound search(memory, Objective::Memory);
  const auto found = search.next(std::numeric_limits<std::int64_t>::max());
  RC_ASSERT(search.num_broken_bounds() == 0);
  const auto least = std::min_element(points.begin(), points.end(),
                                      [](const Priced& a, const Priced& b) { return a.needed < b.needed; });
  RC_ASSERT(found->cost.memory == least->needed);
  RC_ASSERT(found->point == least->box);
}

void finds_the_front_of_live_bytes(const Case& c, const Engine& all, std::vector<Priced> points) {
  Engine engine(c, all);
  LiveCost live(engine.cost);
  for (Priced& point : points) {
    const Bound cost = live.bound(point.box, live.num_levels() - 1);
    RC_ASSERT(cost.time == point.nanoseconds);
    point.needed = cost.memory;
  }
  BranchAndBound search(live, Objective::Time);
  std::int64_t budget = std::numeric_limits<std::int64_t>::max();
  for (auto found = search.next(budget); found; found = search.next(budget)) {
    const Priced* best = fastest_within(points, budget);
    RC_ASSERT(best != nullptr);
    RC_ASSERT(found->point == best->box);
    budget = found->cost.memory - found->cost.memory / kParetoStep - 1;
  }
  RC_ASSERT(fastest_within(points, budget) == nullptr);
}

std::string text_of(const Box& box) {
  std::string text = "box";
  for (int i = 0; i < box.num_coordinates; ++i) {
    text += " " + std::to_string(box.ranges[i].first) + ".." + std::to_string(box.ranges[i].last);
  }
  return text;
}

void bounds_boxes_from_below(Engine& engine, const std::vector<Priced>& points) {
  const std::vector<Box> boxes = engine.cost.space();
  for (const Priced& point : points) {
    // A part, around the point, of the box of the space that holds it.
    Box box = *std::find_if(boxes.begin(), boxes.end(), [&](const Box& each) {
      const auto holds = [&](int i) {
        const std::int32_t at = point.box.ranges[i].first;
        return each.ranges[i].first <= at && at <= each.ranges[i].last;
      };
      return each.family == point.box.family && holds(1) && holds(2);
    });
    for (int i = 0; i < 3; ++i) {
      Interval& range = box.ranges[i];
      const std::int32_t at = point.box.ranges[i].first;
      range = {*rc::gen::inRange(range.first, at + 1), *rc::gen::inRange(at, range.last + 1)};
    }
    for (const CostLevel level : {CostLevel::Sums, CostLevel::Order, CostLevel::Time, CostLevel::Live}) {
      const Bound bound = engine.cost.bound(box, static_cast<int>(level));
      if (bound.time <= point.nanoseconds && bound.memory <= point.needed) continue;
      RC_LOG() << label_of(engine.families, engine.cost.plan_point_of(point.box)) << ", level "
               << static_cast<int>(level) << ", in " << text_of(box) << "\n";
      RC_ASSERT(bound.time <= point.nanoseconds);
      RC_ASSERT(bound.memory <= point.needed);
    }
    // Segments of the allocator do not hide what the law is short of.
    const std::int64_t at_least = engine.cost.needed_at_least(point.box);
    RC_ASSERT(at_least <= point.needed);
    RC_LOG() << "needed: " << label_of(engine.families, engine.cost.plan_point_of(point.box)) << ", in " << text_of(box)
             << "\n";
    RC_ASSERT(engine.cost.needed_at_least(box) <= at_least);
    // A row of the box, of one point in ten.
    for (int i = 0; i < 3 && (&point - points.data()) % 10 == 0; ++i) {
      Box row = box;
      row.ranges[i] = point.box.ranges[i];
      RC_ASSERT(engine.cost.needed_at_least(row) <= at_least);
    }
  }
}

// One property, because brute force is dear: 100 models, of which every plan is predicted.
RC_GTEST_PROP(Search, AnswersAsBruteForceDoes, ()) {
  const Case c = random_case();
  Engine engine(c);
  const std::vector<Priced> points = price_all(engine);
  bounds_boxes_from_below(engine, points);
  finds_the_fastest(c, engine, points);
  finds_the_smallest(c, engine, points);
  names_the_one_that_needs_least_of_equally_fast_ones(c, engine, points);
  finds_the_front_of_live_bytes(c, engine, points);
}

// The short way to a plan's reserved memory, against the allocator with all that it keeps count of.
RC_GTEST_PROP(Search, QuickPredictionEqualsTheFullOneInReservedMemory, ()) {
  Case c = random_case();
  c.space.base.runtime.allocator_settings =
      *rc::gen::element("", "", "large_segment_size_mb:64", "expandable_segments:True");
  Engine engine(c);
  const std::vector<Box> boxes = engine.cost.space();
  for (int i = 0; i < 20; ++i) {
    Box box = boxes[*rc::gen::inRange<std::size_t>(0, boxes.size())];
    for (Interval& range : box.ranges) range.first = range.last = *rc::gen::inRange(range.first, range.last + 1);
    const Plan plan = plan_of(c.space.base, engine.families, engine.cost.plan_point_of(box));
    simulator::Predictor& predictor = engine.cost.predictor_of(engine.cost.plan_point_of(box));
    const auto whole = predictor.evaluate(plan, simulator::Detail::Memory);
    const Bytes needed = whole->peaks.device + whole->margin;
    const Bytes enough = *rc::gen::element(simulator::kWholePrediction, needed, needed - Bytes(1), Bytes(1 << 20));
    const auto is = predictor.evaluate(plan, simulator::Detail::Memory, enough);
    const auto found = predictor.evaluate(plan, simulator::Detail::Device, enough);
    RC_ASSERT(found->peaks.reserved == is->peaks.reserved);
    RC_ASSERT(found->peaks.device == is->peaks.device);
    RC_ASSERT(found->margin == is->margin);
    RC_ASSERT(found->fits == is->fits);
    RC_ASSERT(found->is_whole == is->is_whole);
    // What cuDNN takes for convolutions is added to the margin where the walk has ended.
    const bool has_convolutions = c.spec.name != "small";
    const bool may_be_whole = enough >= needed || has_convolutions;
    RC_ASSERT((found->is_whole ? may_be_whole : enough < needed));
  }
}

// What a predictor keeps from one plan for the next changes no answer.
RC_GTEST_PROP(Search, UsedPredictorAnswersLikeANewOne, ()) {
  const Case c = random_case();
  Engine engine(c);
  const std::vector<Box> boxes = engine.cost.space();
  for (int i = 0; i < 4; ++i) {
    Box box = boxes[*rc::gen::inRange<std::size_t>(0, boxes.size())];
    for (Interval& range : box.ranges) range.first = range.last = *rc::gen::inRange(range.first, range.last + 1);
    const PlanPoint plan_point = engine.cost.plan_point_of(box);
    const Plan plan = plan_of(c.space.base, engine.families, plan_point);
    simulator::Predictor& used = engine.cost.predictor_of(plan_point);
    simulator::Predictor fresh(used.model(), c.cluster);
    for (const simulator::Detail detail :
         {simulator::Detail::Device, simulator::Detail::Live, simulator::Detail::Time, simulator::Detail::Memory}) {
      const simulator::Outcome is = *used.evaluate(plan, detail);
      const simulator::Outcome expected = *fresh.evaluate(plan, detail);
      RC_ASSERT(is.step == expected.step);
      RC_ASSERT(is.exposed_communication == expected.exposed_communication);
      RC_ASSERT(is.peaks == expected.peaks);
      RC_ASSERT(is.device_lower_bound == expected.device_lower_bound);
      RC_ASSERT(is.own_lower_bound == expected.own_lower_bound);
    }
  }
}

TEST(Search, TheProofAddsUpToTheSpace) {
  const Case c = standard_case(kPlenty);
  const auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->verdict, Verdict::Fits);
  std::int64_t counted = result->proof.evaluated;
  for (const RuledOut& ruled_out : result->proof.ruled_out) counted += ruled_out.plans;
  EXPECT_EQ(counted, result->proof.space);
  EXPECT_GT(result->proof.space, 1000);
  EXPECT_FALSE(result->proof.stopped_early);
  EXPECT_TRUE(result->proof.is_proven);
  EXPECT_LE(result->proof.optimality_gap, kTieShare);
}

TEST(Search, ABrokenBoundProvesNothing) {
  const Case c = standard_case(kPlenty);
  auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  const auto claims = [&] {
    const std::string text = to_text(render::document_of(*result, render::View{.verbose = true}, {}), text::Terminal{});
    return text.find("no plan of the space") != std::string::npos;
  };
  EXPECT_TRUE(claims());
  EXPECT_EQ(render::to_json(*result, &c.cluster).find("\"optimality_gap\": null"), std::string::npos);
  result->proof.is_proven = false;
  EXPECT_FALSE(claims());
  EXPECT_NE(render::to_json(*result, &c.cluster).find("\"optimality_gap\": null"), std::string::npos);
}

TEST(Search, NotesTiesThatALimitLeftUncompared) {
  const Case c = standard_case(kPlenty);
  auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  const auto says = [&](std::string_view text) {
    return to_text(render::document_of(*result, render::View{.verbose = true}, {}), text::Terminal{.width = 999})
               .find(text) != std::string::npos;
  };
  result->proof.compared_ties = true;
  EXPECT_FALSE(says("another as fast may need"));
  EXPECT_NE(render::to_json(*result, &c.cluster).find("\"compared_ties\": true"), std::string::npos);
  result->proof.compared_ties = false;
  EXPECT_TRUE(says("another as fast may need"));
  EXPECT_NE(render::to_json(*result, &c.cluster).find("\"compared_ties\": false"), std::string::npos);
}

TEST(Search, UnprovenMissIsNotReportedAsNoPlanFits) {
  const Case c = standard_case(Bytes(64 << 20));
  auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  ASSERT_EQ(result->verdict, Verdict::DoesNotFit);
  const auto label = [&] {
    return to_text(render::document_of(*result, render::View{.verbose = true}, {}), text::Terminal{}).substr(0, 12);
  };
  EXPECT_TRUE(no_plan_fits(*result));
  EXPECT_EQ(label(), "NO PLAN FITS");
  result->proof.is_proven = false;
  EXPECT_FALSE(no_plan_fits(*result));
  EXPECT_EQ(label(), "DOES NOT FIT");
}

TEST(Search, FrontTradesMemoryForTimeAndEndsWithTheBestPlan) {
  const Case c = standard_case(kPlenty);
  const auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  ASSERT_GE(result->pareto.size(), 2U);
  for (std::size_t i = 1; i < result->pareto.size(); ++i) {
    EXPECT_LT(result->pareto[i - 1].device_peak, result->pareto[i].device_peak);
    // Nobody gives memory for less than what counts as equally fast.
    if (i + 1 < result->pareto.size()) {
      EXPECT_GT(result->pareto[i - 1].step, result->pareto[i].step * (1 + kTieShare));
    }
    EXPECT_GT(result->pareto[i - 1].step, result->pareto[i].step);
  }
  EXPECT_EQ(result->pareto.back(), result->best);
}

TEST(Search, NamesTheGainOfTheFastestPlanFromOnePercent) {
  int told = 0;
  for (const std::int64_t mib : {900, 1000, 1200, 1500, 2000, 3000}) {
    Case c = standard_case(Bytes(mib << 20));
    // With more ways to checkpoint the plan that is named comes close to the fastest.
    c.space.checkpoint_ways = {CheckpointMode::Full, CheckpointMode::Selective};
    const SearchResult result = *search(c.spec, c.workload, c.cluster, c.space);
    EXPECT_EQ(result.refinement.empty(), result.proof.optimality_gap < 0.01) << mib;
    if (result.refinement.empty()) continue;
    ++told;
    const std::string begin = fmt::format("{:.1f} % faster with", result.proof.optimality_gap * 100);
    EXPECT_EQ(result.refinement.find("with without"), std::string::npos) << result.refinement;
    EXPECT_TRUE(result.refinement.starts_with(begin)) << result.refinement;
    EXPECT_NE(result.refinement.find(format_bytes(result.proof.saved) + " more"), std::string::npos);
  }
  EXPECT_GT(told, 0);
}

TEST(Search, NoFitNamesTheSmallestPlanAndItsShortfall) {
  const Case c = standard_case(Bytes(600 << 20));
  const auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->verdict, Verdict::DoesNotFit);
  EXPECT_GT(result->best.missing, Bytes(0));
  EXPECT_TRUE(result->pareto.empty());
  EXPECT_EQ(result->report.plan, result->best.plan);
  // With what it misses it fits.
  const Case larger = standard_case(Bytes(600 << 20) + result->best.missing);
  EXPECT_EQ(search(larger.spec, larger.workload, larger.cluster, larger.space)->verdict, Verdict::Fits);
}

TEST(Search, TheSameInputGivesTheSameResult) {
  const Case c = standard_case(Bytes(1LL << 30));
  EXPECT_EQ(*search(c.spec, c.workload, c.cluster, c.space), *search(c.spec, c.workload, c.cluster, c.space));
}

TEST(Search, ReportIsOfTheRequestedRank) {
  Case c = standard_case(kPlenty);
  // 8190 rows over 4 ranks: 2048 on the first three, 2046 on the last.
  c.spec = small_transformer({.layers = 2, .hidden = 512, .vocabulary = 8190, .batch = 4, .sequence = 512});
  c.space.shard = 4;
  c.space.cpu_offload = false;
  const auto states_of = [&](std::int64_t rank) {
    const auto result = search(c.spec, c.workload, c.cluster, c.space, {.rank = rank});
    return result->report.memory.at_peak[static_cast<std::size_t>(MemoryCategory::OptState)];
  };
  EXPECT_EQ(states_of(2), states_of(0));
  EXPECT_LT(states_of(3), states_of(0));
  const auto outside = search(c.spec, c.workload, c.cluster, c.space, {.rank = 4});
  ASSERT_FALSE(outside.has_value());
  EXPECT_EQ(outside.error().front().what, "There is no rank 4 in a world of 4.");
}

// A family of the front that is too large is ruled out as a whole, and not point by point.
TEST(Search, FrontWalksAFamilyOnceIfNoneOfItFits) {
  const Case c = standard_case(kPlenty);
  Engine engine(c);
  LiveCost live(engine.cost);
  BranchAndBound search(live, Objective::Time);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Box& box : engine.cost.space()) least = std::min(least, engine.cost.needed_at_least(box));
  const std::int64_t asked = engine.cost.asked().live;
  EXPECT_FALSE(search.next(least - 1).has_value());
  EXPECT_GT(search.counts().space, 2 * asked);
  EXPECT_EQ(engine.cost.asked().live, asked);
}

TEST(Search, GlobalBatchIsSplitIntoMicroBatches) {
  Case c = standard_case(kPlenty);
  c.space.global_batch = 32;  // 8 for each of 4 GPUs: 8 x 1, 4 x 2, 2 x 4 or 1 x 8.
  const auto result = search(c.spec, c.workload, c.cluster, c.space);
  ASSERT_TRUE(result.has_value());
  double batch = 0;
  for (const Dimension& dimension : result->best.plan.dimensions) {
    if (dimension.name == "batch") batch = dimension.value;
  }
  EXPECT_EQ(batch * static_cast<double>(result->best.plan.accumulation), 8);
}

// ---- every rank ----------------------------------------------------------------------------------------------------

// Rows that do not divide, optimizers with and without states: the shards of ranks differ, and so do their peaks.
Case uneven_case() {
  Case c = random_case();
  c.spec = small_transformer({.layers = 2,
                              .hidden = *rc::gen::element(64, 192),
                              .vocabulary = *rc::gen::element(257, 1000, 4099),
                              .batch = *rc::gen::inRange(1, 4),
                              .sequence = *rc::gen::element(16, 128),
                              .mixed_precision = *rc::gen::arbitrary<bool>()});
  const auto [gpus, nodes] = *rc::gen::element(std::pair(3, 1), std::pair(5, 1), std::pair(4, 2), std::pair(3, 2));
  c.cluster = small_cluster(gpus, nodes, kPlenty);
  const Plan drawn = std::exchange(c.space.base, *base_plan(c.spec, c.workload));
  if (traits_of(drawn).zero_stage > 0) {
    Plan& base = c.space.base;
    base.runtime = drawn.runtime;
    base.zero = drawn.zero;
    // DeepSpeed quantizes nothing that is cut into uneven parts.
    base.zero.quantized_weights = base.zero.quantized_gradients = false;
    base.parameter_dtype = drawn.parameter_dtype;
    base.mixed_precision = drawn.mixed_precision;
    base.sync_every_micro_batch = drawn.sync_every_micro_batch;
    c.space.shard = world_size(c.cluster);
  }
  c.space.samples_per_gpu.reset();
  if (*rc::gen::arbitrary<bool>()) {
    c.space.base.optimizer = {.kind = OptimizerKind::Sgd, .weight_decay = 0, .momentum = 0};
  }
  const auto initialization = *rc::gen::element(Initialization::Meta, Initialization::Cpu);
  if (traits_of(c.space.base).zero_stage != 3) c.space.base.initialization = initialization;
  return c;
}

RC_GTEST_PROP(Search, PeakOfAPlanIsThatOfItsWorstRank, ()) {
  const Case c = uneven_case();
  Engine engine(c);
  const std::vector<Box> boxes = engine.cost.space();
  simulator::Predictor& predictor = engine.predictors->of(0);
  for (int i = 0; i < 5; ++i) {
    Box box = boxes[*rc::gen::inRange<std::size_t>(0, boxes.size())];
    for (Interval& range : box.ranges) range.first = range.last = *rc::gen::inRange(range.first, range.last + 1);
    const Plan plan = plan_of(c.space.base, engine.families, engine.cost.plan_point_of(box));
    Bytes most;
    std::int64_t worst = 0;
    for (std::int64_t rank = 0; rank < world_size(c.cluster); ++rank) {
      const Result<StepReport> of_rank = predictor.report(plan, rank);
      RC_ASSERT(of_rank.has_value());
      const Bytes needed = of_rank->memory.peaks.device + of_rank->memory.margin;
      if (needed > most) worst = rank;
      most = std::max(most, needed);
    }
    RC_CLASSIFY(worst > 0, "another rank needs more than rank 0");
    const auto told = predictor.report(plan);
    RC_ASSERT(told.has_value());
    RC_ASSERT(told->memory.peaks.device + told->memory.margin == most);
    RC_ASSERT(told->memory.rank == worst);
    // All wait for the slowest, whichever rank needs most memory.
    RC_ASSERT(told->time.step == predictor.evaluate(plan, simulator::Detail::Time)->step);
    for (const simulator::Detail detail : {simulator::Detail::Device, simulator::Detail::Memory}) {
      const auto found = predictor.evaluate(plan, detail);
      RC_ASSERT(found.has_value());
      RC_ASSERT(found->peaks.device + found->margin == most);
      RC_ASSERT(found->margin == told->memory.margin);
    }
  }
}

TEST(Search, PlanThatFitsOnlyRankZeroDoesNotFit) {
  // 1000 rows over 3 ranks are 334, 334 and 332: to_empty makes the last rank's shard once more to pad it, and without
  // states of the optimizer that is the most it ever holds.
  Case c;
  c.spec = small_transformer({.layers = 1, .hidden = 192, .vocabulary = 100000, .batch = 1, .sequence = 16});
  c.cluster = small_cluster(3, 1, kPlenty);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.base.optimizer = {.kind = OptimizerKind::Sgd, .weight_decay = 0, .momentum = 0};
  c.space.shard = 3;
  c.space.cpu_offload = false;
  const auto free = search(c.spec, c.workload, c.cluster, c.space);
  const Plan& plan = free->best.plan;
  simulator::Predictor predictor(*build_model(c.spec, c.workload), c.cluster);
  const MemoryReport first = predictor.report(plan, 0)->memory;
  const MemoryReport last = predictor.report(plan, 2)->memory;
  ASSERT_GT(last.peaks.device, first.peaks.device);
  EXPECT_EQ(free->report.memory.rank, 2);
  EXPECT_EQ(free->report.memory.peaks, last.peaks);
  EXPECT_EQ(free->report.time.step, free->best.step);
  // A device that is large enough for rank 0 and not for the last one.
  c.cluster.gpu.usable_memory.value = first.peaks.device + first.margin;
  simulator::Predictor small(*build_model(c.spec, c.workload), c.cluster);
  EXPECT_FALSE(small.evaluate(plan, simulator::Detail::Device)->fits);
  const auto found = search(c.spec, c.workload, c.cluster, c.space);
  EXPECT_NE(found->best.plan, plan);
}

// ---- host memory ---------------------------------------------------------------------------------------------------

// A model that is offloaded, on devices with plenty of memory.
Case offloading_case(std::optional<Bytes> host_memory) {
  Case c;
  c.spec = small_transformer({.layers = 4, .hidden = 1024, .vocabulary = 65536, .batch = 1, .sequence = 16});
  c.cluster = small_cluster(4, 1, kPlenty);
  if (host_memory) c.cluster.host_memory = {*host_memory, Provenance::Given, "--host-mem"};
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.cpu_offload = true;
  return c;
}

TEST(Search, OffloadMustFitTheNode) {
  const Case unknown = offloading_case(std::nullopt);
  const auto free = search(unknown.spec, unknown.workload, unknown.cluster, unknown.space);
  ASSERT_EQ(free->verdict, Verdict::Fits);
  ASSERT_TRUE(free->best.plan.cpu_offload);
  ASSERT_TRUE(free->report.memory.host.has_value());
  const HostMemory& host = *free->report.memory.host;
  EXPECT_FALSE(host.budget.has_value());

  const Bytes all = host.needed + host.margin;
  const Case enough = offloading_case(all);
  EXPECT_EQ(search(enough.spec, enough.workload, enough.cluster, enough.space)->best, free->best);

  const Case little = offloading_case(Bytes(1LL << 30));
  const auto none = search(little.spec, little.workload, little.cluster, little.space);
  EXPECT_EQ(none->verdict, Verdict::DoesNotFit);
  EXPECT_EQ(none->report.verdict, Verdict::DoesNotFit);
  EXPECT_EQ(none->best.missing, Bytes(0));  // On the devices nothing lacks.
  EXPECT_GT(none->report.memory.host->missing(), Bytes(0));
  std::int64_t counted = none->proof.evaluated;
  bool names_host = false;
  for (const RuledOut& ruled_out : none->proof.ruled_out) {
    counted += ruled_out.plans;
    names_host = names_host || ruled_out.reason == "too large, by host memory";
  }
  EXPECT_EQ(counted, none->proof.space);
  const auto families = families_of(whole(little.space), *build_model(little.spec, little.workload), little.cluster);
  EXPECT_EQ(none->proof.space, families->size());
  EXPECT_TRUE(names_host);
  // A node that can be had is offered, and holds it.
  const auto remedy = std::find_if(none->explanation.remedies.begin(), none->explanation.remedies.end(),
                                   [](const Remedy& each) { return each.change.host_memory.has_value(); });
  ASSERT_NE(remedy, none->explanation.remedies.end());
  EXPECT_EQ(remedy->verdict, Verdict::Fits);
}

TEST(Search, SmallHostGetsAPlanWithoutOffload) {
  Case c = standard_case(kPlenty);
  c.cluster.host_memory = {Bytes(1 << 20), Provenance::Given, "--host-mem"};
  const auto result = search(c.spec, c.workload, c.cluster, c.space);
  EXPECT_EQ(result->verdict, Verdict::Fits);
  EXPECT_FALSE(result->report.memory.host.has_value());
}

}  // namespace
}  // namespace fsdp::planner
