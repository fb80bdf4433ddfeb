// What op rules save for backward, in closed form, and that there is a rule for each kind of op.

#include "simulator/ops/op_rules.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/plan/schedule.h"
#include "tests/support/linear_attention_samples.h"
#include "tests/support/prepared_plan.h"
#include "tests/support/spec_models.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

constexpr Dtype kLong = Dtype::Int64;

BlockBuilder builder(std::vector<Value> inputs) {
  BlockBuilder b("op", "Op", inputs);
  for (const Value& input : inputs) b.input(input.name);
  return b;
}

// ---- every kind ----------------------------------------------------------------------------------------------------

BlockValue op(BlockBuilder& b, OpKind kind, std::vector<BlockValue> inputs, const OpAttributes& attributes = {}) {
  return b.op({.kind = kind, .inputs = std::move(inputs), .attributes = attributes})[0];
}

BlockValue experts(BlockBuilder& b) {
  const BlockValue tokens = b.reshape(b.input("x"), {8, 16});
  const auto routed = b.op({.kind = OpKind::Router,
                            .inputs = {b.linear("gate", tokens, 4)},
                            .attributes = {.num_experts = 4, .experts_per_token = 2},
                            .names = {"weights", "indices"}});
  std::vector<int> parameters;
  for (int e = 0; e < 4; ++e) {
    const std::string name = "experts" + std::to_string(e);
    b.declare(name, "Expert");
    parameters.push_back(b.parameter_of(name, "gate", {32, 16}));
    parameters.push_back(b.parameter_of(name, "up", {32, 16}));
    parameters.push_back(b.parameter_of(name, "down", {16, 32}));
  }
  return b.op({.kind = OpKind::Experts,
               .inputs = {tokens, routed[0], routed[1]},
               .parameters = parameters,
               .attributes = {.num_experts = 4, .experts_per_token = 2}})[0];
}

BlockValue loss_with_head(BlockBuilder& b, BlockValue hidden, BlockValue labels, std::int64_t classes) {
  b.declare("lm_head", "Linear", false);
  return b.op({.kind = OpKind::LinearCrossEntropy,
               .inputs = {hidden, labels},
               .parameters = {b.parameter_of("lm_head", "weight", {classes, b.size(hidden, -1)})}})[0];
}

BlockValue low_rank(BlockBuilder& b, BlockValue x, std::int64_t rank, std::int64_t out_features) {
  const BlockValue y = b.linear("l", x, out_features);
  for (const char* name : {"a", "b"}) b.declare(name, "Linear", false);
  return b.op({.kind = OpKind::LowRank,
               .inputs = {y, x},
               .parameters = {b.parameter_of("a", "weight", {rank, b.size(x, -1)}),
                              b.parameter_of("b", "weight", {out_features, rank})},
               .attributes = {.scale = 4}})[0];
}

BlockValue grouped_experts(BlockBuilder& b) {
  const BlockValue tokens = b.reshape(b.input("x"), {8, 16});
  b.declare("gate", "Router");
  const auto routed = b.op({.kind = OpKind::Router,
                            .inputs = {tokens},
                            .parameters = {b.parameter_of("gate", "weight", {4, 16})},
                            .attributes = {.num_experts = 4, .experts_per_token = 2, .sigmoid = true},
                            .names = {"weights", "indices"}});
  b.declare("experts", "Experts");
  return b.op(
      {.kind = OpKind::GroupedExperts,
       .inputs = {tokens, routed[0], routed[1]},
       .parameters = {b.parameter_of("experts", "both", {4, 64, 16}), b.parameter_of("experts", "down", {4, 16, 32})},
       .attributes = {.num_experts = 4, .experts_per_token = 2}})[0];
}

BlockValue dense_experts(BlockBuilder& b) {
  const BlockValue tokens = b.reshape(b.input("x"), {8, 16});
  b.declare("experts", "Experts");
  return b.op(
      {.kind = OpKind::DenseExperts,
       .inputs = {tokens, b.linear("router", tokens, 4)},
       .parameters = {b.parameter_of("experts", "both", {4, 16, 64}), b.parameter_of("experts", "down", {4, 32, 16})},
       .attributes = {.num_experts = 4, .experts_per_token = 2},
       .num_outputs = 3})[0];
}

// Each kind once, on x [2, 4, 16], an image [2, 4, 8, 8] or heads [2, 4, 2, 8].

