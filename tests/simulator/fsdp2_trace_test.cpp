// The memory walk against every allocation that the real FSDP2 made (tests/golden/fsdp2_trace).

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/support/memory_phases.h"
#include "tests/support/prepared_plan.h"
#include "tests/support/traced_models.h"

namespace fsdp::simulator {
namespace {

std::vector<MemoryPhase> read_golden() {
  std::ifstream file("tests/golden/fsdp2_trace/tiny_llama.txt");
  std::vector<MemoryPhase> phases(1);
  std::map<int, std::int64_t> live;
  std::int64_t total = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "alloc") {
      std::int64_t bytes = 0;
      int stream = 0;
      int number = 0;
      words >> bytes >> stream >> number;
      live[number] = bytes;
      total += bytes;
      ++phases.back().allocations[{stream, bytes}];
      phases.back().peak = std::max(phases.back().peak, total);
    } else if (what == "free") {
      int number = 0;
      words >> number;
      total -= live[number];
    } else if (what == "end") {
      words >> phases.back().name;
      phases.back().at_end = total;
      phases.emplace_back();
      phases.back().peak = total;
    }
  }
  phases.pop_back();
  return phases;
}

Plan plan_of_the_trace() {
  Plan plan;
  plan.mesh = {1, 4};
  for (int layer = 0; layer < 3; ++layer) plan.units.push_back({{"blocks." + std::to_string(layer)}, {}});
  plan.units.push_back({{""}, {ReshardAfterForward::Kind::Always, 0}});
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  plan.runtime.implementations.rms_norm = RmsNormImplementation::Fused;
  plan.runtime.implementations.rotary = RotaryImplementation::HalvesSeqFirst;
  return plan;
}

// The phases of initialization and three steps.
std::vector<MemoryPhase> walk() {
  const TracedSizes sizes{
      .hidden = 256, .heads = 4, .kv_heads = 2, .ffn = 704, .layers = 3, .vocabulary = 4000, .seq = 256};
  return walk_phases(PreparedRun(traced_llama(sizes), plan_of_the_trace()).prepared(), 3);
}

TEST(TracedLlama, EveryAllocationOfEveryPhaseIsMade) {
  const std::vector<MemoryPhase> golden = read_golden();
  const std::vector<MemoryPhase> ours = walk();
  ASSERT_EQ(golden.size(), 13u);
  ASSERT_EQ(ours.size(), golden.size());
  // Initialization differs: the run built the whole model on the device first.
  for (std::size_t p = 1; p < golden.size(); ++p) EXPECT_EQ(differences(golden[p], ours[p]), "") << golden[p].name;
}

TEST(TracedLlama, LiveBytesAreEqualToTheByteAtEachPhasesPeakAndEnd) {
  const std::vector<MemoryPhase> golden = read_golden();
  const std::vector<MemoryPhase> ours = walk();
  ASSERT_EQ(ours.size(), golden.size());
  // The rotary tables were made once, in fp32 first; only the bf16 pair of 256 x 64 stays.
  const std::int64_t tables = 2 * 256 * 64 * 2;
  for (std::size_t p = 1; p < golden.size(); ++p) {
    EXPECT_EQ(ours[p].peak + tables, golden[p].peak) << golden[p].name;
    EXPECT_EQ(ours[p].at_end + tables, golden[p].at_end) << golden[p].name;
  }
}

}  // namespace
}  // namespace fsdp::simulator
