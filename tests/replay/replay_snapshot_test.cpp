#include <gtest/gtest.h>

#include "replay/replay.h"
#include "tests/support/snapshot_pickle.h"

namespace fsdp::replay {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kBase = 0x7f00'0000'0000;

std::string trace_of(const Recording& recording) {
  return recording.text.substr(recording.text.find("!addresses bump\n") + 16);
}

Recording read_snapshot(const std::string& pickle) {
  Result<Recording> recording = read_recorded_snapshot(pickle, "s.pickle");
  EXPECT_TRUE(recording) << to_string(recording.error().front());
  return recording ? *std::move(recording) : Recording();
}

std::vector<std::string> errors_of(const std::string& pickle) {
  std::vector<std::string> lines;
  const Result<Recording> recording = read_recorded_snapshot(pickle, "s.pickle");
  if (recording) return lines;
  for (const Error& error : recording.error()) lines.push_back(to_string(error));
  return lines;
}

TEST(Snapshot, BecomesTheRequestsOfTheProgram) {
  const Recording recording = read_snapshot(planner::snapshot_of({
      planner::snapshot_event("segment_alloc", kBase, 20 * kMiB),
      planner::snapshot_event("alloc", kBase, 5 * kMiB, 0, 12),
      planner::snapshot_event("alloc", kBase + 5 * kMiB, 4 * kMiB, 0, 13),
      planner::snapshot_event("free_requested", kBase, 5 * kMiB),
      planner::snapshot_event("free_completed", kBase, 5 * kMiB),
      planner::snapshot_event("alloc", kBase, 3 * kMiB, 0, 14),
  }));
  EXPECT_EQ(trace_of(recording), "alloc 0 5242880 0\nalloc 1 4194304 0\nfree 0\nalloc 0 3145728 0\n");
  EXPECT_FALSE(recording.knows_device);
  EXPECT_EQ(recording.num_before, 0U);
  EXPECT_EQ(recording.reserved, (std::vector<Bytes>(4, Bytes(20 * kMiB))));
  const ReplayResult result = replay(recording, as_recorded(recording));
  EXPECT_EQ(result.reserved_peak, Bytes(20 * kMiB));
  EXPECT_EQ(result.allocated_peak, Bytes(9 * kMiB));
  EXPECT_EQ(recording.origin(1).stack.front(), (PythonFrame{"train.py", 13, "main"}));
  EXPECT_EQ(recording.origin(1).time_us, 1'013'000);
}

TEST(Snapshot, NumbersStreamsByTheirFirstRequest) {
  const Recording recording = read_snapshot(planner::snapshot_of(
      {planner::snapshot_event("alloc", kBase, 100, 987654), planner::snapshot_event("alloc", kBase + 512, 100, 0),
       planner::snapshot_event("alloc", kBase + 1024, 100, 987654)}));
  EXPECT_EQ(trace_of(recording), "alloc 0 100 0\nalloc 1 100 1\nalloc 2 100 0\n");
}

TEST(Snapshot, BlockOfAnotherStreamLivesUntilItsFreeCompletes) {
  const Recording recording = read_snapshot(planner::snapshot_of({
      planner::snapshot_event("segment_alloc", kBase, 2 * kMiB),
      planner::snapshot_event("alloc", kBase, 512),
      planner::snapshot_event("free_requested", kBase, 512),
      planner::snapshot_event("alloc", kBase + 512, 512),
      planner::snapshot_event("free_completed", kBase, 512),
      planner::snapshot_event("alloc", kBase, 512),
  }));
  EXPECT_EQ(trace_of(recording), "alloc 0 512 0\nrecord 0 1\nfree 0\nalloc 0 512 0\nsync 1\nalloc 1 512 0\n");
  const std::string replayed =
      simulator::replay_to_text(recording.trace, recording.text, recording.trace.device, recording.trace.settings);
  EXPECT_NE(replayed.find("alloc 0 512 0 | 200 512"), std::string::npos) << "waits";
  EXPECT_NE(replayed.find("alloc 1 512 0 | 0 512"), std::string::npos) << "is free again";
}

// 40 MiB come and go, and their segment with them; then `next`.
Recording read_after_a_flush(const std::vector<std::string>& next) {
  std::vector<std::string> events = {
      planner::snapshot_event("segment_alloc", kBase, 40 * kMiB),
      planner::snapshot_event("alloc", kBase, 40 * kMiB),
      planner::snapshot_event("free_requested", kBase, 40 * kMiB),
      planner::snapshot_event("free_completed", kBase, 40 * kMiB),
      planner::snapshot_event("segment_free", kBase, 40 * kMiB),
  };
  events.insert(events.end(), next.begin(), next.end());
  return read_snapshot(planner::snapshot_of(events));
}

TEST(Snapshot, CacheEmptiedWithoutNeedIsARequestOfTheProgram) {
  const Recording recording = read_after_a_flush({
      planner::snapshot_event("segment_alloc", kBase, 30 * kMiB),
      planner::snapshot_event("alloc", kBase, 30 * kMiB),
      planner::snapshot_event("segment_alloc", kBase + 100 * kMiB, 50 * kMiB),
      planner::snapshot_event("alloc", kBase + 100 * kMiB, 50 * kMiB),
  });
  EXPECT_EQ(trace_of(recording), "alloc 0 41943040 0\nfree 0\nempty_cache\nalloc 0 31457280 0\nalloc 1 52428800 0\n");
  EXPECT_FALSE(recording.knows_device);
}

TEST(Snapshot, CacheEmptiedUnderPressureMeansAFullDevice) {
  const Recording recording = read_after_a_flush({
      planner::snapshot_event("segment_alloc", kBase, 50 * kMiB),
      planner::snapshot_event("alloc", kBase, 50 * kMiB),
  });
  EXPECT_EQ(trace_of(recording), "alloc 0 41943040 0\nfree 0\nalloc 0 52428800 0\n");
  // 90 MiB at once were too much.
  EXPECT_EQ(recording.trace.device.total, Bytes(88 * kMiB));
  const ReplayResult result = replay(recording, as_recorded(recording));
  EXPECT_EQ(result.statistics.num_alloc_retries, 1);
  EXPECT_EQ(result.reserved_peak, Bytes(50 * kMiB));
}

// The same events as a flush in need, but for the stack: a call of torch.cuda.empty_cache() at the peak.
TEST(Snapshot, StackTraceShowsThatTheProgramEmptiedTheCache) {
  for (const char* function : {"empty_cache", "THCPModule_emptyCache(_object*, _object*)"}) {
    const Recording recording = read_snapshot(planner::snapshot_of({
        planner::snapshot_event("segment_alloc", kBase, 40 * kMiB),
        planner::snapshot_event("alloc", kBase, 40 * kMiB),
        planner::snapshot_event("free_requested", kBase, 40 * kMiB),
        planner::snapshot_event("free_completed", kBase, 40 * kMiB),
        planner::snapshot_event("segment_free", kBase, 40 * kMiB, 0, 7, function),
        planner::snapshot_event("segment_alloc", kBase, 50 * kMiB),
        planner::snapshot_event("alloc", kBase, 50 * kMiB),
    }));
    EXPECT_EQ(trace_of(recording), "alloc 0 41943040 0\nfree 0\nempty_cache\nalloc 0 52428800 0\n");
    EXPECT_FALSE(recording.knows_device);
    EXPECT_EQ(replay(recording, as_recorded(recording)).statistics.num_alloc_retries, 0);
  }
}

TEST(Snapshot, OutOfMemoryEventGivesTheDeviceSize) {
  const Recording recording = read_snapshot(planner::snapshot_of({
      planner::snapshot_event("segment_alloc", kBase, 40 * kMiB),
      planner::snapshot_event("alloc", kBase, 40 * kMiB, 0, 7),
      planner::snapshot_event("oom", 10 * kMiB, 60 * kMiB, 0, 8),
  }));
  EXPECT_TRUE(recording.knows_device);
  EXPECT_EQ(recording.trace.device.total, Bytes(50 * kMiB));
  const ReplayResult result = replay(recording, as_recorded(recording));
  ASSERT_TRUE(result.first_refusal);
  EXPECT_EQ(result.first_refusal->failure.requested, Bytes(60 * kMiB));
  EXPECT_EQ(result.first_refusal->failure.device_free, Bytes(10 * kMiB));
  EXPECT_EQ(recording.origin(result.first_refusal->step).stack.front().line, 8);
  ReplayRequest larger = as_recorded(recording);
  larger.device.total = Bytes(100 * kMiB);
  EXPECT_FALSE(replay(recording, larger).first_refusal);
}

TEST(Snapshot, AllocatesEarlierBlocksFirst) {
  const Recording recording = read_snapshot(planner::snapshot_of(
      {
          planner::snapshot_event("free_requested", kBase + 8 * kMiB, 8 * kMiB),
          planner::snapshot_event("free_completed", kBase + 8 * kMiB, 8 * kMiB),
          planner::snapshot_event("alloc", kBase + 8 * kMiB, 4 * kMiB),
      },
      {planner::snapshot_segment(kBase, {8 * kMiB, 4 * kMiB, -8 * kMiB}),
       planner::snapshot_segment(kBase + 32 * kMiB, {64 * kMiB}, 5)}));
  EXPECT_EQ(recording.num_before, 3U);
  EXPECT_EQ(recording.bytes_before, Bytes(80 * kMiB));
  EXPECT_EQ(recording.reserved_before, Bytes(84 * kMiB));
  EXPECT_EQ(trace_of(recording),
            "alloc 0 8388608 0\nalloc 1 8388608 0\nalloc 2 67108864 1\nfree 1\nalloc 1 4194304 0\n");
  ASSERT_EQ(recording.notes.size(), 1U);
  EXPECT_EQ(
      recording.notes[0],
      "80.0 MiB in 3 blocks were there before the recording began; other settings begin without its free memory.");
}

// Live at the beginning: 8 MiB at 0 and 5 MiB at 12 MiB of a segment of 20 MiB, which left 0.5 MiB to the latter; half
// of a small segment; and nothing of a segment of 32 MiB, which is given back later.
TEST(Snapshot, BeginsWithTheFreeMemoryOfThatMoment) {
  constexpr std::int64_t kHalf = kMiB / 2;
  const Recording recording = read_snapshot(planner::snapshot_of(
      {
          planner::snapshot_event("alloc", kBase + 8 * kMiB, 4 * kMiB),
          planner::snapshot_event("alloc", kBase + 64 * kMiB, 30 * kMiB),
          planner::snapshot_event("free_requested", kBase + 64 * kMiB, 30 * kMiB),
          planner::snapshot_event("free_completed", kBase + 64 * kMiB, 30 * kMiB),
          planner::snapshot_event("segment_free", kBase + 64 * kMiB, 32 * kMiB),
      },
      {planner::snapshot_segment(kBase, {8 * kMiB, 4 * kMiB, 5 * kMiB, -kHalf, 2 * kMiB, -kHalf}),
       planner::snapshot_segment(kBase + 32 * kMiB, {-kHalf, kMiB, -kHalf})}));
  EXPECT_EQ(recording.num_before, 4U);
  EXPECT_EQ(recording.reserved_before, Bytes(54 * kMiB));
  EXPECT_EQ(trace_of(recording).substr(trace_of(recording).find("alloc 4")),
            "alloc 4 4194304 0\nalloc 5 31457280 0\nfree 5\nempty_cache\n");
  const ReplayResult result = replay(recording, as_recorded(recording));
  EXPECT_EQ(result.reserved_peak, Bytes(54 * kMiB)) << "no request needed a segment";
  EXPECT_EQ(result.requested_peak, Bytes(50 * kMiB)) << "what fills free memory up at first does not count";
  simulator::AllocatorReplay again(recording.trace);
  for (const auto& step : recording.exact_before) again.apply(step);
  std::vector<std::int64_t> sizes;
  for (const simulator::SegmentSnapshot& segment : again.allocator().snapshot()) {
    for (const simulator::BlockSnapshot& block : segment.blocks) {
      const bool is_free = block.state == simulator::SnapshotState::Free;
      sizes.push_back(is_free ? -block.size.count() : block.size.count());
    }
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{8 * kMiB, -4 * kMiB, 5 * kMiB + kHalf, 2 * kMiB + kHalf,  //
                                              -kHalf, kMiB, -kHalf,                                     //
                                              -32 * kMiB}));
}