BlockValue packed_linear(BlockBuilder& b, std::int64_t out_features, bool is_double = false) {
  static constexpr Quantization kOnce;
  static constexpr Quantization kTwice = {.is_double = true};
  b.quantize(is_double ? kTwice : kOnce, Dtype::BFloat16);
  return b.linear("l", b.input("x"), out_features);
}

std::optional<BlockValue> layer(BlockBuilder& b, OpKind kind) {
  const BlockValue x = b.input("x"), image = b.input("image"), heads = b.input("heads");
  switch (kind) {
    case OpKind::Linear:
      return b.linear("l", x, 8);
    case OpKind::Linear4bit:
      return packed_linear(b, 8);
    case OpKind::Embedding:
      return b.embedding("e", b.input("ids"), 10, 8);
    case OpKind::Conv1d:
      return b.conv1d("c", x, 8, {.kernel = 3});
    case OpKind::Conv2d:
      return b.conv2d("c", image, 8, {.kernel = 3});
    case OpKind::Parameter:
      return b.add(x, b.parameter("table", {1, 4, 16}));
    case OpKind::RmsNorm:
      return b.rms_norm("n", x);
    case OpKind::LayerNorm:
      return b.layer_norm("n", x);
    case OpKind::GroupNorm:
      return b.group_norm("n", image, 2);
    case OpKind::BatchNorm:
      return b.batch_norm("n", image);
    case OpKind::RotaryTable:
      return b.rotary_table(b.input("ids"), 8).cos;
    case OpKind::Rotary:
      return b.rotary(heads, heads, b.rotary_table(b.input("ids"), 8)).key;
    case OpKind::Attention:
      return b.attention(heads, heads, heads, {});
    case OpKind::Router:
    case OpKind::Experts:
      return experts(b);
    case OpKind::GroupedExperts:
      return grouped_experts(b);
    case OpKind::DenseExperts:
      return dense_experts(b);
    default:
      return std::nullopt;
  }
}

std::optional<BlockValue> elementwise(BlockBuilder& b, OpKind kind) {
  const BlockValue x = b.input("x"), image = b.input("image");
  switch (kind) {
    case OpKind::Mul:
    case OpKind::Add:
    case OpKind::Sub:
    case OpKind::MseLoss:
      return op(b, kind, {x, b.scale(x, 2)});
    case OpKind::Silu:
    case OpKind::Gelu:
    case OpKind::Relu:
    case OpKind::Sigmoid:
    case OpKind::Tanh:
    case OpKind::Detach:
      return op(b, kind, {x});
    case OpKind::Scale:
      return b.scale(x, 2);
    case OpKind::Softcap:
      return b.softcap(x, 30);
    case OpKind::LigerGlu:
      return b.liger_glu(x, b.scale(x, 2), false);
    case OpKind::LowRank:
      return low_rank(b, x, 4, 8);
    case OpKind::Dropout:
      return b.dropout("", x, 0.1);
    case OpKind::Cast:
      return b.cast(x, Dtype::Float32);
    case OpKind::Softmax:
      return b.softmax(x, -1);
    case OpKind::Mean:
      return b.mean(x, 1, false);
    case OpKind::Sum:
      return b.sum(x, 1, false);
    case OpKind::Std:
      return op(b, kind, {x, b.mean(x, 2, true)}, {.dim = 2});
    case OpKind::MaxPool2d:
      return op(b, kind, {image}, {.kernel = 2, .stride = 2});
    case OpKind::AdaptiveAvgPool2d:
      return op(b, kind, {image}, {.length = 1});
    case OpKind::CrossEntropy:
      return b.cross_entropy(x, b.input("ids"), false);
    case OpKind::LinearCrossEntropy:
      return loss_with_head(b, x, b.input("ids"), 8);
    default:
      return std::nullopt;
  }
}

