#include "simulator/attention_choice.h"

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
  EXPECT_EQ(choose({.head_dim = 256}), AttentionBackend::Flash);
  EXPECT_EQ(choose({.head_dim = 264}), AttentionBackend::MemoryEfficient);
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

TEST(AttentionChoice, CappedScoresAreWrittenOutWhateverWasAsked) {
  Implementations implementations;
  implementations.attention = AttentionBackend::Flash;
  EXPECT_EQ(choose_attention({.softcap = true}, implementations), AttentionBackend::Eager);
}

TEST(AttentionChoice, WhatTheRuntimePinsIsTaken) {
  Implementations implementations;
  implementations.attention = AttentionBackend::Math;
  EXPECT_EQ(choose_attention({}, implementations), AttentionBackend::Math);
}

TEST(AttentionChoice, CudnnComesFirstOnHopperOnlyWhereTheRuntimePrefersIt) {
  Implementations implementations;
  implementations.prefer_cudnn_attention = true;
  EXPECT_EQ(choose_attention({.compute_capability = 90}, implementations), AttentionBackend::Cudnn);
  EXPECT_EQ(choose_attention({.compute_capability = 80}, implementations), AttentionBackend::Flash);
  EXPECT_EQ(choose_attention({.mask = true, .compute_capability = 90}, implementations),
            AttentionBackend::MemoryEfficient);
}

}  // namespace
}  // namespace fsdp::simulator
