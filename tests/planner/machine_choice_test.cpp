// Which of several machines is best: by the sample, each with the plan that naming it alone gives.

#include "planner/request/machine_choice.h"
#include "planner/advice/explained_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace fsdp::planner {
namespace {

const std::string kLibraryFolder = "model_specs";

/// For a model of 200 kB, so that what differs is the machines. 8 samples on each GPU.
PlanRequest small_request() {
  PlanRequest request{.model = "mlp"};
  request.choices.batch = 8;
  return request;
}

CompareOptions brief() {
  return {.explain = false, .pareto_points = 0};
}

std::vector<std::pair<int, int>> numbers_of(const MachineRange& range) {
  std::vector<std::pair<int, int>> numbers;
  for (const MachineSize& size : sizes_of(range)) numbers.emplace_back(size.gpus.value_or(0), size.nodes.value_or(0));
  return numbers;
}

using Numbers = std::vector<std::pair<int, int>>;  // GPUs of a node, nodes; 0: left open.

TEST(MachineSizes, AreAllPairsOfTheGivenNumbers) {
  EXPECT_EQ(numbers_of({.gpus = {8, 4}}), (Numbers{{4, 0}, {8, 0}}));
  EXPECT_EQ(numbers_of({.gpus = {4, 8}, .nodes = {1, 2}}), (Numbers{{4, 1}, {8, 1}, {4, 2}, {8, 2}}));
  EXPECT_EQ(numbers_of({.gpus = {4, 4}}), (Numbers{{4, 0}}));
  EXPECT_EQ(numbers_of({.gpu_names = {"T4"}}), (Numbers{{0, 0}}));
}

TEST(MachineSizes, UpToALimitAreTheRentableOnes) {
  EXPECT_EQ(numbers_of({.at_most = 6}), (Numbers{{1, 1}, {2, 1}, {4, 1}}));
  EXPECT_EQ(numbers_of({.at_most = 32}), (Numbers{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {8, 2}, {8, 4}}));
  EXPECT_EQ(numbers_of({.gpus = {4}, .at_most = 12}), (Numbers{{4, 1}, {4, 2}}));
  EXPECT_EQ(numbers_of({.nodes = {2}, .at_most = 8}), (Numbers{{1, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(numbers_of({.gpus = {4, 8}, .nodes = {1, 2}, .at_most = 8}), (Numbers{{4, 1}, {8, 1}, {4, 2}}));
  EXPECT_TRUE(sizes_of({.gpus = {8}, .at_most = 4}).empty());
  EXPECT_EQ(sizes_of({.at_most = 2147483647}).size(), 4U + 27U);  // 8 x 2^27 GPUs are the most below 2^31.
}

TEST(CompareMachines, EachHasThePlanOfItsOwnSearch) {
  const auto compared =
      compare_machines(small_request(), {.gpu_names = {"T4", "L4"}, .gpus = {1, 4}}, kLibraryFolder, brief());
  ASSERT_TRUE(compared) << to_string(compared.error().front());
  ASSERT_EQ(compared->machines.size(), 4U);
  for (const ComparedMachine& machine : compared->machines) {
    PlanRequest alone = small_request();
    alone.choices = with_change(alone.choices, machine.change);
    auto request = resolve(alone, kLibraryFolder);
    ASSERT_TRUE(request);
    request->space.explain = false;
    const auto found = search(request->spec, request->workload, request->cluster, request->space);
    ASSERT_TRUE(found);
    EXPECT_EQ(machine.name, request->cluster.name);
    EXPECT_EQ(machine.step, found->best.step) << machine.name;
    EXPECT_EQ(machine.device_peak, found->best.device_peak) << machine.name;
    EXPECT_EQ(machine.samples, 64 * machine.gpus) << "as many as the model's spec has, in micro-batches of 8";
  }
}

TEST(CompareMachines, TheBestOneHasMostSamplesASecondOrTheCheapest) {
  const MachineRange range{.gpu_names = {"T4", "L4"}, .gpus = {1, 4}};
  CompareOptions options = brief();
  const auto fastest = compare_machines(small_request(), range, kLibraryFolder, options);
  ASSERT_TRUE(fastest);
  const auto is_faster = [](const ComparedMachine& a, const ComparedMachine& b) {
    return a.samples_per_second() > b.samples_per_second();
  };
  EXPECT_TRUE(std::is_sorted(fastest->machines.begin(), fastest->machines.end(), is_faster));
  EXPECT_EQ(fastest->result.report.time.step, fastest->machines.front().step);
  EXPECT_EQ(fastest->request.cluster.name, fastest->machines.front().name);

  // Where one costs a hundred times as much, it is not the cheapest, however fast it is.
  for (const auto& [dear, cheap] : {std::pair("T4", "L4"), std::pair("L4", "T4")}) {
    options.objective = MachineObjective::Cost;
    options.prices = {{dear, 100}, {"", 1}};
    const auto compared = compare_machines(small_request(), range, kLibraryFolder, options);
    ASSERT_TRUE(compared);
    EXPECT_TRUE(compared->machines.front().name.ends_with(cheap)) << compared->machines.front().name;
    for (const ComparedMachine& machine : compared->machines) {
      const double per_hour = (machine.name.ends_with(dear) ? 100. : 1.) * static_cast<double>(machine.gpus);
      EXPECT_EQ(machine.price_per_hour, per_hour);
      EXPECT_DOUBLE_EQ(machine.price_per_sample().value_or(0) * 3600 * machine.samples_per_second(), per_hour);
    }
  }
}

TEST(CompareMachines, FittingMachinesComeFirst) {
  PlanRequest request{.model = "qwen3_1_7b"};
  request.choices.shard = 2;
  request.choices.cpu_offload = false;
  const auto compared =
      compare_machines(request, {.gpu_names = {"T4", "H100 SXM"}, .gpus = {1, 2}}, kLibraryFolder, brief());
  ASSERT_TRUE(compared) << to_string(compared.error().front());
  ASSERT_EQ(compared->machines.size(), 4U);
  EXPECT_EQ(compared->machines[0].name, "2x H100 SXM");
  EXPECT_EQ(compared->machines[0].verdict, Verdict::Fits);
  EXPECT_EQ(compared->machines[1].name, "2x T4");
  EXPECT_EQ(compared->machines[1].verdict, Verdict::DoesNotFit);
  EXPECT_GT(compared->machines[1].needed, compared->machines[1].budget);
  for (const std::size_t i : {2U, 3U}) EXPECT_NE(compared->machines[i].why_not.find("--shard"), std::string::npos);
}

TEST(CompareMachines, NearestMachineComesFirstIfNoneFits) {
  PlanRequest request{.model = "llama3_1_8b"};
  const auto compared = compare_machines(request, {.gpu_names = {"T4"}, .gpus = {1, 2}}, kLibraryFolder, brief());
  ASSERT_TRUE(compared) << to_string(compared.error().front());
  EXPECT_EQ(compared->result.verdict, Verdict::DoesNotFit);
  EXPECT_LT(compared->machines[0].needed, compared->machines[1].needed);
  EXPECT_EQ(compared->result.report.memory.peaks.device, compared->machines[0].device_peak);
}

Errors errors_of(const PlanRequest& request, const MachineRange& range, CompareOptions options = brief()) {
  const auto compared = compare_machines(request, range, kLibraryFolder, options);
  return compared ? Errors() : compared.error();
}

TEST(CompareMachines, ReportsEachErrorOnce) {
  PlanRequest unknown{.model = "lama"};
  const Errors both = errors_of(unknown, {.gpu_names = {"H1000", "T4"}, .gpus = {1, 2}});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].where, "lama");
  EXPECT_EQ(both[1].where, "--gpu");
  const Errors limit = errors_of(small_request(), {.gpu_names = {"T4"}, .gpus = {8}, .at_most = 4});
  ASSERT_EQ(limit.size(), 1U);
  EXPECT_EQ(limit[0].where, "--at-most");
}

TEST(CompareMachines, PricesAreOfMachinesThatAreCompared) {
  CompareOptions options = brief();
  options.objective = MachineObjective::Cost;
  const MachineRange two{.gpu_names = {"T4", "L4"}, .gpus = {1}};
  options.prices = {{"T4", 0.5}};
  const Errors missing = errors_of(small_request(), two, options);
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(to_string(missing[0]),
            "--price: The price of L4 is missing. Write the price of one GPU per hour: --price \"L4=1.5\".");
  options.prices = {{"T4", 0.5}, {"L4", 0.5}, {"V100 32GB SXM", 2}};
  const Errors idle = errors_of(small_request(), two, options);
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_NE(idle[0].what.find("is not among the machines"), std::string::npos) << to_string(idle[0]);
  // GPU-seconds of one kind of GPU compare without a price.
  options.prices = {};
  EXPECT_TRUE(errors_of(small_request(), {.gpu_names = {"T4"}, .gpus = {1, 2}}, options).empty());
}

TEST(CompareMachines, StoppedSearchEndsTheComparison) {
  CompareOptions options = brief();
  options.search.should_stop = [] { return true; };
  EXPECT_EQ(errors_of(small_request(), {.gpu_names = {"T4"}, .gpus = {1, 2}}, options).size(), 1U);
}

}  // namespace
}  // namespace fsdp::planner
