// A reentrant checkpoint of a block: it runs again to its end, and its node holds the output and the gradient of it.

#include <gtest/gtest.h>

#include <map>

#include "simulator/ops/tape.h"
#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kReentrantRows = 64;
constexpr std::int64_t kReentrantWidth = 128;
constexpr std::int64_t kReentrantBytes = 2 * kReentrantRows * kReentrantWidth;  // Bytes of x, in bf16.

// y = x + down(silu(up(x))). Ops: 0 up, 1 silu, 2 down, 3 add.
TapedBlock mlp(CheckpointMode mode) {
  BlockBuilder b("op", "Op", {{"x", {1, kReentrantRows, kReentrantWidth}}});
  const BlockValue x = b.input("x");
  const BlockValue up = b.linear("up_proj", x, 4 * kReentrantWidth);
  b.output("y", b.add(x, b.linear("down_proj", b.silu(up), kReentrantWidth)));
  return tape_block(std::move(b), {.mode = mode});
}

TEST(ReentrantTape, RunsTheWholeBlockAgain) {
  EXPECT_EQ(mlp(CheckpointMode::Full).tape.recomputed, (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(mlp(CheckpointMode::Reentrant).tape.recomputed, (std::vector<bool>{true, true, true, true}));
  // up and silu of four times x, the result of down, and the output.
  EXPECT_EQ(allocations(mlp(CheckpointMode::Reentrant).tape.recompute),
            (AllocationCounts{{kReentrantBytes, 2}, {4 * kReentrantBytes, 2}}));
}

TEST(ReentrantTape, HoldsTheOutputUntilTheBackwardIsOver) {
  const Tape tape = mlp(CheckpointMode::Reentrant).tape;
  std::map<int, std::int64_t> left;
  for (const TapeEvent& event : tape.recompute) {
    if (event.kind == TapeEvent::Kind::Alloc) left[event.storage] = event.bytes;
    if (event.kind == TapeEvent::Kind::Free) left.erase(event.storage);
  }
  std::map<std::int64_t, int> sizes;
  for (const auto& [storage, bytes] : left) ++sizes[bytes];
  EXPECT_EQ(sizes, (std::map<std::int64_t, int>{{kReentrantBytes, 1}, {4 * kReentrantBytes, 2}}))
      << "the output, and what two nodes have saved";
  // The last events free it and give up the gradient of it, after the gradient of the input is handed out.
  std::vector<TapeEvent::Kind> order;
  for (const TapeEvent& event : tape.backward) {
    const bool is_output = event.kind == TapeEvent::Kind::Free && left.contains(event.storage) &&
                           left.at(event.storage) == kReentrantBytes;
    const bool is_given_up = event.kind == TapeEvent::Kind::ReleaseGradOut;
    if (is_output || is_given_up || event.kind == TapeEvent::Kind::EmitGrad) order.push_back(event.kind);
  }
  EXPECT_EQ(order, (std::vector<TapeEvent::Kind>{TapeEvent::Kind::EmitGrad, TapeEvent::Kind::Free,
                                                 TapeEvent::Kind::ReleaseGradOut}));
}

TEST(ReentrantTape, FreesEverythingThatItAllocates) {
  const TapedBlock block = mlp(CheckpointMode::Reentrant);
  std::map<int, std::int64_t> left;
  for (const auto* events : {&block.tape.forward, &block.tape.recompute, &block.tape.backward}) {
    for (const TapeEvent& event : *events) {
      if (event.kind == TapeEvent::Kind::Alloc) {
        EXPECT_TRUE(left.emplace(event.storage, event.bytes).second) << "allocated twice: " << event.storage;
      }
      if (event.kind == TapeEvent::Kind::Free || event.kind == TapeEvent::Kind::EmitGrad) {
        EXPECT_EQ(left.erase(event.storage), 1) << "freed twice: " << event.storage;
      }
    }
  }
  ASSERT_EQ(left.size(), 1);  // The output of the forward.
  EXPECT_EQ(left.begin()->first, block.tape.output.front().index);
}

}  // namespace
}  // namespace fsdp::simulator
