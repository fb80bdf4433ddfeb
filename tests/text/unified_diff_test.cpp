// tests/command/cli_use_test.py holds the differences to patch and git.

#include "text/unified_diff.h"

#include <gtest/gtest.h>

namespace fsdp::text {
namespace {

TEST(UnifiedDiff, ShowsThreeLinesAroundAChange) {
  EXPECT_EQ(unified_diff("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"),
            "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
}

TEST(UnifiedDiff, JoinsNeighborsAndSplitsTheRest) {
  EXPECT_EQ(unified_diff("f", "a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n"),
            "--- f\n+++ f\n@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n");
  EXPECT_EQ(unified_diff("f", "a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n"),
            "--- f\n+++ f\n@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+B\n");
}

TEST(UnifiedDiff, CountsAddedLines) {
  EXPECT_EQ(unified_diff("f", "a\nb\n", "a\nx\nb\n"), "--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n+x\n b\n");
  EXPECT_EQ(unified_diff("f", "", "x\n"), "--- f\n+++ f\n@@ -0,0 +1 @@\n+x\n");
}

TEST(UnifiedDiff, MarksAMissingLineFeed) {
  EXPECT_EQ(
      unified_diff("f", "a\nb", "a\nb\nc"),
      "--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n-b\n\\ No newline at end of file\n+b\n+c\n\\ No newline at end of file\n");
}

TEST(UnifiedDiff, IsEmptyForEqualTexts) {
  EXPECT_EQ(unified_diff("f", "a\n", "a\n"), "");
}

}  // namespace
}  // namespace fsdp::text
