#include "core/formats/nccl_tests_log.h"

#include <gtest/gtest.h>

#include <string>

namespace fsdp {
namespace {

const std::string kRow =
    "    33554432       8388608     float     sum      -1   171.88  195.22  292.83      0   173.28  193.64  290.46     "
    " 0\n";

TEST(NcclTestsLog, ReadsSizeAndOutOfPlaceTimeOfEachLine) {
  const auto log = read_nccl_tests_log("# nccl-tests version 2.13\n" + kRow + "# Avg bus bandwidth : 1\n", "x.log");
  ASSERT_TRUE(log);
  ASSERT_EQ(log->rows.size(), 1U);
  EXPECT_EQ(log->rows[0].bytes, 33554432);
  EXPECT_DOUBLE_EQ(log->rows[0].time.count(), 171.88e-6);
  EXPECT_EQ(log->collective, "");
  EXPECT_EQ(log->ranks, std::nullopt);
}

TEST(NcclTestsLog, ReadsTheCollectiveAndTheRanksIfPrinted) {
  const auto log = read_nccl_tests_log(
      "# Collective test starting: all_gather_perf\n#  Rank  0 Group  0 Pid 11 on node device  0 [0x01] NVIDIA H100\n"
      "#  Rank  1 Group  0 Pid 11 on node device  1 [0x02] NVIDIA H100\n" +
          kRow,
      "x.log");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->collective, "all_gather");
  EXPECT_EQ(log->ranks, 2);
}

TEST(NcclTestsLog, LinesOfOtherVersionsAreReadAsWell) {
  for (const char* row : {"1024 256 float 10.5 0.10 0.10 0 11.5 0.1 0.1 0",          // No operation, as for all-gather.
                          "1024 256 float none -1 10.5 0.10 0.10 0 11.5 0.1 0.1 0",  // A root.
                          "1024 256 float sum 10.5 0.10 0.10 0e+00 11.5 0.1 0.1 0e+00",          // Errors as numbers.
                          "1024 256 half sum -1 10.5 0.10 0.10 N/A N/A N/A N/A N/A",             // Nothing in place.
                          "1024 256 bfloat16 sum -1 10.5 0.10 0.10 0",                           // One half.
                          "[1,0]<stdout>: 1024 256 float sum -1 10.5 0.1 0.1 0 11.5 0.1 0.1 0",  // Under mpirun.
                          "node-3:1024 256 float sum -1 10.5 0.1 0.1 0 11.5 0.1 0.1 0\r"}) {
    const auto log = read_nccl_tests_log(std::string(row) + "\n", "x.log");
    ASSERT_TRUE(log) << row;
    ASSERT_EQ(log->rows.size(), 1U) << row;
    EXPECT_EQ(log->rows[0].bytes, 1024) << row;
    EXPECT_DOUBLE_EQ(log->rows[0].time.count(), 10.5e-6) << row;
  }
}

TEST(NcclTestsLog, LinesThatCannotBeReadAreNamed) {
  const auto log = read_nccl_tests_log(kRow + "1024 256 float sum -1 10.5\n2048 512 float sum -1 x 1 1 0\n", "x.log");
  ASSERT_FALSE(log);
  ASSERT_EQ(log.error().size(), 2U);
  EXPECT_EQ(log.error()[0].where, "x.log:2");
  EXPECT_EQ(log.error()[0].what, "This line of the table cannot be read: 1024 256 float sum -1 10.5.");
  EXPECT_EQ(log.error()[1].where, "x.log:3");
}

TEST(NcclTestsLog, FileWithoutATableIsNoLog) {
  const auto log = read_nccl_tests_log("Hello\n# size count type\n", "x.log");
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error()[0].what, "There is no line of a table of nccl-tests.");
}

}  // namespace
}  // namespace fsdp
