#include "text/shell_text.h"

#include <gtest/gtest.h>

namespace fsdp::text {
namespace {

TEST(ShellText, QuotesTextsThatAShellWouldSplit) {
  EXPECT_EQ(quoted_for_shell("Overwrite"), "'Overwrite'");
  EXPECT_EQ(quoted_for_shell("it's"), "'it'\\''s'");
  EXPECT_EQ(command_text({"fsdp-plan", "--gpu", "H100 SXM", "--set", "seq=64"}),
            "fsdp-plan --gpu 'H100 SXM' --set seq=64");
  EXPECT_EQ(command_text({"python", "", "$HOME", "a.*", "it's"}), "python '' '$HOME' 'a.*' 'it'\\''s'");
}

TEST(ShellText, EscapesTerminalControls) {
  EXPECT_EQ(quoted_for_shell("a\nb\x1b]0;x\x07'\\"), "$'a\\nb\\x1b]0;x\\x07\\'\\\\'");
}

TEST(ShellText, AnAssignmentHasItsValueInQuotes) {
  EXPECT_EQ(assignment_text("PYTORCH_ALLOC_CONF=expandable_segments:True"),
            "PYTORCH_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(assignment_text("PYTORCH_ALLOC_CONF=x; rm -rf ~"), "PYTORCH_ALLOC_CONF='x; rm -rf ~'");
  EXPECT_EQ(assignment_text(""), "");
}

}  // namespace
}  // namespace fsdp::text
