#include "executor/network/heartbeat.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

namespace fsdp::executor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong = std::chrono::hours(1);
constexpr const char* kFailed = "rank 1 has failed; its own output has the reason";

/// Ranks that meet in a file of their own. No test depends on durations: each waits for its event.
class HeartbeatTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/heartbeat." + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  c10::intrusive_ptr<c10d::Store> store() const { return c10::make_intrusive<c10d::FileStore>(path_, -1); }

  static std::string wait_for_loss(const Heartbeat& rank) {
    while (rank.lost().empty()) std::this_thread::sleep_for(milliseconds(5));
    return rank.lost();
  }

 private:
  std::string path_;
};

TEST_F(HeartbeatTest, AllOthersNameASilentRank) {
  // Rank 1 of 4 never sends anything; rank 0 listens to it, and informs the others.
  const Heartbeat first(store(), 0, 4, milliseconds(200));
  const Heartbeat third(store(), 2, 4, kLong);
  const Heartbeat fourth(store(), 3, 4, kLong);
  const std::string said = "rank 1 has given no sign of life for 0.2 s";
  EXPECT_EQ(wait_for_loss(first), said);
  EXPECT_EQ(wait_for_loss(third), said);
  EXPECT_EQ(wait_for_loss(fourth), said);
}

TEST_F(HeartbeatTest, StoppedRankIsDetected) {
  std::optional<Heartbeat> second(std::in_place, store(), 1, 2, kLong);
  const Heartbeat first(store(), 0, 2, milliseconds(400));
  second.reset();
  EXPECT_EQ(wait_for_loss(first), "rank 1 has given no sign of life for 0.4 s");
}

TEST_F(HeartbeatTest, MessagesOfAStrangerAreIgnored) {
  for (const std::string words : {"your disk is on fire", "failed 1 0 your disk is on fire", "failed 7 0",
                                  "failed -1 0", "failed 01 0", "silent 1 1\x1b]0;title\x07", "failed 1", ""}) {
    store()->set("heartbeat/lost", words);
    const Heartbeat first(store(), 0, 2, kLong);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(first.lost(), "") << words;
  }
}

TEST_F(HeartbeatTest, MessagesOfAStrangerHideNoFailure) {
  store()->set("heartbeat/lost", std::string(10'000, 'x'));
  const Heartbeat first(store(), 0, 2, kLong);
  Heartbeat second(store(), 1, 2, kLong);
  second.say_failed();
  EXPECT_EQ(wait_for_loss(first), kFailed);
}

TEST_F(HeartbeatTest, AllRanksReportTheFirstCause) {
  Heartbeat first(store(), 0, 2, kLong);
  Heartbeat second(store(), 1, 2, kLong);
  second.say_failed();
  EXPECT_EQ(wait_for_loss(first), kFailed);
  first.say_failed();
  const Heartbeat later(store(), 0, 2, kLong);
  EXPECT_EQ(wait_for_loss(later), kFailed);
}

TEST_F(HeartbeatTest, SingleRankReportsNoLoss) {
  const Heartbeat alone(store(), 0, 1, milliseconds(1));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(alone.lost(), "");
}

/// A connection whose server has ended.
class GoneStore final : public c10d::Store {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override { gone(); }
  void set(const std::string&, const std::vector<std::uint8_t>&) override { gone(); }
  std::vector<std::uint8_t> get(const std::string&) override { gone(); }
  std::int64_t add(const std::string&, std::int64_t) override { gone(); }
  bool deleteKey(const std::string&) override { gone(); }
  bool check(const std::vector<std::string>&) override { gone(); }
  std::int64_t getNumKeys() override { gone(); }
  void wait(const std::vector<std::string>&) override { gone(); }
  void wait(const std::vector<std::string>&, const milliseconds&) override { gone(); }

 private:
  [[noreturn]] static void gone() { throw std::runtime_error("Broken pipe"); }
};

TEST_F(HeartbeatTest, LostStoreCountsAsALostRank) {
  const Heartbeat rank(c10::make_intrusive<GoneStore>(), 1, 2, kLong);
  EXPECT_EQ(wait_for_loss(rank), "the store is gone, and with it rank 0 or the agent that serves it");
}

}  // namespace
}  // namespace fsdp::executor
