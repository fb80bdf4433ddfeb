// Keys and values that go into a cache, and slices written in place.

#include <gtest/gtest.h>

#include "tests/support/taped_block.h"

namespace fsdp::simulator {
namespace {

constexpr std::int64_t kBatch = 2, kSeq = 8, kHeads = 3, kDim = 16;
constexpr std::int64_t kBytes = 2 * kBatch * kSeq * kHeads * kDim;

TapedBlock cached(bool use_cache) {
  BlockBuilder b("test", "Test", {Value{"k", {kBatch, kSeq, kHeads, kDim}}, Value{"v", {kBatch, kSeq, kHeads, kDim}}});
  const BlockBuilder::KeyValue all = b.kv_cache(b.scale(b.input("k"), 2), b.scale(b.input("v"), 2));
  b.output("y", b.mul(all.key, all.value));
  TapedSettings settings;
  settings.rules.implementations.use_cache = use_cache;
  return tape_block(std::move(b), settings);
}

TEST(OpRulesOfTheCache, KeysAndValuesAreCopiedIfTheRuntimeCachesThem) {
  EXPECT_EQ(allocations(cached(false).tape.forward)[kBytes], 3);  // Both scaled, and their product.
  EXPECT_EQ(allocations(cached(true).tape.forward)[kBytes], 5);
}

TEST(OpRulesOfTheCache, CopiesAreFreedOnceBothAreCached) {
  // Both scaled and both copies; the product comes when the scaled ones are gone.
  EXPECT_EQ(peak_of(cached(true).tape.forward), 4 * kBytes);
}

TEST(OpRulesOfASlice, IsWrittenInPlaceAndItsGradientCopied) {
  BlockBuilder b("test", "Test", {Value{"x", {kBatch, kSeq, kDim}}, Value{"part", {kBatch, 1, kDim}}});
  b.output("y", b.set_slice(b.scale(b.input("x"), 2), b.input("part"), 1, 3));
  const TapedBlock taped = tape_block(std::move(b));
  constexpr std::int64_t kWhole = 2 * kBatch * kSeq * kDim, kPart = 2 * kBatch * kDim;
  EXPECT_EQ(allocations(taped.tape.forward), (AllocationCounts{{kWhole, 1}}));
  const AllocationCounts backward = allocations(taped.tape.backward);
  EXPECT_EQ(backward.at(kWhole), 2);  // The copy, and the gradient of what was scaled.
  EXPECT_EQ(backward.at(kPart), 3);   // The gradient of the part, and two copies of that slice.
}

}  // namespace
}  // namespace fsdp::simulator