TEST(Snapshot, HasItsSettings) {
  const Recording recording = read_snapshot(planner::snapshot_of(
      {planner::snapshot_event("alloc", kBase, 512)}, {}, " expandable_segments:True, large_segment_size_mb:32\n"));
  EXPECT_TRUE(recording.trace.settings.expandable_segments);
  EXPECT_EQ(recording.trace.settings.large_segment_size, Bytes(32 * kMiB));
  EXPECT_EQ(simulator::read_allocator_trace(recording.text, "again"), recording.trace) << "blanks are gone";
}

TEST(Snapshot, ReportsEveryError) {
  const std::string bad = planner::pickled_dict(
      {{"action", planner::pickled("alloc")}, {"addr", planner::pickled("x")}, {"size", planner::pickled(-1)}});
  EXPECT_EQ(errors_of(planner::snapshot_of({bad, planner::pickled(std::int64_t{3})})),
            (std::vector<std::string>{"s.pickle: device_traces[0][0]: \"addr\" is not a number.",
                                      "s.pickle: device_traces[0][0]: \"size\" is -1, which is impossible.",
                                      "s.pickle: device_traces[0][0]: \"stream\" is missing.",
                                      "s.pickle: device_traces[0][1]: It has no action."}));
  EXPECT_EQ(errors_of(planner::snapshot_of({})),
            (std::vector<std::string>{"s.pickle: The snapshot has no history. Call "
                                      "torch.cuda.memory._record_memory_history() before the work begins."}));
  EXPECT_EQ(errors_of(planner::pickle_of(planner::pickled(std::int64_t{1}))),
            (std::vector<std::string>{
                "s.pickle: It is a pickle, but not a memory snapshot: it has no device_traces. Write one with "
                "torch.cuda.memory._dump_snapshot, or with fsdp-plan rehearse --snapshot."}));
}

}  // namespace
}  // namespace fsdp::replay
