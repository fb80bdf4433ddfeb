#include "planner/request/fit.h"
#include "planner/advice/explained_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/report/device_verdict.h"
#include "planner/search/search.h"

namespace fsdp::planner {

namespace {

const std::string kShipped = "model_specs";

TEST(LargestThatFits, IsTheLargestForAnyGuess) {
  for (const std::size_t num_sizes : {1, 2, 3, 17, 100}) {
    for (std::size_t num_fitting = 0; num_fitting <= num_sizes; ++num_fitting) {
      for (std::size_t guess = 0; guess < num_sizes + 2; guess += 1 + guess / 3) {
        std::set<std::size_t> asked;
        const auto found = largest_that_fits(num_sizes, guess, [&](std::size_t index) -> Result<bool> {
          EXPECT_LT(index, num_sizes);
          EXPECT_TRUE(asked.insert(index).second) << "asked twice: " << index;
          return index < num_fitting;
        });
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(*found ? **found + 1 : 0, num_fitting) << num_sizes << " sizes, from " << guess;
        EXPECT_LE(static_cast<double>(asked.size()), 2 * std::log2(num_sizes) + 2);
      }
    }
  }
}

TEST(LargestThatFits, RightGuessTakesTwoTrials) {
  int num_asked = 0;
  const auto found = largest_that_fits(1000, 400, [&](std::size_t index) -> Result<bool> {
    ++num_asked;
    return index <= 400;
  });
  EXPECT_EQ(**found, 400U);
  EXPECT_EQ(num_asked, 2);
}

TEST(LargestThatFits, ErrorEndsTheSearch) {
  const auto found = largest_that_fits(8, 0, [](std::size_t index) -> Result<bool> {
    if (index == 0) return true;
    return failure("", "stopped", "");
  });
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().front().what, "stopped");
}

/// Whether a search finds a plan.
bool is_found(PlanChoices choices, const std::string& model) {
  const auto request = resolve({.model = model, .choices = std::move(choices)}, kShipped);
  EXPECT_TRUE(request.has_value());
  Space space = request->space;
  space.explain = false;
  space.pareto_points = 0;
  space.room = Room::Spare;  // A figure has room to spare.
  const auto found = search(request->spec, request->workload, request->cluster, space);
  EXPECT_TRUE(found.has_value());
  return has_room(found->report);
}

TEST(WhatFits, EachFigureFitsAndTheNextLargerDoesNot) {
  PlanRequest request{.model = "gpt2", .choices = {.gpus = 2}};
  const auto table = what_fits(request, kShipped, {.gpu_names = {"L4", "T4"}});
  ASSERT_TRUE(table.has_value());
  ASSERT_EQ(table->rows.size(), 2U);
  EXPECT_EQ(table->rows[0].gpu, "T4");  // By memory, whatever the order of the names.
  for (const FitRow& row : table->rows) {
    ASSERT_EQ(row.micro_batch.size(), 2U);
    for (std::size_t i = 0; i < table->modes.size(); ++i) {
      PlanChoices choices = row.choices;
      choices.checkpoint = table->modes[i].checkpoint;
      choices.batch = row.micro_batch[i].size;
      EXPECT_TRUE(is_found(choices, "gpt2")) << row.machine << table->modes[i].name << *choices.batch;
      ++*choices.batch;
      EXPECT_FALSE(is_found(choices, "gpt2")) << row.machine << table->modes[i].name << *choices.batch;
      // All of GPT-2's positions fit.
      EXPECT_EQ(row.sequence[i], (LargestSize{1024, true}));
    }
  }
}

TEST(WhatFits, FollowsTheUsersChoices) {
  PlanRequest request{.model = "gpt2", .choices = {.gpus = 2, .gpu_name = "L4"}};
  request.choices.checkpoint = CheckpointChoice{CheckpointMode::Full, 6};
  request.choices.sequence = 512;
  request.choices.batch = 4;
  const auto table = what_fits(request, kShipped);
  ASSERT_TRUE(table.has_value());
  ASSERT_EQ(table->modes.size(), 1U);
  EXPECT_EQ(table->modes[0].name, "full:6");
  EXPECT_EQ(table->sequence, 512);
  EXPECT_EQ(table->micro_batch, 4);
  PlanChoices more = table->rows[0].choices;
  more.checkpoint = request.choices.checkpoint;
  more.batch = table->rows[0].micro_batch[0].size + 1;
  EXPECT_FALSE(is_found(more, "gpt2"));
}

TEST(WhatFits, UnknownNameIsAnError) {
  const PlanRequest request{.model = "gpt2", .choices = {.gpus = 2}};
  const auto table = what_fits(request, kShipped, {.gpu_names = {"L4", "X9"}});
  ASSERT_FALSE(table.has_value());
  EXPECT_NE(table.error().front().what.find("X9"), std::string::npos);
}

TEST(WhatFits, OffloadsToTheHostAsASearchDoes) {
  const PlanRequest request{.model = "qwen3_1_7b", .choices = {.gpus = 1, .gpu_name = "L4"}};
  PlanChoices on_gpu = request.choices;
  on_gpu.cpu_offload = false;
  on_gpu.batch = 1;
  ASSERT_FALSE(is_found(on_gpu, "qwen3_1_7b"));
  ASSERT_TRUE(is_found(request.choices, "qwen3_1_7b"));
  const auto table = what_fits(request, kShipped);
  ASSERT_TRUE(table.has_value());
  const FitRow& row = table->rows[0];
  EXPECT_TRUE(row.is_offloaded);
  EXPECT_EQ(row.choices.cpu_offload, true);
  ASSERT_TRUE(row.trains());
  PlanChoices choices = row.choices;
  choices.checkpoint = table->modes[1].checkpoint;
  choices.batch = row.micro_batch[1].size;
  EXPECT_TRUE(is_found(choices, "qwen3_1_7b"));
  ++*choices.batch;
  EXPECT_FALSE(is_found(choices, "qwen3_1_7b"));
}

TEST(WhatFits, SizesBeyondTheWorkLimitStayOpen) {
  const PlanRequest request{.model = "gpt2", .choices = {.gpus = 2, .gpu_name = "L4"}};
  FitOptions options;
  const auto whole = what_fits(request, kShipped, options);
  options.most_work = 1;
  const auto cut = what_fits(request, kShipped, options);
  ASSERT_TRUE(whole.has_value() && cut.has_value());
  for (std::size_t i = 0; i < whole->modes.size(); ++i) {
    const LargestSize known = whole->rows[0].micro_batch[i];
    const LargestSize found = cut->rows[0].micro_batch[i];
    EXPECT_FALSE(known.is_open);
    EXPECT_TRUE(found.is_open || found == known);
    EXPECT_LE(found.size, known.size);
  }
}

TEST(WhatFits, TooLargeModelHasNoFigures) {
  PlanRequest request{.model = "llama3_1_70b", .choices = {.gpus = 1, .gpu_name = "L4"}};
  request.choices.cpu_offload = false;
  const auto table = what_fits(request, kShipped);
  ASSERT_TRUE(table.has_value());
  for (const auto& sizes : {table->rows[0].micro_batch, table->rows[0].sequence}) {
    for (const LargestSize& size : sizes) EXPECT_EQ(size.size, 0);
  }
}

}  // namespace

}  // namespace fsdp::planner
