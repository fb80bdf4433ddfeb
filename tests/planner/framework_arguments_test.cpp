// Which arguments of a framework are tried, and what is said of them.

#include "planner/space/framework_arguments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"

namespace fsdp::planner {
namespace {

Plan plan_of(Framework framework) {
  Plan plan;
  plan.runtime.framework = framework;
  if (traits_of(plan).zero_stage > 0) plan.zero = default_zero_options(framework);
  return plan;
}

bool are_distinct(const std::vector<FrameworkArguments>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::count(all.begin(), all.end(), all[i]) != 1) return false;
  }
  return true;
}

TEST(FrameworkArguments, ThoseOfThePlanComeFirst) {
  for (const Framework framework : {Framework::Fsdp2, Framework::Fsdp1, Framework::Ddp, Framework::Zero1,
                                    Framework::Zero2, Framework::Zero3, Framework::SimpleFsdp}) {
    const Plan plan = plan_of(framework);
    const std::vector<FrameworkArguments> all = arguments_to_search(plan);
    EXPECT_EQ(all.front(), arguments_of(plan));
    EXPECT_TRUE(are_distinct(all));
    EXPECT_TRUE(texts_of_arguments(framework, all.front()).empty());
    EXPECT_EQ(all.size() == 1, framework == Framework::Fsdp2 || framework == Framework::SimpleFsdp);
  }
}

// Three buckets; with the smallest, what DeepSpeed keeps is let go as well, then nothing gathered ahead either, and
// then nothing of the parameters stays; at last the optimizer is on a drive, in sub-groups whose buffers are small.
TEST(FrameworkArguments, Zero3SearchesReusePrefetchAndPersistence) {
  const std::vector<FrameworkArguments> all = arguments_to_search(plan_of(Framework::Zero3));
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(all[3].max_reuse_distance, 0);
  EXPECT_GT(all[3].prefetch_bucket_size, 0);
  EXPECT_EQ(all[4].prefetch_bucket_size, 0);
  EXPECT_EQ(all[4].reduce_bucket_size, 5'000'000);
  EXPECT_FALSE(all[4].offload_param);
  EXPECT_TRUE(all[5].offload_param);
  EXPECT_TRUE(all[5].overlap_comm);
  EXPECT_FALSE(all[6].overlap_comm);
  EXPECT_FALSE(all[6].drive);
  EXPECT_TRUE(all[7].drive && all[7].offload_param && all[7].overlap_comm);
  EXPECT_EQ(all[7].sub_group_size, 100'000'000);
  EXPECT_TRUE(all[8].drive && !all[8].overlap_comm);
}

// In two nodes of four or more, what is gathered twice may be kept in each node.
TEST(FrameworkArguments, SeveralNodesAddHpz) {
  const std::vector<FrameworkArguments> all = arguments_to_search(plan_of(Framework::Zero3), 16, 8);
  ASSERT_EQ(all.size(), 10U);
  EXPECT_EQ(all[4].hpz_partition_size, 8);
  EXPECT_EQ(all[4].max_reuse_distance, 0);
  EXPECT_EQ(all[5].hpz_partition_size, 1);
  EXPECT_EQ(texts_of_arguments(Framework::Zero3, all[4]).back(), "hpz_partition_size 8");
  EXPECT_EQ(arguments_to_search(plan_of(Framework::Zero3), 8, 8).size(), 9U);
  EXPECT_EQ(arguments_to_search(plan_of(Framework::Zero3), 2, 1).size(), 9U);
  EXPECT_TRUE(suits(all[4], 32, 8));
  EXPECT_FALSE(suits(all[4], 32, 4));
  EXPECT_FALSE(suits(all[4], 12, 8));
}

TEST(FrameworkArguments, RequestedHpzExcludesParameterOffload) {
  Plan plan = plan_of(Framework::Zero3);
  plan.zero.hpz_partition_size = 2;
  for (const FrameworkArguments& arguments : arguments_to_search(plan, 4, 2)) {
    EXPECT_FALSE(arguments.offload_param && arguments.hpz_partition_size > 1);
  }
}

TEST(FrameworkArguments, RequestedParameterOffloadExcludesHpz) {
  Plan plan = plan_of(Framework::Zero3);
  plan.cpu_offload = plan.zero.offload_param = true;
  for (const FrameworkArguments& arguments : arguments_to_search(plan, 4, 2)) {
    EXPECT_EQ(arguments.hpz_partition_size, 1);
  }
}

TEST(FrameworkArguments, QuantizedWeightsExcludeParameterOffload) {
  Plan plan = plan_of(Framework::Zero3);
  plan.zero.quantized_weights = true;
  for (const FrameworkArguments& arguments : arguments_to_search(plan, 4, 4)) EXPECT_FALSE(arguments.offload_param);
}

TEST(FrameworkArguments, Torch213AddsAReduceBufferAndItsOwnGroup) {
  Plan plan = plan_of(Framework::Fsdp2);
  set_torch_version(plan.runtime, *find_torch_version("2.13"));
  const std::vector<FrameworkArguments> all = arguments_to_search(plan, 8, 8);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_TRUE(are_distinct(all));
  EXPECT_EQ(all.front(), arguments_of(plan));
  EXPECT_EQ(texts_of_arguments(Framework::Fsdp2, all.back()),
            (std::vector<std::string>{"2 reduce-scatter buffers", "reduce-scatters apart"}));
  for (const FrameworkArguments& arguments : all) {
    set_arguments(plan, arguments);
    EXPECT_EQ(arguments_of(plan), arguments);
  }
  EXPECT_TRUE(are_without_effect(Framework::Fsdp2, {4, 1}, true));
  EXPECT_FALSE(are_without_effect(Framework::Fsdp2, {1, 4}, true));
}

TEST(FrameworkArguments, PlanRoundTripsThem) {
  for (const Framework framework : {Framework::Fsdp1, Framework::Ddp, Framework::Zero3}) {
    for (const FrameworkArguments& arguments : arguments_to_search(plan_of(framework))) {
      Plan plan = plan_of(framework);
      set_arguments(plan, arguments);
      EXPECT_EQ(arguments_of(plan), arguments);
    }
  }
}

TEST(FrameworkArguments, TextsNameOnlyNonDefaults) {
  FrameworkArguments arguments = arguments_of(plan_of(Framework::Zero3));
  arguments.reduce_bucket_size = 5'000'000;
  arguments.max_reuse_distance = 0;
  EXPECT_EQ(texts_of_arguments(Framework::Zero3, arguments),
            (std::vector<std::string>{"reduce_bucket_size 5000000", "max_reuse_distance 0"}));
  arguments = arguments_of(plan_of(Framework::Fsdp1));
  arguments.backward_prefetch = BackwardPrefetch::None;
  EXPECT_EQ(texts_of_arguments(Framework::Fsdp1, arguments), std::vector<std::string>{"backward_prefetch none"});
}

}  // namespace
}  // namespace fsdp::planner
