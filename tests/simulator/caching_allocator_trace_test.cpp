#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/allocator_trace.h"

namespace fsdp::simulator {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string read_golden(const std::string& name) {
  std::ifstream in("tests/golden/allocator/" + name + ".txt");
  EXPECT_TRUE(in) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class RecordedTrace : public testing::TestWithParam<std::string> {};

TEST_P(RecordedTrace, GivesTheAddressesSizesAndStatisticsOfPyTorchLineByLine) {
  const std::string golden = read_golden(GetParam());
  const std::vector<std::string> expected = lines_of(golden);
  const std::vector<std::string> actual = lines_of(replay_allocator_trace(golden));
  ASSERT_GT(expected.size(), 100U);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << "line " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Golden, RecordedTrace,
                         testing::Values("borders_of_sizes", "expandable_out_of_memory", "garbage_collection",
                                         "garbage_collection_two_streams", "large_segment_size", "max_split_size",
                                         "record_stream", "roundup_power2_divisions", "settings_changed_at_run_time",
                                         "training", "training_expandable", "training_record_stream_small_device"),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

TEST(RecordedTraces, AreAllReplayed) {
  std::size_t num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/allocator")) {
    if (entry.path().extension() == ".txt") ++num_files;
  }
  EXPECT_EQ(num_files, 12U) << "A new trace needs its name in the list above.";
}

TEST(TraceReader, ReportsAnOperationThatMakesNoSense) {
  EXPECT_TRUE(replay_allocator_trace("alloc a 100 0\nfree b\n").find("!! bad operation: free b\n") !=
              std::string::npos);
  EXPECT_TRUE(replay_allocator_trace("!addresses lowest\n").starts_with("!! bad header: !addresses lowest\n"));
}

}  // namespace
}  // namespace fsdp::simulator