std::optional<BlockValue> rearranged(BlockBuilder& b, OpKind kind) {
  const BlockValue x = b.input("x");
  switch (kind) {
    case OpKind::Reshape:
      return b.reshape(x, {8, 16});
    case OpKind::Transpose:
      return b.transpose(x, 0, 1);
    case OpKind::Slice:
      return b.slice(x, 1, 0, 2);
    case OpKind::Select:
      return b.select(x, 1, 0);
    case OpKind::Expand:
      return b.expand(b.select(x, 1, 0), {3, 2, 16});
    case OpKind::Split:
      return b.split(x, 2, 1)[1];
    case OpKind::Contiguous:
      return b.contiguous(x);
    case OpKind::Cat:
      return b.cat({x, x}, 1);
    case OpKind::Stack:
      return b.stack({x, x}, 1);
    case OpKind::SetSlice:
      return b.set_slice(b.scale(x, 2), b.slice(x, 1, 0, 1), 1, 2);
    case OpKind::KvCache:
      return b.kv_cache(b.input("heads"), b.scale(b.input("heads"), 2)).value;
    case OpKind::Index:
      return b.index(x, b.input("rows"), 1);
    case OpKind::Pad:
      return b.pad(x, 2, 20);
    case OpKind::Constant:
      return b.add(x, b.constant({2, 4, 16}));
    default:
      return std::nullopt;
  }
}

// A kind that has no sample here gives nothing, and the test below says so.
BlockValue sample_of(BlockBuilder& b, OpKind kind) {
  for (const auto& family : {layer, linear_attention_sample, elementwise, rearranged}) {
    if (const auto sample = family(b, kind)) return *sample;
  }
  return b.input("x");
}

/// With the inputs that the samples read.
BlockBuilder builder_of_samples() {
  return builder({{"x", {2, 4, 16}},
                  {"image", {2, 4, 8, 8}},
                  {"heads", {2, 4, 2, 8}},
                  {"ids", {2, 4}, kLong},
                  {"long_rows", {2, 100, 16}},
                  {"rows", {3}, kLong}});
}

TEST(OpRules, EveryKindOfOpGivesEachOfItsOutputsATensor) {
  for (int k = 0; k < kNumRuledOpKinds; ++k) {
    const auto kind = static_cast<OpKind>(k);
    SCOPED_TRACE(name_of(kind));
    BlockBuilder b = builder_of_samples();
    b.output("y", sample_of(b, kind));
    const TapedBlock taped = tape_block(std::move(b));
    bool found = false;
    for (const Op& each : taped.block.ops) {
      found = found || each.kind == kind;
      for (const int value : each.outputs) {
        const int slot = taped.program.value_slot[value];
        ASSERT_GE(slot, 0) << name_of(each.kind);
        EXPECT_EQ(taped.program.slots[slot].elements, num_elements(taped.block.values[value].shape))
            << name_of(each.kind);
      }
    }
    EXPECT_TRUE(found) << "no sample of this kind";
  }
}

// The schedule stops a recomputation at the last op whose backward needs more than sizes (core/plan/schedule.h), and so
// has to know without these rules what they say.
TEST(OpRules, SaveTensorsOfKindsThatTheScheduleRecomputes) {
  for (int k = 0; k < 3 * kNumRuledOpKinds; ++k) {
    const auto kind = static_cast<OpKind>(k % kNumRuledOpKinds);
    TapedSettings settings;
    settings.rules.implementations.rms_norm = static_cast<RmsNormImplementation>(k / kNumRuledOpKinds);
    settings.rules.implementations.rotary = static_cast<RotaryImplementation>(k / kNumRuledOpKinds);
    if (k >= kNumRuledOpKinds) settings.rules.implementations.attention = AttentionBackend::Eager;
    settings.rules.implementations.upcast_logits = k < kNumRuledOpKinds;
    if (kind == OpKind::LinearCrossEntropy) settings.rules.implementations.loss = {.kind = LossKind::Liger};
    BlockBuilder b = builder_of_samples();
    b.output("y", sample_of(b, kind));
    b.output("pooled", op(b, OpKind::AdaptiveAvgPool2d, {b.input("image")}, {.length = 2}));
    b.output("padded", b.pad(b.input("x"), 2, 20, true));
    const TapedBlock taped = tape_block(std::move(b), settings);
    std::vector<bool> saves(taped.block.ops.size(), false);
    for (const Kernel& kernel : taped.program.kernels) {
      if (!kernel.saved.empty()) saves[kernel.op] = true;
    }
    for (std::size_t o = 0; o < saves.size(); ++o) {
      EXPECT_EQ(saves[o], saves_tensors(taped.block.ops[o])) << name_of(taped.block.ops[o].kind);
    }
  }
}

// ---- what is saved -------------------------------------------------------------------------------------------------

constexpr std::int64_t kRows = 512;   // N
constexpr std::int64_t kWidth = 256;  // H

