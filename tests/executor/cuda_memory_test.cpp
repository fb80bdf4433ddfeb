// Run this with the stub GPU preloaded: the allocator is PyTorch's own, its memory does not exist.

#include "executor/memory/cuda_memory.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <optional>

namespace fsdp::executor {
namespace {

std::int64_t counted() {
  std::int64_t sum = 0;
  for (const auto& bytes : live_bytes()) sum += bytes.count();
  return sum;
}

at::Tensor on_card(std::int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(c10::kByte).device(c10::kCUDA, 0));
}

// The allocator keeps its trackers until the process ends.
TEST(CudaMemory, AllocationsAfterItsEndAreNotCounted) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  std::optional<CudaMemory> memory(std::in_place, 0, "", true);
  const std::int64_t before = counted();
  at::Tensor first = on_card(1000);
  EXPECT_EQ(counted(), before + 1000);
  memory.reset();
  const at::Tensor second = on_card(2000);
  EXPECT_EQ(counted(), before + 1000);
  first.reset();
  EXPECT_EQ(counted(), before + 1000);
}

}  // namespace
}  // namespace fsdp::executor
