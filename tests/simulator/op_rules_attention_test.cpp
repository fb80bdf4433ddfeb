// What attention keeps for the backward, in closed form.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/packing.h"
#include "simulator/ops/op_rules.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

BlockBuilder inputs_of_attention(std::vector<Value> inputs) {
  BlockBuilder b("op", "Op", inputs);
  for (const Value& input : inputs) b.input(input.name);
  return b;
}

TapedBlock attention(AttentionBackend backend, double dropout = 0) {
  constexpr std::int64_t kBatch = 2, kSeq = 256, kHeads = 8, kKvHeads = 2, kDim = 64;
  BlockBuilder b = inputs_of_attention({{"q", {kBatch, kSeq, kHeads, kDim}},
                                        {"k", {kBatch, kSeq, kKvHeads, kDim}},
                                        {"v", {kBatch, kSeq, kKvHeads, kDim}}});
  const BlockValue q = b.input("q"), k = b.input("k");
  b.output("y", b.attention(q, k, b.input("v"), {.dropout = dropout}));
  TapedSettings settings;
  settings.rules.implementations.attention = backend;
  return tape_block(std::move(b), settings);
}

TEST(OpRules, FlashSavesQueriesKeysValuesOutputAndOneNumberPerRow) {
  const std::int64_t n = 2 * 256, q = 8 * 64, k = 2 * 64;
  // rng_state is two numbers of 8 bytes, the unused tensor one.
  EXPECT_EQ(attention(AttentionBackend::Flash).saved_bytes(), 2 * n * (q + k + k + q) + 4 * n * 8 + 24);
}

TapedBlock packed_attention(PackedAttention attention, std::int64_t documents) {
  constexpr std::int64_t kSeq = 512, kHeads = 8, kKvHeads = 2, kDim = 64;
  BlockBuilder b = inputs_of_attention({{"q", {1, kSeq, kHeads, kDim}},
                                        {"k", {1, kSeq, kKvHeads, kDim}},
                                        {"v", {1, kSeq, kKvHeads, kDim}},
                                        {std::string(kBoundariesOfQueries), {documents + 1}, Dtype::Int32},
                                        {std::string(kBoundariesOfKeys), {documents + 1}, Dtype::Int32},
                                        {std::string(kDocumentMask), {1, 1, kSeq, kSeq}, Dtype::Bool},
                                        {std::string(kBlockMask), {elements_of_block_mask(1, kSeq)}, Dtype::Int32}});
  b.pack(attention, std::vector<std::int64_t>(static_cast<std::size_t>(documents), kSeq / documents));
  b.output("y", b.attention(b.input("q"), b.input("k"), b.input("v"), {}));
  return tape_block(std::move(b));
}

std::int64_t most_in_backward(const TapedBlock& taped) {
  std::int64_t most = 0;
  for (const TapeEvent& event : taped.tape.backward) most = std::max(most, event.bytes);
  return most;
}

// As flash on the whole row: q, k, v, output, a number for each row of each head, and two of the random state, which
// flash-attn makes without an unused one. The boundaries are inputs.
TEST(OpRules, PackedRowsSaveTheBoundariesOfDocumentsAndNoScores) {
  const std::int64_t n = 512, q = 8 * 64, k = 2 * 64;
  for (const PackedAttention attention : {PackedAttention::FlashAttn, PackedAttention::Varlen}) {
    EXPECT_EQ(packed_attention(attention, 4).saved_bytes(), 2 * n * (q + k + k + q) + 4 * n * 8 + 16 + 2 * 4 * 5);
  }
  // The mask in the dtype of q, which the kernel keeps, and K and V for all heads.
  EXPECT_EQ(packed_attention(PackedAttention::Sdpa, 4).saved_bytes(), 2 * n * 4 * q + 4 * n * 8 + 2 * n * n);
}

