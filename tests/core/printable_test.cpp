#include "core/base/printable.h"

#include <gtest/gtest.h>

#include "core/base/result.h"

namespace fsdp {
namespace {

TEST(Printable, PlainTextIsUnchanged) {
  EXPECT_EQ(printable("talker.model.layers.{0..27}\n\tα β µs 中"), "talker.model.layers.{0..27}\n\tα β µs 中");
}

TEST(Printable, TerminalControlsAreEscaped) {
  EXPECT_EQ(printable("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI in one character.
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");  // Turns the direction of writing.
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "\\x00x");
}

TEST(Printable, InvalidTextIsEscaped) {
  EXPECT_EQ(printable("\x80\xff\xc3("), "\\x80\\xff\\xc3(");
}

TEST(Printable, ErrorsCannotControlTheTerminal) {
  EXPECT_EQ(to_string(Error{"a\x1b.json", "Found \"\x1b[2J\".", "Write \"\xff\"."}),
            "a\\x1b.json: Found \"\\x1b[2J\". Write \"\\xff\".");
}

}  // namespace
}  // namespace fsdp
