#include "core/plan/optimizer_table.h"

#include <gtest/gtest.h>

#include <set>

namespace fsdp {
namespace {

TEST(OptimizerTable, EachRowHasItsNamesAndItsPasses) {
  std::set<std::string_view> names;
  for (const OptimizerRow& row : kOptimizerRows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.sentence, "torch.optim." + std::string(row.class_name));
    EXPECT_GT(row.passes.fused, 0) << row.name;
    EXPECT_GE(row.passes.list, row.passes.fused) << row.name;
    // A moment is the second of two, and without moments an update still reads both and writes one.
    EXPECT_TRUE(row.moments[1].empty() || !row.moments[0].empty()) << row.name;
    EXPECT_EQ(row.passes.without_moments > 0, row.moments_need_momentum) << row.name;
  }
}

TEST(OptimizerTable, SgdHasOneMomentWithMomentumAndAdamTwo) {
  EXPECT_EQ(num_moments(Optimizer{.kind = OptimizerKind::Sgd}), 0);
  EXPECT_EQ(num_moments(Optimizer{.kind = OptimizerKind::Sgd, .momentum = 0.9}), 1);
  EXPECT_EQ(num_moments(Optimizer{.kind = OptimizerKind::Adam}), 2);
  EXPECT_EQ(num_moments(Optimizer{.kind = OptimizerKind::AdamW}), 2);
}

TEST(OptimizerTable, OnlyAdamWDecaysInPlace) {
  EXPECT_FALSE(adds_decay(Optimizer{.kind = OptimizerKind::AdamW, .weight_decay = 0.1}));
  EXPECT_TRUE(adds_decay(Optimizer{.kind = OptimizerKind::Adam, .weight_decay = 0.1}));
  EXPECT_TRUE(adds_decay(Optimizer{.kind = OptimizerKind::Sgd, .weight_decay = 0.1}));
  EXPECT_FALSE(adds_decay(Optimizer{.kind = OptimizerKind::Sgd, .weight_decay = 0}));
}

}  // namespace
}  // namespace fsdp
