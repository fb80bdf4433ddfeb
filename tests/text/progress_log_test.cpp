#include "text/progress_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace fsdp::text {
namespace {

/// A log with a clock that the test moves.
class ProgressLogTest : public testing::Test {
 protected:
  void show(Seconds at, const std::string& what) {
    now_ = at;
    log_.show(what, at);
  }
  std::string file() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  ~ProgressLogTest() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "/progress_log_test.txt";
  Seconds now_{0};
  std::ostringstream err_;
  ProgressLog log_{&err_, path_, [this] { return now_; }};
};

TEST_F(ProgressLogTest, PrintsNothingInTheFirstSecond) {
  show(Seconds(0.9), "importing torch");
  EXPECT_EQ(err_.str() + file(), "");
  show(Seconds(1.1), "importing torch");
  EXPECT_EQ(err_.str(), "importing torch, 1 s\n");
  EXPECT_EQ(file(), err_.str());
}

TEST_F(ProgressLogTest, PrintsChangesEveryFiveSecondsElseEveryHalfMinute) {
  show(Seconds(1), "importing torch");
  show(Seconds(3), "step 1 of 3");  // Too soon for the stream; the file has it.
  show(Seconds(6.5), "step 2 of 3");
  show(Seconds(20), "step 2 of 3");
  show(Seconds(37), "step 2 of 3");
  EXPECT_EQ(err_.str(), "importing torch, 1 s\nstep 2 of 3, 6 s\nstep 2 of 3, 37 s\n");
  EXPECT_EQ(file(), "importing torch, 1 s\nstep 1 of 3, 3 s\nstep 2 of 3, 6 s\n");
}

}  // namespace
}  // namespace fsdp::text