TapedBlock rms_norm(RmsNormImplementation implementation, bool unit_offset = false, bool trained = true) {
  BlockBuilder b = builder({{"x", {2, kRows / 2, kWidth}}});
  b.output("y", b.rms_norm("norm", b.input("x"), {.unit_offset = unit_offset}));
  TapedSettings settings;
  settings.rules.implementations.rms_norm = implementation;
  settings.parameters = {trained};
  return tape_block(std::move(b), settings);
}

TEST(OpRules, RmsNormSavesSixEightOrTwoBytesPerElementByImplementation) {
  const std::int64_t nh = kRows * kWidth;
  // fp32 copy 4 N H, inverse root 4 N, normalized in bf16 2 N H.
  EXPECT_EQ(rms_norm(RmsNormImplementation::WrittenOut).saved_bytes(), 6 * nh + 4 * kRows);
  // The normalized values stay in fp32.
  EXPECT_EQ(rms_norm(RmsNormImplementation::Composite).saved_bytes(), 8 * nh + 4 * kRows);
  // Gemma: and 1 + weight in fp32.
  EXPECT_EQ(rms_norm(RmsNormImplementation::WrittenOut, true).saved_bytes(), 8 * nh + 4 * kRows + 4 * kWidth);
  // Its own input and the inverse root.
  EXPECT_EQ(rms_norm(RmsNormImplementation::Fused).saved_bytes(), 2 * nh + 4 * kRows);
}

// x of 2 N H bytes and both weights are kept, whatever is trained. The backward makes the gradient of x, and two
// tensors of N r beside it.
TEST(OpRules, AdaptersOfAutomodelKeepTheirInputAlone) {
  constexpr std::int64_t kOut = 1024;
  constexpr std::int64_t kRank = 8;
  BlockBuilder b = builder({{"x", {2, kRows / 2, kWidth}}});
  b.output("y", low_rank(b, b.input("x"), kRank, kOut));
  TapedSettings settings;
  settings.parameters = {false, true, true};
  const TapedBlock taped = tape_block(std::move(b), settings);
  EXPECT_EQ(taped.saved_bytes(), 2 * kRows * kWidth);
  // The frozen layer's result and the sum.
  EXPECT_EQ(peak_of(taped.tape.forward), 2 * 2 * kRows * kOut);
}

// x in 2 N H bytes; neither the normalized values nor the inverse root.
TEST(OpRules, NormOfAutomodelSavesItsInputAlone) {
  BlockBuilder b = builder({{"x", {2, kRows / 2, kWidth}}});
  b.decode_as_automodel(true);
  b.output("y", b.rms_norm("norm", b.input("x"), {.class_name = "LlamaRMSNorm"}));
  const TapedBlock taped = tape_block(std::move(b));
  EXPECT_EQ(taped.saved_bytes(), 2 * kRows * kWidth);
  // x and the normalized values in fp32, the weight in fp32, and a number in fp32 for each row.
  EXPECT_EQ(peak_of(taped.tape.forward), 8 * kRows * kWidth + 4 * kWidth + 4 * kRows);
}

TEST(OpRules, NormWithAFrozenWeightSavesNoNormalizedValues) {
  EXPECT_EQ(rms_norm(RmsNormImplementation::WrittenOut, false, false).saved_bytes(), 4 * kRows * kWidth + 4 * kRows);
}

TEST(OpRules, LayerNormSavesItsInputAndTwoNumbersPerRow) {
  BlockBuilder b = builder({{"x", {kRows, kWidth}}});
  b.output("y", b.layer_norm("norm", b.input("x")));
  EXPECT_EQ(tape_block(std::move(b)).saved_bytes(), 2 * kRows * kWidth + 8 * kRows);
}

// The weight of W numbers is unpacked in 2 W bytes, beside the result forward and the gradient of the input backward.
// With double quantization the scales come first, in fp32: W / 64 of them, twice forward.
TEST(OpRules, PackedLayersSaveNothingAndUnpackTwice) {
  constexpr std::int64_t kOut = 1024;
  constexpr std::int64_t kWeight = kOut * kWidth;
  for (const bool is_double : {false, true}) {
    BlockBuilder b = builder({{"x", {2, kRows / 2, kWidth}}});
    b.output("y", packed_linear(b, kOut, is_double));
    TapedSettings settings;
    settings.parameters = {false};
    const TapedBlock taped = tape_block(std::move(b), settings);
    EXPECT_EQ(taped.saved_bytes(), 0);
    const std::int64_t scales = is_double ? 4 * kWeight / 64 : 0;
    EXPECT_EQ(peak_of(taped.tape.forward), 2 * kWeight + 2 * kRows * kOut + 2 * scales);
    EXPECT_EQ(peak_of(taped.tape.backward), 2 * kWeight + std::max(scales, 2 * kRows * kWidth));
  }
}

