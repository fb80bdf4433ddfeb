#include "simulator/ops/attention_choice.h"

#include <gtest/gtest.h>

namespace fsdp::simulator {
namespace {

AttentionBackend choose(const AttentionCase& which) {
  return choose_attention(which, {});
}

TEST(AttentionChoice, SixteenBitTypesOnAmpereAndLaterTakeFlash) {
  for (const int capability : {80, 86, 90, 100}) {
    for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float16}) {
      EXPECT_EQ(choose({.dtype = dtype, .compute_capability = capability}), AttentionBackend::Flash);
      EXPECT_EQ(choose({.dtype = dtype, .grouped = true, .compute_capability = capability}), AttentionBackend::Flash);
    }
  }
}

TEST(AttentionChoice, HeadsUpTo256FitIntoFlash) {
  EXPECT_EQ(choose({.head_dim = 256, .value_dim = 256}), AttentionBackend::Flash);
  EXPECT_EQ(choose({.head_dim = 264, .value_dim = 264}), AttentionBackend::MemoryEfficient);
  EXPECT_EQ(choose({.head_dim = 260, .value_dim = 260}), AttentionBackend::Math);
}

TEST(AttentionChoice, MasksAndFp32TakeTheMemoryEfficientKernel) {
  EXPECT_EQ(choose({.mask = true}), AttentionBackend::MemoryEfficient);
  EXPECT_EQ(choose({.dtype = Dtype::Float32}), AttentionBackend::MemoryEfficient);
}

TEST(AttentionChoice, GroupedHeadsWithoutFlashFallToTheMathPath) {
  EXPECT_EQ(choose({.grouped = true, .mask = true}), AttentionBackend::Math);
  EXPECT_EQ(choose({.dtype = Dtype::Float32, .grouped = true}), AttentionBackend::Math);
}

TEST(AttentionChoice, ATeslaT4HasNoBf16KernelAndNoFlash) {
  EXPECT_EQ(choose({.dtype = Dtype::BFloat16, .compute_capability = 75}), AttentionBackend::Math);
  EXPECT_EQ(choose({.dtype = Dtype::Float16, .compute_capability = 75}), AttentionBackend::MemoryEfficient);
  EXPECT_EQ(choose({.dtype = Dtype::Float16, .grouped = true, .compute_capability = 75}), AttentionBackend::Math);
}

TEST(AttentionChoice, SoftcapAlwaysUsesEagerAttention) {
  Implementations implementations;
  implementations.attention = AttentionBackend::Flash;
  EXPECT_EQ(choose_attention({.written_out = true}, implementations), AttentionBackend::Eager);
}

TEST(AttentionChoice, PinnedBackendIsUsed) {
  Implementations implementations;
  implementations.attention = AttentionBackend::Math;
  EXPECT_EQ(choose_attention({}, implementations), AttentionBackend::Math);
}

TEST(AttentionChoice, CudnnComesFirstOnHopperOnlyIfPreferred) {
  Implementations implementations;
  implementations.prefer_cudnn_attention = true;
  EXPECT_EQ(choose_attention({.compute_capability = 90}, implementations), AttentionBackend::Cudnn);
  EXPECT_EQ(choose_attention({.compute_capability = 80}, implementations), AttentionBackend::Flash);
  EXPECT_EQ(choose_attention({.mask = true, .compute_capability = 90}, implementations),
            AttentionBackend::MemoryEfficient);
}

using enum AttentionBackend;

// Seen in PyTorch 2.11 on the stub GPU: forward and backward with one backend allowed.
TEST(AttentionRefusals, FlashAcceptsSixteenBitsAndOneWidthWithoutAMask) {
  EXPECT_EQ(refusal_of(Flash, {}), "");
  EXPECT_EQ(refusal_of(Flash, {.head_dim = 68, .value_dim = 68}), "") << "padded";
  EXPECT_EQ(refusal_of(Flash, {.dtype = Dtype::Float32}), "it supports float16 and bfloat16");
  EXPECT_EQ(refusal_of(Flash, {.dtype = Dtype::Float16, .compute_capability = 75}), "it needs compute capability 8.0");
  EXPECT_EQ(refusal_of(Flash, {.head_dim = 264, .value_dim = 264}), "head_dim must be at most 256");
  EXPECT_NE(refusal_of(Flash, {.head_dim = 192, .value_dim = 128}), "");
  EXPECT_NE(refusal_of(Flash, {.mask = true}), "");
  EXPECT_NE(refusal_of(Flash, {.causal_cross = true}), "");
}

