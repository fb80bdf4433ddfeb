// Snapshots and traces that no run wrote: read and replayed, or refused with errors that can be printed.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "render/render_replay.h"
#include "tests/support/snapshot_pickle.h"

namespace fsdp::replay {
namespace {

class Random {
 public:
  std::int64_t below(std::int64_t n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_ = 7;
};

/// Everything that a command would do with it.
void use(const Result<Recording>& recording) {
  if (!recording) {
    ASSERT_FALSE(recording.error().empty());
    for (const Error& error : recording.error()) ASSERT_FALSE(to_string(error).empty());
    return;
  }
  ASSERT_EQ(simulator::read_allocator_trace(recording->text, "again"), recording->trace);
  const render::ReplayAnswer answer{.recording = *recording,
                                    .as_was = as_recorded(*recording),
                                    .recorded = replay(*recording, as_recorded(*recording)),
                                    .request = {},
                                    .replayed = {}};
  ASSERT_FALSE(render::document_of(answer, {.width = 80, .pictures = true, .verbose = true}, "").empty());
  ASSERT_FALSE(to_json(answer).empty());
}

std::vector<std::string> some_events(Random& random) {
  const char* const actions[] = {"alloc",         "alloc",        "alloc",   "free_requested", "free_completed",
                                 "segment_alloc", "segment_free", "oom",     "snapshot",       "segment_map",
                                 "segment_unmap", "free",         "whatever"};
  std::vector<std::string> events;
  for (std::int64_t i = random.below(60) + 1; i > 0; --i) {
    const std::int64_t size = random.below(4) == 0 ? random.below(std::int64_t{1} << 31) << random.below(12)
                                                   : random.below(64) << random.below(22);
    events.push_back(planner::snapshot_event(actions[random.below(std::size(actions))], random.below(8) << 21, size,
                                             random.below(4) << 30, random.below(9)));
  }
  return events;
}

TEST(HostileSnapshot, EventsInAnyOrderAreReplayed) {
  Random random;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> segments;
    for (std::int64_t n = random.below(3); n > 0; --n) {
      segments.push_back(
          planner::snapshot_segment(random.below(8) << 21, {random.below(9) << 20, -(random.below(9) << 20)}));
    }
    const char* const settings[] = {"", "expandable_segments:True", "garbage_collection_threshold:0.5", "nonsense:1"};
    use(read_recorded_snapshot(planner::snapshot_of(some_events(random), segments, settings[random.below(4)]), "s"));
  }
}

TEST(HostileSnapshot, ChangedBytesAreReplayedOrRefused) {
  Random random;
  const std::string good = planner::snapshot_of(some_events(random), {planner::snapshot_segment(0, {1 << 20})});
  for (int i = 0; i < 3000; ++i) {
    std::string changed = good;
    for (std::int64_t n = random.below(4) + 1; n > 0; --n) {
      changed[random.below(static_cast<std::int64_t>(changed.size()))] = static_cast<char>(random.below(256));
    }
    use(read_recorded_snapshot(changed, "s"));
  }
}

TEST(HostileTrace, RandomWordsAreReplayedOrRefused) {
  Random random;
  const char* const words[] = {"alloc",
                               "free",
                               "record",
                               "sync",
                               "empty_cache",
                               "config",
                               "fraction",
                               "reset_peak",
                               "0",
                               "1",
                               "2",
                               "512",
                               "4398046511104",
                               "-1",
                               "1e9",
                               "0.5",
                               "|",
                               "#",
                               "!config",
                               "!events",
                               "hold",
                               "!device_bytes",
                               "expandable_segments:True",
                               "max_split_size_mb:20",
                               "=",
                               "@",
                               "",
                               "99999999999999999999"};
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::int64_t lines = random.below(12); lines > 0; --lines) {
      for (std::int64_t n = random.below(5); n > 0; --n)
        text += std::string(words[random.below(std::size(words))]) + " ";
      text += "\n";
    }
    use(read_recorded_trace(text, "t"));
  }
}

// Ranges of addresses are never used twice, so a trace could use all of them up.
TEST(HostileTrace, RequestsBeyondAllAddressesAreRefused) {
  std::string text = "!device_bytes 4398046511104\n";
  for (int i = 0; i < 400; ++i) text += "alloc a 4398046511104 0\nfree a\nempty_cache\n";
  const Result<Recording> recording = read_recorded_trace(text, "t");
  ASSERT_TRUE(recording);
  EXPECT_EQ(replay(*recording, as_recorded(*recording)).num_refused, 400 - 128);
  text = "!device_bytes 4398046511104\n!config expandable_segments:True\n";
  for (int i = 0; i < 400; ++i) text += "alloc a" + std::to_string(i) + " 1 " + std::to_string(i) + "\n";
  use(read_recorded_trace(text, "t"));
}

}  // namespace
}  // namespace fsdp::replay