TEST(OpRules, GatedMlpSavesFourTensorsOfItsWidth) {
  constexpr std::int64_t kFfn = 1024;
  BlockBuilder b = builder({{"x", {kRows, kWidth}}});
  const BlockValue x = b.input("x");
  const BlockValue gate = b.silu(b.linear("gate", x, kFfn));
  b.output("y", b.linear("down", b.mul(gate, b.linear("up", x, kFfn)), kWidth));
  // gate, silu, up and their product, 2 bytes each, and the input of the first two linears.
  EXPECT_EQ(tape_block(std::move(b)).saved_bytes(), 4 * 2 * kRows * kFfn + 2 * kRows * kWidth);
}

TEST(OpRules, DropoutSavesOneBytePerElement) {
  BlockBuilder b = builder({{"x", {kRows, kWidth}}});
  b.output("y", b.dropout("", b.input("x"), 0.1));
  EXPECT_EQ(tape_block(std::move(b)).saved_bytes(), kRows * kWidth);
}

TEST(OpRules, ReflectionPaddingSavesItsInputButZeroPaddingDoesNot) {
  for (const bool reflect : {true, false}) {
    BlockBuilder b = builder({{"x", {2, 8, 100}}});
    b.output("y", b.pad(b.scale(b.input("x"), 2), 2, 104, reflect));
    EXPECT_EQ(tape_block(std::move(b)).saved_bytes(), reflect ? 2 * 2 * 8 * 100 : 0);
  }
}

TapedBlock cross_entropy(bool upcast, std::int64_t rows, std::int64_t classes) {
  BlockBuilder b = builder({{"x", {rows, kWidth}}, {"labels", {rows}, kLong}});
  const BlockValue logits = b.linear("head", b.input("x"), classes);
  b.output("loss", b.cross_entropy(logits, b.input("labels"), false));
  TapedSettings settings;
  settings.rules.implementations.upcast_logits = upcast;
  settings.inputs = {true, false};
  return tape_block(std::move(b), settings);
}

TEST(OpRules, CrossEntropyPeaksAtTenAndTwelveBytesPerLogit) {
  constexpr std::int64_t kClasses = 8000;
  const std::int64_t nv = kRows * kClasses;
  const TapedBlock wide = cross_entropy(true, kRows, kClasses);
  // Logits 2, their copy 4, log_softmax 4; and the loss and the total weight, 4 bytes each.
  EXPECT_EQ(peak_of(wide.tape.forward), 10 * nv + 8);
  // log_softmax 4 stays (total weight beside it); gradients of nll_loss 4 and of log_softmax 4 on top.
  EXPECT_EQ(wide.tape.backward_peak, 12 * nv + 4);
  const TapedBlock narrow = cross_entropy(false, kRows, kClasses);
  EXPECT_EQ(peak_of(narrow.tape.forward), 4 * nv + 4);
}

TEST(OpRules, FlashAttnLossCopiesNoLogits) {
  constexpr std::int64_t kClasses = 8000;
  const std::int64_t nv = kRows * kClasses;
  const auto taped = [&](int capability) {
    BlockBuilder b = builder({{"x", {kRows, kWidth}}, {"labels", {kRows}, kLong}});
    b.output("loss", b.cross_entropy(b.linear("head", b.input("x"), kClasses), b.input("labels"), false));
    TapedSettings settings;
    settings.rules.implementations.upcast_logits = false;
    settings.rules.implementations.loss = {.kind = LossKind::FlashAttn};
    settings.rules.compute_capability = capability;
    settings.inputs = {true, false};
    return tape_block(std::move(b), settings);
  };
  const TapedBlock fused = taped(90);
  // Logits in bf16; losses, logsumexp and z-losses of each row, and the counting of labels: 1 byte and a copy in 8.
  EXPECT_EQ(peak_of(fused.tape.forward), 2 * nv + (3 * 4 + 1 + 8) * kRows + 4 + 8);
  // Their gradient beside them, the logsumexp, zeros for the z-losses, and the loss with its gradient.
  EXPECT_EQ(fused.tape.backward_peak, 2 * (2 * nv) + 2 * (4 * kRows) + 2 * 4);
  EXPECT_FALSE(fused.program.refusal.has_value());
  EXPECT_TRUE(taped(0).program.refusal.has_value()) << "A kernel of Triton on a CPU.";
}

