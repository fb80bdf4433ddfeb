#include "core/plan/optimizer_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

TEST(OptimizerTable, EachRowHasItsNamesAndItsPasses) {
  std::set<std::string_view> names;
  for (const OptimizerRow& row : kOptimizerRows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.sentence.ends_with("." + std::string(row.class_name))) << row.name;
    EXPECT_EQ(row.sentence.starts_with("torch.optim."), row.library.empty()) << row.name;
    // A refusal says what works instead.
    for (const OptimizerRefusal& refusal : {row.on_dtensors, row.on_16_bit_dtensors, row.on_host})
      EXPECT_EQ(refusal.why.empty(), refusal.hint.empty()) << row.name;
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

TEST(OptimizerTable, LibrariesCodeLargeMomentsInBlocks) {
  const auto bytes = [](OptimizerKind kind, std::int64_t elements) {
    const MomentBytes moment = moment_bytes({.kind = kind}, elements, 2);
    return moment.values + moment.scales + moment.table;
  };
  // A byte for each element, and 4 for each 256, begun ones included; below 4096 elements fp32.
  EXPECT_EQ(bytes(OptimizerKind::BnbAdamW8bit, 4096), 4096 + 4 * 16);
  EXPECT_EQ(bytes(OptimizerKind::BnbAdamW8bit, 4097), 4097 + 4 * 17);
  EXPECT_EQ(bytes(OptimizerKind::BnbLion8bit, 4095), 4 * 4095);
  EXPECT_EQ(bytes(OptimizerKind::BnbPagedAdamW, 4096), 4 * 4096);
  // torchao codes whole blocks alone, and the rest is like the parameter, of 2 bytes here. Each has a table.
  EXPECT_EQ(bytes(OptimizerKind::AoAdamW8bit, 4096), 4096 + 4 * 16 + 1024);
  EXPECT_EQ(bytes(OptimizerKind::AoAdamW8bit, 4097), 2 * 4097);
  EXPECT_EQ(bytes(OptimizerKind::AoAdamW4bit, 4096), 2048 + 4 * 32 + 64);
  EXPECT_EQ(bytes(OptimizerKind::AoAdamWFp8, 4096), 4096 + 4 * 16);
}

TEST(OptimizerTable, MomentsOfPagedOptimizersArePagedFrom100000ElementsOn) {
  EXPECT_TRUE(pages_moment({.kind = OptimizerKind::BnbPagedAdamW8bit}, 100'000));
  EXPECT_FALSE(pages_moment({.kind = OptimizerKind::BnbPagedAdamW8bit}, 99'999));
  EXPECT_FALSE(pages_moment({.kind = OptimizerKind::BnbAdamW8bit}, 100'000));
}

TEST(OptimizerTable, MuonTrainsTheWeightsOfLinearLayersInBlocks) {
  const Model model = model_of("llama3_2_1b.json");
  // 16 blocks of seven: q, k, v, o, gate, up, down. Embeddings are tied to the head, and norms are vectors.
  int matrices = 0;
  for (const Parameter& parameter : model.parameters) {
    matrices += parameter.is_muon ? 1 : 0;
    EXPECT_EQ(parameter.is_muon, parameter.name.ends_with("_proj.weight")) << parameter.name;
  }
  EXPECT_EQ(matrices, 16 * 7);
}

TEST(OptimizerTable, EightBitsOfEarlierFilesAreAnOptimizerOfBitsandbytes) {
  Optimizer optimizer{.kind = OptimizerKind::Adam, .implementation = OptimizerImplementation::Fused};
  use_8_bit_states(optimizer, optimizer_row(optimizer).in_8_bits);
  EXPECT_EQ(optimizer, (Optimizer{.kind = OptimizerKind::BnbAdam8bit}));
}

}  // namespace
}  // namespace fsdp
