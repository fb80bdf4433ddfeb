#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "simulator/allocator/allocator_trace.h"
#include "tests/support/allocator_any_trace.h"

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
  const Result<AllocatorTrace> trace = read_allocator_trace(golden, GetParam());
  ASSERT_TRUE(trace) << to_string(trace.error().front());
  const std::vector<std::string> actual = lines_of(replay_to_text(*trace, golden));
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

TEST(RecordedTraces, ReadBackAsWritten) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/allocator")) {
    if (entry.path().extension() != ".txt") continue;
    const Result<AllocatorTrace> trace = read_allocator_trace(read_golden(entry.path().stem().string()), "golden");
    ASSERT_TRUE(trace);
    EXPECT_GT(trace->steps.size(), 100U);
    EXPECT_EQ(read_allocator_trace(to_text(*trace), "written"), *trace) << entry.path();
  }
}

// What the original did with these traces is in the digests; the traces are made here, at random.
TEST(AnyTrace, GivesAllThatPyTorchGave) {
  std::ifstream in("tests/golden/allocator/any_trace_digests.tsv");
  int num_digests = 0;
  std::uint64_t seed = 0;
  std::uint64_t digest = 0;
  while (in >> seed >> digest) {
    ++num_digests;
    const AllocatorTrace trace = any_trace(seed);
    AllocatorReplay replay(trace);
    ASSERT_EQ(digest_of(trace, runner_of(replay)), digest)
        << "seed " << seed << ": where PyTorch is, allocator_oracle_test with FSDP_ALLOCATOR_SEED=" << seed
        << " and FSDP_ALLOCATOR_TRACES=1 prints the first line that differs";
  }
  EXPECT_GT(num_digests, 900);
}

std::vector<std::string> errors_of(std::string_view text) {
  std::vector<std::string> lines;
  const Result<AllocatorTrace> trace = read_allocator_trace(text, "t");
  if (trace) return lines;
  for (const Error& error : trace.error()) lines.push_back(to_string(error));
  return lines;
}

TEST(AllocatorTraceReader, ReportsEveryErrorWithItsPlace) {
  EXPECT_EQ(errors_of("!device_bites 5\n"
                      "alloc a 100 0\n"
                      "alloc a 1 0\n"
                      "aloc b 1 0\n"
                      "  free c | - -\n"
                      "alloc d -1 0\n"
                      "alloc e 1 32767\n"
                      "alloc f 1\n"
                      "fraction 1.5\n"
                      "config max_split_size_mb:1,expandible_segments:True\n"
                      "!events hold\n"),
            (std::vector<std::string>{
                "t:1:1: There is no header \"!device_bites\". Did you mean \"!device_bytes\"?",
                "t:3:7: \"a\" is live already. Free it first.",
                "t:4:1: There is no operation \"aloc\". Did you mean \"alloc\"?",
                "t:5:8: \"c\" is not live. Only memory that an alloc made and no free ended can be named.",
                "t:6:9: \"-1\" is not a size in bytes. Write a whole number up to 4398046511104.",
                "t:7:11: \"32767\" is not the number of a stream. Write a whole number up to 32766.",
                "t:8:1: \"alloc\" has 3 words. Write \"alloc ID BYTES STREAM\".",
                "t:9:10: \"1.5\" is not a share of the memory. Write a number from 0 to 1.",
                "t:10:8: PYTORCH_ALLOC_CONF: max_split_size_mb: Found \"1\". Write a whole number of MiB from 20 (the "
                "size of a large segment) up.",
                "t:10:8: PYTORCH_ALLOC_CONF: Unknown key \"expandible_segments\". Did you mean "
                "\"expandable_segments\"?",
                "t:11:1: A header comes after an operation. Headers come first; \"config\" changes settings.",
            }));
  EXPECT_EQ(errors_of("!addresses lowest\n"),
            (std::vector<std::string>{"t:1:12: Addresses \"lowest\" are not modeled. Write bump: they rise from 0."}));
}

TEST(AllocatorTraceReader, StopsAtFiftyErrors) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "free nobody\n";
  EXPECT_EQ(errors_of(text).size(), 50U);
}

TEST(AllocatorTraceReader, AcceptsAnyWordAsAnId) {
  const Result<AllocatorTrace> trace =
      read_allocator_trace("alloc 0x7f 1 0\nalloc 007 2 0\nalloc 7 3 0\nfree 007\nalloc 99999999 4 0\nfree 7\r\n", "t");
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->steps.size(), 6U);
  EXPECT_EQ(trace->steps[1].id, trace->steps[3].id);
  EXPECT_EQ(trace->steps[4].id, trace->steps[3].id) << "given out again";
  EXPECT_EQ(trace->steps[5].id, trace->steps[2].id);
}

}  // namespace
}  // namespace fsdp::simulator