TEST(OpRules, ShiftedLabelsArePaddedAndASingleRowIsNotCopied) {
  for (const std::int64_t rows : {1, 3}) {
    BlockBuilder b = builder({{"x", {rows, 10, 16}}, {"labels", {rows, 10}, kLong}});
    b.output("loss", b.cross_entropy(b.input("x"), b.input("labels"), true));
    const AllocationCounts made = allocations(tape_block(std::move(b), {.inputs = {true, false}}).tape.forward);
    EXPECT_EQ(made.contains(8 * rows * 11), true);
    EXPECT_EQ(made.contains(8 * rows * 10), rows > 1);
  }
}

TEST(OpRules, RotaryTableIsABatchedProductWithAWorkspace) {
  BlockBuilder b = builder({{"x", {1, 32, 8}}});
  const auto table = b.rotary_table(b.positions({1, 32}), 64);
  b.output("cos", table.cos);
  b.output("sin", table.sin);
  const TapedBlock taped = tape_block(std::move(b));
  const auto is_workspace = [](const TapeEvent& event) { return event.kind == TapeEvent::Kind::Workspace; };
  std::vector<std::int64_t> made;
  for (const TapeEvent& event : taped.tape.forward) {
    if (is_workspace(event)) break;
    if (event.kind == TapeEvent::Kind::Alloc) made.push_back(event.bytes);
  }
  // Positions as integers and in fp32, and the product of 32 of them with 32 frequencies.
  EXPECT_EQ(made, (std::vector<std::int64_t>{8 * 32, 4 * 32, 4 * 32 * 32}));
  EXPECT_EQ(std::count_if(taped.tape.forward.begin(), taped.tape.forward.end(), is_workspace), 1);
}

TEST(OpRules, SharedFirstTokenSumsItsGradients) {
  BlockBuilder b = builder({{"x", {8, 4, 16}}});
  const BlockValue token = b.expand(b.parameter("token", {1, 1, 16}), {8, 1, 16});
  b.output("y", b.cat({token, b.input("x")}, 1));
  const TapedBlock taped = tape_block(std::move(b));
  std::vector<std::int64_t> gradients;
  for (const TapeEvent& event : taped.tape.backward) {
    if (event.kind == TapeEvent::Kind::AllocParamGrad) gradients.push_back(event.bytes);
  }
  EXPECT_EQ(gradients, (std::vector<std::int64_t>{2 * 16}));
}

bool allocates(const std::vector<TapeEvent>& events, std::int64_t bytes) {
  return std::any_of(events.begin(), events.end(), [&](const TapeEvent& event) {
    return event.kind == TapeEvent::Kind::Alloc && event.bytes == bytes;
  });
}

// A block of 64 keys is summed in fp32 for each split of them, in columns of 128: 200 splits for all heads, 1 for 256
// heads. The gradient of q has 4 x 3 tiles of 128 x 64. Measured with torch 2.11 on the stub GPU.
TEST(OpRules, WideHeadsShareTwoHundredSplitsOfTheKeys) {
  for (const auto& [heads, splits] : {std::pair<std::int64_t, std::int64_t>{8, 8}, {32, 6}, {64, 3}, {256, 1}}) {
    BlockBuilder b = builder({{"q", {1, 512, heads, 192}}, {"k", {1, 512, heads, 192}}, {"v", {1, 512, heads, 128}}});
    b.output("y", b.attention(b.input("q"), b.input("k"), b.input("v"), {}));
    TapedSettings settings;
    settings.rules.implementations.attention = AttentionBackend::MemoryEfficient;
    const TapedBlock taped = tape_block(std::move(b), settings);
    const std::int64_t bytes = heads * (splits * 4 * 64 * (256 + 128) + 12 * (16 + 4 * 128 * 64));
    EXPECT_TRUE(allocates(taped.tape.backward, bytes)) << heads;
    // The result in fp32, which does not fit into registers either.
    EXPECT_TRUE(allocates(taped.tape.forward, 4 * 512 * heads * 128)) << heads;
  }
}