TEST(AttentionRefusals, FlashTrainsNoHeadsOf224OnConsumerCards) {
  for (const int capability : {86, 89, 120}) {
    const auto refuses = [&](std::int64_t dim, bool dropout) {
      return !refusal_of(Flash,
                         {.head_dim = dim, .value_dim = dim, .dropout = dropout, .compute_capability = capability})
                  .empty();
    };
    EXPECT_FALSE(refuses(192, true));
    EXPECT_TRUE(refuses(200, false));
    EXPECT_TRUE(refuses(224, false));
    EXPECT_FALSE(refuses(256, false));
    EXPECT_TRUE(refuses(256, true));
  }
  EXPECT_EQ(refusal_of(Flash, {.head_dim = 224, .value_dim = 224, .compute_capability = 80}), "");
}

TEST(AttentionRefusals, MemoryEfficientAcceptsAlignedHeads) {
  const auto refusal = [](Dtype dtype, std::int64_t dim, int capability) {
    return refusal_of(MemoryEfficient,
                      {.dtype = dtype, .head_dim = dim, .value_dim = dim, .compute_capability = capability});
  };
  EXPECT_EQ(refusal(Dtype::Float16, 68, 80), "head_dim must be a multiple of 8 here");
  EXPECT_EQ(refusal(Dtype::Float16, 68, 75), "head_dim must be a multiple of 8 here");
  EXPECT_EQ(refusal(Dtype::Float32, 66, 80), "head_dim must be a multiple of 4 here");
  EXPECT_EQ(refusal(Dtype::Float32, 65, 75), "");
  EXPECT_EQ(refusal(Dtype::BFloat16, 64, 75), "it supports bfloat16 from compute capability 8.0 on");
  EXPECT_EQ(refusal(Dtype::Float16, 512, 75), "");
  EXPECT_NE(refusal(Dtype::Float64, 64, 90), "");
}

TEST(AttentionRefusals, CudnnAcceptsWiderHeadsOnHopperOnly) {
  const auto refusal = [](std::int64_t dim, std::int64_t value_dim, int capability) {
    return refusal_of(Cudnn, {.head_dim = dim, .value_dim = value_dim, .compute_capability = capability});
  };
  EXPECT_EQ(refusal(256, 256, 90), "");
  EXPECT_EQ(refusal(136, 136, 80), "head_dim must be at most 128 on this GPU");
  EXPECT_EQ(refusal(192, 128, 100), "");
  EXPECT_NE(refusal(192, 192, 100), "");
  EXPECT_NE(refusal(100, 100, 90), "");
  EXPECT_EQ(refusal_of(Cudnn, {.grouped = true, .mask = true}), "");
  EXPECT_EQ(refusal_of(Cudnn, {.mask = true, .mask_is_trained = true}), "the mask must not be trained");
}

TEST(AttentionRefusals, MathAndEagerAcceptEverything) {
  for (const AttentionBackend backend : {Math, Eager, Automatic}) {
    EXPECT_EQ(refusal_of(backend, {.dtype = Dtype::Float64, .head_dim = 999, .grouped = true, .mask = true}), "");
  }
  EXPECT_EQ(refusal_of(Flash, {.dtype = Dtype::Float32, .written_out = true}), "") << "eager, whatever was asked";
}

TEST(AttentionRefusals, NameAllowedBackends) {
  Implementations implementations;
  implementations.attention = Flash;
  EXPECT_EQ(to_string(*check_attention({.dtype = Dtype::Float32, .head_dim = 64, .value_dim = 64}, implementations)),
            "/runtime/implementations/attention: PyTorch refuses flash for float32, head_dim 64 and compute capability "
            "9.0: it supports float16 and bfloat16. Allowed here are automatic, memory_efficient, math and eager.");
}

}  // namespace
}  // namespace fsdp::simulator
