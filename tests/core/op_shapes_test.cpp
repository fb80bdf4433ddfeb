#include "core/model/op_shapes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/model/op_table.h"

namespace fsdp {
namespace {

using Shapes = std::vector<Shape>;

/// One call of a rule and what must come out.
struct Example {
  OpAttributes attributes = {};
  Shapes inputs = {};
  Shapes parameters = {};
  Shape requested = {};
  int num_outputs = 1;
  Shapes outputs = {};
};

Result<Shapes> infer(OpKind kind, const Example& example) {
  return infer_output_shapes(kind, example.attributes,
                             OpShapes{.inputs = example.inputs,
                                      .parameters = example.parameters,
                                      .requested = example.requested,
                                      .num_outputs = example.num_outputs});
}

using Examples = std::map<OpKind, Example>;

/// Ops with parameters or a kernel, attention and experts.
const Examples& layer_examples() {
  static const Examples all = {
      {OpKind::Linear, {.inputs = {{2, 3, 4}}, .parameters = {{5, 4}, {5}}, .outputs = {{2, 3, 5}}}},
      {OpKind::Embedding, {.inputs = {{2, 3}}, .parameters = {{100, 4}}, .outputs = {{2, 3, 4}}}},
      // floor((10 + 2 * 1 - 2 * (3 - 1) - 1) / 2) + 1 = 4
      {OpKind::Conv1d,
       {.attributes = {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .groups = 2},
        .inputs = {{2, 4, 10}},
        .parameters = {{6, 2, 3}, {6}},
        .outputs = {{2, 6, 4}}}},
      // floor((224 - 16) / 16) + 1 = 14
      {OpKind::Conv2d,
       {.attributes = {.kernel = 16, .stride = 16},
        .inputs = {{2, 3, 224, 224}},
        .parameters = {{768, 3, 16, 16}},
        .outputs = {{2, 768, 14, 14}}}},
      {OpKind::Parameter, {.parameters = {{1, 1, 4}}, .outputs = {{1, 1, 4}}}},
      {OpKind::RmsNorm, {.inputs = {{2, 3, 4}}, .parameters = {{4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::LayerNorm, {.inputs = {{2, 3, 4}}, .parameters = {{4}, {4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::GroupNorm,
       {.attributes = {.groups = 2}, .inputs = {{2, 4, 8, 8}}, .parameters = {{4}, {4}}, .outputs = {{2, 4, 8, 8}}}},
      {OpKind::BatchNorm, {.inputs = {{2, 4, 8, 8}}, .parameters = {{4}, {4}}, .outputs = {{2, 4, 8, 8}}}},
      {OpKind::RotaryTable, {.attributes = {.head_dim = 8}, .inputs = {{1, 3}}, .outputs = {{1, 3, 8}, {1, 3, 8}}}},
      {OpKind::Rotary,
       {.inputs = {{2, 3, 4, 8}, {2, 3, 2, 8}, {1, 3, 8}, {1, 3, 8}}, .outputs = {{2, 3, 4, 8}, {2, 3, 2, 8}}}},
      {OpKind::Attention,
       {.attributes = {.packed = PackedAttention::FlashAttn, .documents = {2, 1}},
        .inputs = {{1, 3, 4, 8}, {1, 3, 2, 8}, {1, 3, 2, 8}, {3}, {3}},
        .outputs = {{1, 3, 32}}}},
      {OpKind::CausalConv1d, {.inputs = {{2, 3, 4}}, .parameters = {{4, 1, 5}, {4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::DecayRate, {.inputs = {{2, 3, 4}}, .parameters = {{4}, {4}}, .outputs = {{2, 3, 4}}}},
      // Two heads of queries and keys of 8, and four of values: 2 * 2 * 8 + 4 * 5 = 52.
      {OpKind::GatedDeltaRule,
       {.attributes = {.heads = 4, .kv_heads = 2, .head_dim = 8, .length = 64},
        .inputs = {{2, 3, 52}, {2, 3, 4}, {2, 3, 4}},
        .outputs = {{2, 3, 4, 5}}}},
      // Four heads of 5, and two groups that write and read states of 3: 4 * 5 + 2 * 2 * 3 = 32.
      {OpKind::StateSpace,
       {.attributes = {.heads = 4, .head_dim = 5, .length = 64, .groups = 2},
        .inputs = {{2, 3, 32}, {2, 3, 4}},
        .parameters = {{4}, {4}, {4}},
        .outputs = {{2, 3, 20}}}},
      {OpKind::GatedRmsNorm, {.inputs = {{2, 3, 4}, {2, 3, 4}}, .parameters = {{4}}, .outputs = {{2, 3, 4}}}},
  };
  return all;
}

const Examples& other_examples() {
  static const Examples all = {
      {OpKind::Silu, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Gelu, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Relu, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Sigmoid, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Tanh, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Mul, {.inputs = {{2, 3, 4}, {2, 3, 1}}, .outputs = {{2, 3, 4}}}},
      {OpKind::Add, {.inputs = {{2, 3, 4}, {1, 3, 4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::Sub, {.inputs = {{2, 3, 4}, {4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::Scale, {.inputs = {{}}, .outputs = {{}}}},
      {OpKind::Softcap, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::LigerGlu, {.inputs = {{2, 3}, {2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::LowRank, {.inputs = {{2, 3}, {2, 5}}, .parameters = {{4, 5}, {3, 4}}, .outputs = {{2, 3}}}},
      {OpKind::Dropout, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Cast, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Detach, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Reshape, {.inputs = {{2, 3, 4}}, .requested = {6, 4}, .outputs = {{6, 4}}}},
      {OpKind::Transpose, {.attributes = {.dim = 1, .other_dim = -1}, .inputs = {{2, 3, 4}}, .outputs = {{2, 4, 3}}}},
      {OpKind::Slice,
       {.attributes = {.dim = 1, .start = 2, .length = 3}, .inputs = {{2, 5, 4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::Select, {.attributes = {.dim = 1, .start = 4}, .inputs = {{2, 5, 4}}, .outputs = {{2, 4}}}},
      {OpKind::Expand, {.inputs = {{1, 1, 4}}, .requested = {2, 1, 4}, .outputs = {{2, 1, 4}}}},
      {OpKind::Split,
       {.attributes = {.dim = -1}, .inputs = {{2, 6}}, .num_outputs = 3, .outputs = {{2, 2}, {2, 2}, {2, 2}}}},
      {OpKind::Contiguous, {.inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::SetSlice,
       {.attributes = {.dim = 1, .start = 4}, .inputs = {{2, 5, 3}, {2, 1, 3}}, .outputs = {{2, 5, 3}}}},
      {OpKind::KvCache,
       {.inputs = {{2, 5, 3, 8}, {2, 5, 3, 8}}, .num_outputs = 2, .outputs = {{2, 5, 3, 8}, {2, 5, 3, 8}}}},
      {OpKind::Cat, {.attributes = {.dim = 1}, .inputs = {{2, 1, 4}, {2, 5, 4}}, .outputs = {{2, 6, 4}}}},
      {OpKind::Stack, {.attributes = {.dim = 1}, .inputs = {{2, 4}, {2, 4}, {2, 4}}, .outputs = {{2, 3, 4}}}},
      {OpKind::Index, {.attributes = {.dim = 0}, .inputs = {{7, 4}, {2, 3}}, .outputs = {{2, 3, 4}}}},
      {OpKind::Pad, {.attributes = {.dim = -1, .length = 12}, .inputs = {{2, 10}}, .outputs = {{2, 12}}}},
      {OpKind::Softmax, {.attributes = {.dim = -1}, .inputs = {{2, 3}}, .outputs = {{2, 3}}}},
      {OpKind::Mean, {.attributes = {.keep_dim = true, .dim = 1}, .inputs = {{2, 3, 4}}, .outputs = {{2, 1, 4}}}},
      {OpKind::Sum, {.attributes = {.dim = 1}, .inputs = {{2, 3, 4}}, .outputs = {{2, 4}}}},
      {OpKind::Std, {.attributes = {.dim = 2}, .inputs = {{2, 3, 4}, {2, 3, 1}, {2, 3, 4}}, .outputs = {{2, 3}}}},
      // floor((112 + 2 - 3) / 2) + 1 = 56
      {OpKind::MaxPool2d,
       {.attributes = {.kernel = 3, .stride = 2, .padding = 1},
        .inputs = {{2, 64, 112, 112}},
        .outputs = {{2, 64, 56, 56}}}},
      {OpKind::AdaptiveAvgPool2d,
       {.attributes = {.length = 1}, .inputs = {{2, 512, 7, 7}}, .outputs = {{2, 512, 1, 1}}}},
      {OpKind::Linear4bit,
       {.attributes = {.out_features = 6}, .inputs = {{2, 3, 8}}, .parameters = {{12, 1}}, .outputs = {{2, 3, 6}}}},
      {OpKind::CrossEntropy, {.attributes = {.shift = true}, .inputs = {{2, 3, 100}, {2, 3}}, .outputs = {{}}}},
      {OpKind::LinearCrossEntropy,
       {.attributes = {.shift = true}, .inputs = {{2, 3, 8}, {2, 3}}, .parameters = {{100, 8}}, .outputs = {{}}}},
      {OpKind::MseLoss, {.inputs = {{2, 3}, {2, 3}}, .outputs = {{}}}},
      {OpKind::Constant, {.requested = {1, 3}, .outputs = {{1, 3}}}},
      {OpKind::Recorded, {.inputs = {{2, 3}}, .parameters = {{3}}, .requested = {2, 4}, .outputs = {{2, 4}}}},
  };
  return all;
}

const Examples& expert_examples() {
  static const Examples all = {
      {OpKind::Router, {.attributes = {.experts_per_token = 2}, .inputs = {{6, 8}}, .outputs = {{6, 2}, {6, 2}}}},
      {OpKind::Experts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 1}, {6, 1}},
        .parameters = {{8, 4}, {8, 4}, {4, 8}, {8, 4}, {8, 4}, {4, 8}},
        .outputs = {{6, 4}}}},
      {OpKind::GroupedExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 1}, {6, 1}},
        .parameters = {{2, 16, 4}, {2, 4, 8}},
        .outputs = {{6, 4}}}},
      {OpKind::DenseExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 2}},
        .parameters = {{2, 4, 16}, {2, 8, 4}},
        .outputs = {{12, 4}, {12, 4}, {6, 2}}}},
  };
  return all;
}

const Examples& examples() {
  static const Examples all = [] {
    Examples every = layer_examples();
    every.insert(other_examples().begin(), other_examples().end());
    every.insert(expert_examples().begin(), expert_examples().end());
    return every;
  }();
  return all;
}

TEST(OpShapes, EveryKindHasARuleAndANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    names.insert(name_of(kind));
    EXPECT_EQ(parse_op_kind(name_of(kind)), kind);
    ASSERT_TRUE(examples().contains(kind)) << "no example of " << name_of(kind);
    const auto outputs = infer(kind, examples().at(kind));
    ASSERT_TRUE(outputs.has_value()) << name_of(kind) << ": " << to_string(outputs.error().front());
    EXPECT_EQ(*outputs, examples().at(kind).outputs) << name_of(kind);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kNumOpKinds));
  EXPECT_EQ(parse_op_kind("matmul"), std::nullopt);
}

TEST(OpShapes, EveryKindRefusesAnInputTooMany) {
  for (const auto& [kind, example] : examples()) {
    // They take any number.
    if (kind == OpKind::Cat || kind == OpKind::Stack || kind == OpKind::Recorded) continue;
    Example wrong = example;
    wrong.inputs.push_back(Shape{2, 3});
    EXPECT_FALSE(infer(kind, wrong).has_value()) << name_of(kind);
    EXPECT_EQ(op_row(kind).arity.max_inputs, static_cast<int>(example.inputs.size())) << name_of(kind);
  }
}

/// What does not go together, and the sentence that says so.
struct Mismatch {
  OpKind kind;
  Example example;
  std::string message;
};

void expect_mismatches(const std::vector<Mismatch>& cases) {
  for (const Mismatch& c : cases) {
    const auto outputs = infer(c.kind, c.example);
    ASSERT_FALSE(outputs.has_value()) << c.message;
    EXPECT_EQ(to_string(outputs.error().front()), c.message);
  }
}

TEST(OpShapes, ReportEachMismatch) {
  expect_mismatches({
      {OpKind::Linear,
       {.inputs = {{2, 3}}, .parameters = {{5, 4}}},
       "linear: The last dimension of the input [2, 3] must be 4, as in the weight."},
      {OpKind::Linear, {.inputs = {{2, 4}}, .parameters = {{5, 4}, {4}}}, "linear: The bias is [4], not [5]."},
      {OpKind::Linear4bit,
       {.attributes = {.out_features = 6}, .inputs = {{2, 8}}, .parameters = {{40, 1}}},
       "linear_4bit: The packed weight [40, 1] does not hold 6 x 8 numbers."},
      {OpKind::LigerGlu, {.inputs = {{2, 3}, {2, 1}}}, "liger_glu: [2, 3] and [2, 1] differ."},
      {OpKind::Attention,
       {.inputs = {{2, 3, 4, 8}, {2, 3, 3, 8}, {2, 3, 3, 8}}},
       "attention: 4 heads are not a multiple of 3 key and value heads."},
      {OpKind::Add, {.inputs = {{1, 3}, {2, 3}}}, "add: [2, 3] does not broadcast to [1, 3]."},
      {OpKind::Reshape, {.inputs = {{2, 3}}, .requested = {7}}, "reshape: [2, 3] does not reshape to [7]."},
      {OpKind::Slice,
       {.attributes = {.dim = 1, .start = 3, .length = 3}, .inputs = {{2, 5}}},
       "slice: 3 from 3 on are not within dimension 1 of [2, 5]."},
      {OpKind::Transpose,
       {.attributes = {.dim = 0, .other_dim = 2}, .inputs = {{2, 3}}},
       "transpose: [2, 3] has no dimension 2."},
      {OpKind::Conv1d,
       {.attributes = {.kernel = 5}, .inputs = {{2, 4, 3}}, .parameters = {{6, 4, 5}}},
       "conv1d: The output [2, 6, 0] has a size below 1."},
      {OpKind::CrossEntropy,
       {.attributes = {.shift = true}, .inputs = {{2, 1, 9}, {2, 1}}},
       "cross_entropy: Labels [2, 1] are too short to be shifted."},
      {OpKind::LinearCrossEntropy,
       {.inputs = {{2, 3, 8}, {2, 3}}, .parameters = {{100, 7}}},
       "linear_cross_entropy: The head's weight [100, 7] does not match [2, 3, 8]."},
      {OpKind::Attention,
       {.inputs = {{2, 3, 4, 8}, {2, 5, 2, 8}, {2, 5, 2, 8}}, .parameters = {{2}}},
       "attention: The sinks [2] are not [4], one for each head."},
      {OpKind::Split,
       {.attributes = {.dim = -1, .length = 6}, .inputs = {{2, 6}}, .num_outputs = 2},
       "split: Dimension -1 of [2, 6] does not split at 6."},
      {OpKind::Expand,
       {.inputs = {{1}}, .requested = {std::int64_t{1} << 40, std::int64_t{1} << 40}},
       "expand: The output [1099511627776, 1099511627776] has more than 2^53 elements."},
      {OpKind::Silu, {.inputs = {{}}}, "silu: An input is a scalar."},
      {OpKind::Rotary,
       {.inputs = {{2, 3, 4, 8}, {2, 3, 2, 8}, {1, 4, 8}, {1, 4, 8}}},
       "rotary: The table [1, 4, 8] must have 3 positions."},
  });
}

TEST(OpShapes, ReportMismatchesOfLinearAttention) {
  expect_mismatches({
      {OpKind::Split,
       {.attributes = {.dim = -1, .lengths = {2, 5}}, .inputs = {{2, 6}}, .num_outputs = 2},
       "split: [2, 6] does not split into 2 parts of these lengths."},
      {OpKind::CausalConv1d,
       {.inputs = {{2, 3, 4}}, .parameters = {{5, 1, 4}}},
       "causal_conv1d: The weight [5, 1, 4] does not match [batch, seq, channels] of [2, 3, 4]."},
      {OpKind::DecayRate,
       {.inputs = {{2, 3, 4}}, .parameters = {{4}, {3}}},
       "decay_rate: The parameters are not [4], one for each head of [2, 3, 4]."},
      {OpKind::GatedDeltaRule,
       {.attributes = {.heads = 4, .kv_heads = 2, .head_dim = 8, .length = 64},
        .inputs = {{2, 3, 51}, {2, 3, 4}, {2, 3, 4}}},
       "gated_delta_rule: [2, 3, 51] does not hold 2 queries and keys of 8 and 4 values."},
      {OpKind::GatedDeltaRule,
       {.attributes = {.heads = 4, .kv_heads = 2, .head_dim = 8, .length = 64},
        .inputs = {{2, 3, 52}, {2, 3, 4}, {2, 3, 2}}},
       "gated_delta_rule: The decay [2, 3, 4] and the beta [2, 3, 2] are not [2, 3, 4]."},
      {OpKind::StateSpace,
       {.attributes = {.heads = 4, .head_dim = 5, .length = 64, .groups = 3},
        .inputs = {{2, 3, 32}, {2, 3, 4}},
        .parameters = {{4}, {4}, {4}}},
       "state_space: [2, 3, 32] does not hold 4 values of 5 and states of 3 groups."},
      {OpKind::StateSpace,
       {.attributes = {.heads = 4, .head_dim = 5, .length = 64, .groups = 2},
        .inputs = {{2, 3, 32}, {2, 3, 4}},
        .parameters = {{4}, {4}, {1}}},
       "state_space: The step [2, 3, 4] and the parameters are not of 4 heads."},
      {OpKind::GatedRmsNorm,
       {.attributes = {.groups = 3}, .inputs = {{2, 4}, {2, 4}}, .parameters = {{4}}},
       "gated_rms_norm: The width 4 does not divide into 3 groups."},
  });
}

TEST(OpShapes, ReportMismatchesOfExperts) {
  expect_mismatches({
      {OpKind::Router,
       {.attributes = {.experts_per_token = 9}, .inputs = {{6, 8}}},
       "router: Scores [6, 8] do not give 9 experts per token."},
      {OpKind::Router,
       {.attributes = {.groups = 3, .experts_per_token = 2}, .inputs = {{6, 4}}, .parameters = {{8, 4}}},
       "router: 8 experts do not divide into 3 groups of two at least, 1 of them chosen."},
      {OpKind::GroupedExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 1}, {6, 1}},
        .parameters = {{2, 16, 4}, {2, 8, 4}}},
       "grouped_experts: 2 experts with gate and up [2, 16, 4] and down [2, 8, 4] do not match [6, 4]."},
      {OpKind::GroupedExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1, .limit = 7},
        .inputs = {{6, 4}, {6, 1}, {6, 1}},
        .parameters = {{2, 8}, {2, 4, 16}, {2, 4}, {2, 8, 4}}},
       "grouped_experts: The biases [2, 8] and [2, 4] do not match [2, 4, 16] and [2, 8, 4]."},
      {OpKind::GroupedExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 1}, {6, 1}},
        .parameters = {{2, 16}, {2, 4, 16}, {2, 4}, {2, 8, 4}}},
       "grouped_experts: 4 parameters and a limit of 0."},
      {OpKind::DenseExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 3}},
        .parameters = {{2, 4, 16}, {2, 8, 4}}},
       "dense_experts: Tokens [6, 4] and scores [6, 3] do not match 2 experts."},
      {OpKind::DenseExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 3},
        .inputs = {{6, 4}, {6, 2}},
        .parameters = {{2, 4, 16}, {2, 8, 4}}},
       "dense_experts: Scores [6, 2] do not give 3 experts per token."},
      {OpKind::DenseExperts,
       {.attributes = {.num_experts = 2, .experts_per_token = 1},
        .inputs = {{6, 4}, {6, 2}},
        .parameters = {{2, 4, 16}, {2, 4, 8}}},
       "dense_experts: 2 experts with gate and up [2, 4, 16] and down [2, 4, 8] do not match [6, 4]."},
  });
}

