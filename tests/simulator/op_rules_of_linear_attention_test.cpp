// What the rules of linear attention save for backward, in closed form.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/spec/block_builder.h"
#include "simulator/ops/op_rules.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

BlockBuilder builder_with(const std::vector<Value>& inputs) {
  BlockBuilder b("op", "Op", inputs);
  for (const Value& input : inputs) b.input(input.name);
  return b;
}

TapedBlock delta_rule() {
  BlockBuilder b =
      builder_with({{"mixed", {1, 100, 24}}, {"beta", {1, 100, 2}}, {"decay", {1, 100, 2}, Dtype::Float32}});
  b.output("y", b.op({.kind = OpKind::GatedDeltaRule,
                      .inputs = {b.input("mixed"), b.input("decay"), b.input("beta")},
                      .attributes = {.heads = 2, .kv_heads = 2, .head_dim = 4, .length = 64}})[0]);
  return tape_block(std::move(b));
}

TEST(OpRulesOfLinearAttention, DeltaRuleSavesChunksStatesAndItsSystems) {
  // Two heads of d = 4 numbers; 100 positions are 128 in two chunks of C = 64: R0 = 200 rows, R = 256 with padding.
  const std::int64_t given = 200, rows = 256, d = 4, chunk = 64;
  // Queries and keys in fp32 and their inverse roots, before the padding.
  const std::int64_t norms = 2 * 4 * given * (d + 1);
  // q, k, v, k beta, u, w, both decayed, and v' of the loop; beta and three decays.
  const std::int64_t by_row = 9 * 4 * rows * d + 4 * 4 * rows;
  // Decays between positions, two products, the system, the scores; a mask of booleans.
  const std::int64_t by_pair = 5 * 4 * rows * chunk + chunk * chunk;
  // A decay for each chunk of each head, and the two states that the chunks begin with.
  const std::int64_t by_chunk = 4 * 2 * 2 + 2 * 4 * 2 * d * d;
  EXPECT_EQ(delta_rule().saved_bytes(), norms + by_row + by_pair + by_chunk);
}

TEST(OpRulesOfLinearAttention, GatedNormSavesSixteenBytesForEachElement) {
  BlockBuilder b = builder_with({{"x", {2, 256, 256}}, {"gate", {2, 256, 256}}});
  b.output("y", b.op({.kind = OpKind::GatedRmsNorm,
                      .inputs = {b.input("x"), b.input("gate")},
                      .parameters = {b.parameter_of("", "weight", {256})},
                      .attributes = {.eps = 1e-6}})[0]);
  // x, the gate and its SiLU in fp32, the norm before and after the weight in bf16, and the inverse roots.
  const std::int64_t rows = 512, nh = rows * 256;
  EXPECT_EQ(tape_block(std::move(b)).saved_bytes(), (4 + 4 + 4 + 2 + 2) * nh + 4 * rows);
}

}  // namespace
}  // namespace fsdp::simulator