// Latent keys: the gradient of a new tensor that both parts are written into, its copies, and those of the parts.
TEST(OpRules, PartsOfANewTensorGetGradients) {
  BlockBuilder b = builder({{"x", {2, 4, 16}}});
  const BlockValue whole = b.set_slice(b.constant({2, 4, 24}), b.input("x"), 2, 8);
  b.output("y", b.mul(whole, b.constant({2, 4, 24}, 2)));
  const TapedBlock taped = tape_block(std::move(b));
  EXPECT_TRUE(allocates(taped.tape.backward, 2 * 2 * 4 * 24));
  EXPECT_TRUE(allocates(taped.tape.backward, 2 * 2 * 4 * 16));
}

// ---- whole blocks --------------------------------------------------------------------------------------------------

TapedBlock llama(RmsNormImplementation norm) {
  constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 64, kFfn = 704;
  BlockBuilder b =
      builder({{"hidden", {2, kRows / 2, kWidth}}, {"cos", {1, kRows / 2, 64}}, {"sin", {1, kRows / 2, 64}}});
  const BlockValue x = b.input("hidden");
  const BlockValue normed = b.rms_norm("attention_norm", x);
  const Shape heads = {2, kRows / 2, kHeads, kDim}, kv_heads = {2, kRows / 2, kKvHeads, kDim};
  const BlockValue q = b.reshape(b.linear("wq", normed, kHeads * kDim), heads);
  const BlockValue k = b.reshape(b.linear("wk", normed, kKvHeads * kDim), kv_heads);
  const BlockValue v = b.reshape(b.linear("wv", normed, kKvHeads * kDim), kv_heads);
  const auto turned = b.rotary(q, k, {b.input("cos"), b.input("sin")});
  const BlockValue y = b.add(x, b.linear("wo", b.attention(turned.query, turned.key, v, {}), kWidth));
  const BlockValue middle = b.rms_norm("ffn_norm", y);
  const BlockValue gate = b.silu(b.linear("w1", middle, kFfn));
  b.output("out", b.add(y, b.linear("w2", b.mul(gate, b.linear("w3", middle, kFfn)), kWidth)));
  TapedSettings settings;
  settings.rules.implementations.rms_norm = norm;
  settings.inputs = {true, false, false};
  return tape_block(std::move(b), settings);
}

TEST(OpRules, LlamaBlockSavesTheBytesOfTheClosedForm) {
  constexpr std::int64_t n = kRows, h = kWidth, q = 256, k = 128, heads = 4, ffn = 704;
  const std::int64_t tables = 2 * 2 * (kRows / 2) * 64;
  const std::int64_t random_state = 24;
  const std::int64_t attention = 2 * n * (2 * q + 2 * k) + 4 * n * heads + random_state;
  // Norms in fp32 keep 6 H + 4 and their outputs 2 H.
  EXPECT_EQ(llama(RmsNormImplementation::WrittenOut).saved_bytes() - tables,
            16 * n * h + 8 * n + attention + 8 * n * ffn);
  // Fused ones keep their inputs and outputs.
  EXPECT_EQ(llama(RmsNormImplementation::Fused).saved_bytes() - tables, 8 * n * h + 8 * n + attention + 8 * n * ffn);
}

TEST(OpRules, LayersOfQwen3TtsSaveThePublishedBytesPerToken) {
  const Model model = model_of("qwen3_tts.json");
  const ModelIndex index = index_of(model);
  TapeLibrary library(index);
  TapeSettings settings;
  const auto kept_per_token = [&](const std::string& module) {
    for (std::size_t c = 0; c < model.calls.size(); ++c) {
      const Call& call = model.calls[c];
      if (call.module < 0 || model.modules[call.module].name != module) continue;
      const Shape& hidden = model.values[call.outputs.front()].shape;
      const Tape& tape = library.tape(settings, static_cast<int>(c), CheckpointMode::None).tape;
      std::int64_t kept = tape.kept_bytes;
      for (std::size_t o = 0; o < tape.output.size(); ++o) {  // Keys and values are handed out too.
        if (tape.output_is_kept[o] && tape.output[o].kind == Storage::Kind::Inside) kept += tape.output[o].bytes;
      }
      return static_cast<double>(kept - 24) / static_cast<double>(hidden[0] * hidden[1]);
    }
    return 0.0;
  };
  EXPECT_EQ(kept_per_token("talker.model.layers.3"), 113320);
  EXPECT_EQ(kept_per_token("talker.code_predictor.model.layers.2"), 71848);
}

}  // namespace
}  // namespace fsdp::simulator