// Rows of the fp32 sum of the gradient of q lie 128 apart between documents: csrc/flash_attn/flash_api.cpp.
TEST(OpRules, EachDocumentTakes128RowsInTheBackward) {
  for (const std::int64_t documents : {1, 4, 64}) {
    for (const PackedAttention attention : {PackedAttention::FlashAttn, PackedAttention::Varlen}) {
      EXPECT_EQ(most_in_backward(packed_attention(attention, documents)), 4 * (512 + 128 * documents) * 8 * 64);
    }
  }
}

TEST(OpRules, KernelsWithBoundariesComputeTheScoresOfDocumentsAlone) {
  const auto flops = [](PackedAttention attention, std::int64_t documents) {
    return packed_attention(attention, documents).tape.work.front().forward.attention_flops;
  };
  EXPECT_DOUBLE_EQ(flops(PackedAttention::FlashAttn, 1), 2. * 8 * 512 * 512 * 128);
  EXPECT_DOUBLE_EQ(flops(PackedAttention::FlashAttn, 4), 2. * 8 * 512 * 512 * 128 / 4);
  EXPECT_DOUBLE_EQ(flops(PackedAttention::Sdpa, 4), 2. * 8 * 512 * 512 * 128) << "a mask leaves none out";
}

// q, k, v, the output and a number for each row of each head; K and V of grouped heads are not copied. The mask is an
// input of the model. The backward has a copy of the gradient and a number for each row beside the gradients of q, k
// and v. The output, with which this block ends, outlives them.
TEST(OpRules, FlexAttentionSavesNoScoresAndNoCopies) {
  const std::int64_t n = 512, q = 8 * 64, k = 2 * 64;
  const TapedBlock flex = packed_attention(PackedAttention::Flex, 4);
  EXPECT_EQ(flex.saved_bytes(), 2 * n * (q + k + k + q) + 4 * n * 8 + 4 * elements_of_block_mask(1, 512));
  const std::int64_t before = flex.tape.kept_bytes + 2 * n * q + 4 * n * 8;
  EXPECT_EQ(flex.tape.backward_peak, before + 2 * n * q + 2 * n * (q + k + k));
}

TEST(OpRules, FlexAttentionComputesBlocks) {
  const auto flops = [](std::int64_t documents) {
    return packed_attention(PackedAttention::Flex, documents).tape.work.front().forward.attention_flops;
  };
  EXPECT_DOUBLE_EQ(flops(1), 2. * 8 * 512 * 512 * 128);
  EXPECT_DOUBLE_EQ(flops(4), 2. * 8 * 512 * 512 * 128 * 4 / 10) << "4 of 10 blocks";
}

// Heads of 12 are padded to 16, of which no name is left for K and V once they are copied to all query heads.
TEST(OpRules, FlashPadsRepeatedKeysAndValues) {
  for (const std::int64_t kv_heads : {1, 2}) {
    BlockBuilder b("op", "Op", {{"q", {2, 64, 4, 12}}, {"k", {2, 64, kv_heads, 12}}, {"v", {2, 64, kv_heads, 12}}});
    b.output("y", b.attention(b.input("q"), b.input("k"), b.input("v"), {}));
    TapedSettings settings;
    settings.rules.implementations = {.attention = AttentionBackend::Flash, .repeat_kv = true};
    const TapedBlock taped = tape_block(std::move(b), settings);
    const std::int64_t padded = 2 * (2 * 64) * 4 * 16;
    // Q, K, V and the result, padded; a number of 4 bytes for each row of each head.
    EXPECT_EQ(taped.saved_bytes(), 4 * padded + 4 * (2 * 64) * 4 + 24) << kv_heads << " heads of K and V";
  }
}

TEST(OpRules, MathSavesTheScoresInFp32) {
  const std::int64_t n = 2 * 256, q = 8 * 64, scores = 2 * 8 * 256 * 256;
  // Scaled q, k and v for all heads in fp32, and the softmax of the scores.
  EXPECT_EQ(attention(AttentionBackend::Math).saved_bytes(), 3 * 4 * n * q + 4 * scores);
}

}  // namespace
}  // namespace fsdp::simulator
