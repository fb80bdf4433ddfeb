// The golden cases of PyTorch's own planner of FSDP units, found by our search in its cost model.

#include "tests/support/fsdp_ilp.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace fsdp::planner {
namespace {

constexpr Seconds operator""_ms(long double count) {
  return Seconds(static_cast<double>(count) / 1000);
}

IlpModule module_of(std::string name, int parent, std::int64_t parameters, std::int64_t activations,
                    std::int64_t gradients, std::int64_t activation_gradients, Seconds forward, Seconds backward) {
  return {std::move(name),
          parent,
          Bytes(parameters),
          Bytes(parameters),
          Bytes(activations),
          Bytes(gradients),
          Bytes(activation_gradients),
          forward,
          backward};
}

/// The transformer of test/distributed/_tools/test_fsdp_ilp.py: four layers, world of 4, 0.01 ms and 1e8 bytes per ms.
IlpProblem transformer(double budget_gib) {
  constexpr std::int64_t kLayerActivations[] = {526'525'440, 941'893'632, 1'357'261'824, 1'772'630'016};
  constexpr std::int64_t kLayerGradients[] = {2'265'501'696, 1'812'406'272, 1'359'310'848, 906'215'424};
  constexpr std::int64_t kAttentionActivations[] = {268'559'360, 683'927'552, 1'099'295'744, 1'514'663'936};
  constexpr std::int64_t kAttentionGradients[] = {2'567'577'600, 2'114'482'176, 1'661'386'752, 1'208'291'328};
  // As in that file: layer 1 has the activations of layer 0.
  constexpr std::int64_t kFeedForwardActivations[] = {526'525'440, 526'525'440, 1'357'261'824, 1'772'630'016};

  IlpProblem problem;
  problem.world_size = 4;
  problem.all_gather = problem.reduce_scatter = {0.01_ms, BytesPerSecond(1e11)};
  problem.budget = Bytes(static_cast<std::int64_t>(budget_gib * (1 << 30)));
  problem.modules.push_back(
      module_of("", -1, 1'960'000'000, 2'683'074'560, 0, 402'665'472, 115.51510375623819_ms, 262.8396350763604_ms));
  for (std::size_t i = 0; i < 4; ++i) {
    const int layer = static_cast<int>(problem.modules.size());
    const std::string name = "layers." + std::to_string(i);
    problem.modules.push_back(module_of(name, 0, 453'095'424, kLayerActivations[i], kLayerGradients[i], 276'836'352,
                                        18.586358962812866_ms, 42.31444884235838_ms));
    problem.modules.push_back(module_of(name + ".attention", layer, 150'994'944, kAttentionActivations[i],
                                        kAttentionGradients[i], 100'663'296, 6.914146061765929_ms,
                                        16.190205050846142_ms));
    problem.modules.push_back(module_of(name + ".feed_forward", layer, 302'051'328, kFeedForwardActivations[i],
                                        kLayerGradients[i], 276'836'352, 11.49012612856017_ms, 25.499871304739376_ms));
  }
  problem.modules.push_back(
      module_of("output", 0, 100'663'296, 2'695'657'472, 0, 125'829'120, 3.7249330481443956_ms, 8.000336731209435_ms));
  return problem;
}

using Names = std::vector<std::string>;

TEST(FsdpIlp, TheSpaceHolds1250Plans) {
  // A layer: nothing, itself, one of two parts, or both: 5. Output: 2. 5^4 * 2.
  EXPECT_EQ(solve_ilp(transformer(4.75))->counts.space, 1250);
}

TEST(FsdpIlp, Case1SplitsTheFirstLayerOnly) {
  const auto solution = solve_ilp(transformer(4.75));
  EXPECT_EQ(solution->units,
            (Names{"layers.0.attention", "layers.0.feed_forward", "layers.1", "layers.2", "layers.3", "output"}));
  EXPECT_NEAR(solution->cost.exposed.count() * 1e3, 3.99998208, 1e-11);
  EXPECT_EQ(solution->cost.peak, Bytes(4'672'410'240));
}

TEST(FsdpIlp, Case2CostsTheUnitsThatAreGiven) {
  IlpProblem problem = transformer(4.75);
  problem.units = Names{"layers.0", "layers.1", "layers.2", "layers.3", "output"};
  const auto solution = solve_ilp(problem);
  EXPECT_EQ(solution->units, *problem.units);
  EXPECT_NEAR(solution->cost.exposed.count() * 1e3, 10.04100864, 1e-11);
  EXPECT_EQ(solution->cost.peak, Bytes(4'672'311'936));
  EXPECT_EQ(solution->counts.space, 1);
}

TEST(FsdpIlp, Case3HasOnePlanThatFits) {
  const auto solution = solve_ilp(transformer(4.0));
  EXPECT_EQ(solution->units, (Names{"layers.0.attention", "layers.0.feed_forward", "layers.1.attention",
                                    "layers.1.feed_forward", "layers.2.attention", "layers.2.feed_forward",
                                    "layers.3.attention", "layers.3.feed_forward", "output"}));
  EXPECT_NEAR(solution->cost.exposed.count() * 1e3, 4.0029312, 1e-11);
  EXPECT_EQ(solution->cost.peak, Bytes(4'274'145'920));
}

TEST(FsdpIlp, BelowTheSmallestPlanNothingFits) {
  IlpProblem problem = transformer(4.0);
  problem.budget = Bytes(4'274'145'919);
  const auto solution = solve_ilp(problem);
  EXPECT_FALSE(solution->units.has_value());
}

TEST(FsdpIlp, NestedAndUnknownUnitsAreErrors) {
  IlpProblem problem = transformer(4.75);
  problem.units = Names{"layers.0", "layers.0.attention"};
  EXPECT_EQ(to_string(solve_ilp(problem).error().at(0)),
            "units: one of them lies inside another. This cost model knows no nested units.");
  problem.units = Names{"layers.9"};
  EXPECT_EQ(to_string(solve_ilp(problem).error().at(0)),
            "layers.9: is not a module below the root. Name one of the modules.");
}

/// All plans, one after the other.
std::optional<IlpCost> brute_force(const IlpProblem& problem) {
  std::vector<std::vector<int>> plans = {{}};
  for (int child = 1; child < static_cast<int>(problem.modules.size()); ++child) {
    if (problem.modules[child].parent != 0) continue;
    std::vector<std::vector<int>> longer;
    for (const auto& plan : plans) {
      for (const auto& set : ilp_unit_sets(problem, child)) {
        longer.push_back(plan);
        longer.back().insert(longer.back().end(), set.begin(), set.end());
      }
    }
    plans = longer;
  }
  std::optional<IlpCost> best;
  for (const auto& plan : plans) {
    const IlpCost cost = ilp_cost(problem, plan);
    if (cost.peak <= problem.budget && (!best || cost.exposed < best->exposed)) best = cost;
  }
  return best;
}

RC_GTEST_PROP(FsdpIlp, TheSearchFindsWhatBruteForceFinds, ()) {
  IlpProblem problem = transformer(1);
  problem.budget = Bytes(*rc::gen::inRange<std::int64_t>(4'200'000'000, 6'000'000'000));
  problem.all_gather.bandwidth = BytesPerSecond(*rc::gen::element(3e10, 1e11, 3e11));
  problem.reduce_scatter.bandwidth = BytesPerSecond(*rc::gen::element(1e10, 1e11, 5e11));
  for (IlpModule& module : problem.modules) {
    module.forward *= *rc::gen::inRange(1, 100) * 0.02;
    module.backward *= *rc::gen::inRange(1, 100) * 0.02;
  }
  const auto solution = solve_ilp(problem);
  const auto best = brute_force(problem);
  RC_ASSERT(solution->units.has_value() == best.has_value());
  if (best) RC_ASSERT(solution->cost.exposed == best->exposed);
  std::int64_t counted = solution->counts.evaluated;
  for (const std::int64_t count : solution->counts.too_large) counted += count;
  for (const std::int64_t count : solution->counts.too_slow) counted += count;
  RC_ASSERT(counted == solution->counts.space);
}

}  // namespace
}  // namespace fsdp::planner