TEST(OpShapes, ElementsAreCountedWithoutOverflow) {
  EXPECT_EQ(checked_num_elements({}), 1);
  EXPECT_EQ(checked_num_elements({3, 4}), 12);
  EXPECT_EQ(checked_num_elements({std::int64_t{1} << 53}), std::int64_t{1} << 53);
  EXPECT_EQ(checked_num_elements({std::int64_t{1} << 53, 2}), std::nullopt);
  EXPECT_EQ(checked_num_elements({-1}), std::nullopt);
}

TEST(OpShapes, ABlockIsCheckedAgainstItsRules) {
  Block block;
  block.modules = {BlockModule{.name = "", .class_name = "Linear"}};
  block.parameters = {{5, 4}};
  block.values = {Value{.name = "x", .shape = {2, 4}}, Value{.name = "y", .shape = {2, 5}}};
  Op op;
  op.kind = OpKind::Linear;
  op.inputs = {0};
  op.outputs = {1};
  op.parameters = {0};
  block.ops = {op};
  EXPECT_TRUE(check_block(block).empty());

  block.values[1].shape = {2, 6};
  EXPECT_EQ(to_string(check_block(block).at(0)),
            "op 0 (linear): Its outputs do not have the shapes that its rule gives.");
  block.ops[0].parameters = {1};
  EXPECT_EQ(to_string(check_block(block).at(0)), "op 0: It points to parameter 1 of 1.");
}

}  // namespace
}  // namespace fsdp
