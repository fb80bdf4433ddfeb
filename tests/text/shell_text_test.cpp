#include "text/shell_text.h"

#include <gtest/gtest.h>

namespace fsdp::planner {
namespace {

TEST(ShellText, QuotesWhatAShellWouldReadAsMoreThanAWord) {
  EXPECT_EQ(quoted_for_shell("Overwrite"), "'Overwrite'");
  EXPECT_EQ(quoted_for_shell("it's"), "'it'\\''s'");
  EXPECT_EQ(command_text({"fsdp-plan", "--gpu", "H100 SXM", "--set", "seq=64"}),
            "fsdp-plan --gpu 'H100 SXM' --set seq=64");
  EXPECT_EQ(command_text({"python", "", "$HOME", "a.*", "it's"}), "python '' '$HOME' 'a.*' 'it'\\''s'");
}

}  // namespace
}  // namespace fsdp::planner
