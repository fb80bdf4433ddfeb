// Checkpoints inside of the checkpoint of a block: what is kept, what runs again, and when it is freed.

#include <gtest/gtest.h>

#include <map>

#include "core/plan/nested_checkpoints.h"
#include "simulator/ops/tape.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kNestedRows = 64;
constexpr std::int64_t kNestedWidth = 128;
constexpr std::int64_t kNestedBytes = 2 * kNestedRows * kNestedWidth;  // Bytes of x, in bf16.

// h = x + o(silu(q(silu(x)))), y = h + down(silu(up(silu(h)))); the first and the third silu are modules, too.
// Ops: 0 silu, 1 q, 2 silu, 3 o, 4 add, 5 silu, 6 up, 7 silu, 8 down, 9 add.
TapedBlock decoder(CheckpointMode mode, std::string_view attention = "self_attn") {
  BlockBuilder b("op", "Op", {{"x", {1, kNestedRows, kNestedWidth}}});
  const BlockValue x = b.input("x");
  const auto called = [&](std::string_view name, const auto& forward) {
    const auto scope = b.enter(name, "Module");
    return forward();
  };
  const BlockValue normed = called("input_layernorm", [&] { return b.silu(x); });
  const BlockValue attended = called(
      attention, [&] { return b.linear("o_proj", b.silu(b.linear("q_proj", normed, kNestedWidth)), kNestedWidth); });
  const BlockValue h = b.add(x, attended);
  const BlockValue normed_again = called("post_attention_layernorm", [&] { return b.silu(h); });
  const BlockValue out = called("mlp", [&] {
    return b.linear("down_proj", b.silu(b.linear("up_proj", normed_again, 4 * kNestedWidth)), kNestedWidth);
  });
  b.output("y", b.add(h, out));
  return tape_block(std::move(b), {.mode = mode});
}

TEST(NestedTape, TheModulesThatTheBlockCallsAreCheckpoints) {
  const auto inner = inner_checkpoints(decoder(CheckpointMode::None).block);
  ASSERT_TRUE(inner);
  EXPECT_EQ(*inner, (std::vector<InnerCheckpoint>{{{0, 1}, false}, {{1, 4}, true}, {{5, 6}, false}, {{6, 9}, false}}));
  EXPECT_FALSE(inner_checkpoints(decoder(CheckpointMode::None, "attn").block)) << "called by position";
}

TEST(NestedTape, KeepsTheInputOfAttentionToo) {
  const TapedBlock nested = decoder(CheckpointMode::Nested);
  EXPECT_EQ(decoder(CheckpointMode::Full).tape.kept_bytes, 0);
  EXPECT_EQ(nested.tape.kept_bytes, kNestedBytes);
  EXPECT_TRUE(nested.keeps_input(0));
}

// The block runs up to its MLP. What stays is h, for the norm, and what the norm made of it, for the MLP.
TEST(NestedTape, TheBlockRunsAgainUpToItsLastCheckpoint) {
  const Tape tape = decoder(CheckpointMode::Nested).tape;
  EXPECT_EQ(tape.recomputed, (std::vector<bool>{true, true, true, true, true, true, false, false, false, false}));
  EXPECT_EQ(allocations(tape.recompute), (AllocationCounts{{kNestedBytes, 6}}));
  std::map<int, std::int64_t> left;
  for (const TapeEvent& event : tape.recompute) {
    if (event.kind == TapeEvent::Kind::Alloc) left[event.storage] = event.bytes;
    if (event.kind == TapeEvent::Kind::Free) left.erase(event.storage);
  }
  EXPECT_EQ(left.size(), 2);
}

// Each inner checkpoint stops at its last saved tensor: a silu's and a linear layer's input, packed before they run.
TEST(NestedTape, EachInnerCheckpointRunsAgainInBackward) {
  const Tape tape = decoder(CheckpointMode::Nested).tape;
  EXPECT_EQ(tape.recomputed_inside,
            (std::vector<bool>{false, true, true, false, false, false, true, true, false, false}));
  EXPECT_TRUE(decoder(CheckpointMode::Full).tape.recomputed_inside.empty());
}

TEST(NestedTape, FreesEverythingThatItAllocates) {
  const TapedBlock nested = decoder(CheckpointMode::Nested);
  std::map<int, std::int64_t> left;
  for (const auto* events : {&nested.tape.forward, &nested.tape.recompute, &nested.tape.backward}) {
    for (const TapeEvent& event : *events) {
      if (event.kind == TapeEvent::Kind::Alloc) {
        EXPECT_TRUE(left.emplace(event.storage, event.bytes).second) << "allocated twice: " << event.storage;
      }
      if (event.kind == TapeEvent::Kind::Free || event.kind == TapeEvent::Kind::EmitGrad) {
        EXPECT_EQ(left.erase(event.storage), 1) << "freed twice: " << event.storage;
      }
    }
  }
  ASSERT_EQ(left.size(), 1);  // The output.
  EXPECT_EQ(left.begin()->first, nested.tape.output.front().index);
}

}  // namespace
}  // namespace fsdp::simulator
