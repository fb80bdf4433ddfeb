#include "replay/replay.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fsdp::replay {
namespace {

Recording read_trace(std::string text) {
  Result<Recording> recording = read_recorded_trace(std::move(text), "t.txt");
  EXPECT_TRUE(recording) << to_string(recording.error().front());
  return recording ? *std::move(recording) : Recording();
}

// 24 MiB asked for twice with a free between: the second one does not fit into what the first left.
constexpr const char* kGrowing =
    "!device_bytes 104857600\n"
    "alloc a 25165824 0\n"
    "free a\n"
    "alloc b 27262976 0\n"
    "free b\n"
    "alloc c 29360128 0\n";

TEST(Replay, FollowsTheFirstMomentOfEachPeak) {
  const ReplayResult result = replay(read_trace(kGrowing), as_recorded(read_trace(kGrowing)));
  EXPECT_EQ(result.requested_peak, Bytes(29360128));
  EXPECT_EQ(result.allocated_peak, Bytes(29360128));
  EXPECT_EQ(result.reserved_peak, Bytes(25165824 + 27262976 + 29360128));
  EXPECT_EQ(result.reserved_peak_step, 4U);
  EXPECT_EQ(result.unused_at_peak, Bytes(25165824 + 27262976));
  EXPECT_EQ(result.num_refused, 0);
  EXPECT_EQ(result.reserved,
            (std::vector<Bytes>{Bytes(25165824), Bytes(25165824), Bytes(52428800), Bytes(52428800), Bytes(81788928)}));
}

TEST(Replay, ExpandableSegmentsGrowInPlace) {
  const Recording recording = read_trace(kGrowing);
  ReplayRequest request = as_recorded(recording);
  request.settings.expandable_segments = true;
  const ReplayResult result = replay(recording, request);
  EXPECT_EQ(result.reserved_peak, Bytes(40LL << 20)) << "two pages of 20 MiB";
  EXPECT_EQ(result.unused_at_peak, Bytes(16LL << 20)) << "of the first request";
}

TEST(Replay, FindsTheRequestThatRunsOut) {
  const Recording recording = read_trace(kGrowing);
  ReplayRequest request = as_recorded(recording);
  request.device.total = Bytes(28LL << 20);
  const ReplayResult fits = replay(recording, request);
  EXPECT_FALSE(fits.first_refusal) << "the cache is emptied first";
  EXPECT_EQ(fits.statistics.num_alloc_retries, 2);
  request.device.total = Bytes(27LL << 20);
  const ReplayResult result = replay(recording, request);
  ASSERT_TRUE(result.first_refusal);
  EXPECT_EQ(result.first_refusal->step, 4U);
  EXPECT_EQ(result.first_refusal->failure.requested, Bytes(29360128));
}

TEST(Replay, ResetPeakDoesNotHideThePeak) {
  const Recording recording = read_trace("alloc a 30000000 0\nfree a\nempty_cache\nreset_peak\nalloc b 100 0\n");
  EXPECT_EQ(replay(recording, as_recorded(recording)).requested_peak, Bytes(30000000));
}

TEST(Replay, GoldenTracesReserveWhatPyTorchReserved) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/allocator")) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream in(entry.path());
    const Recording recording = read_trace({std::istreambuf_iterator<char>(in), {}});
    ASSERT_EQ(recording.reserved.size(), recording.trace.steps.size()) << entry.path();
    EXPECT_TRUE(recording.knows_device);
    const ReplayResult result = replay(recording, as_recorded(recording));
    EXPECT_EQ(result.reserved, highest_of_parts(recording.reserved, kReplayColumns)) << entry.path();
  }
}

TEST(HighestOfParts, KeepsAShortPeak) {
  EXPECT_EQ(highest_of_parts({Bytes(1), Bytes(9), Bytes(2), Bytes(3), Bytes(1)}, 2),
            (std::vector<Bytes>{Bytes(9), Bytes(3)}));
  EXPECT_EQ(highest_of_parts({Bytes(1)}, 5), (std::vector<Bytes>{Bytes(1)}));
  EXPECT_TRUE(highest_of_parts({}, 5).empty());
}

}  // namespace
}  // namespace fsdp::replay
