#include "text/progress_line.h"

#include <gtest/gtest.h>

#include <sstream>

namespace fsdp::text {
namespace {

constexpr Terminal kTerminal{.is_terminal = true, .width = 60};
const std::string kProgress = "searching: 12,345 of 73,530 plans ruled out or predicted, at least 3.90 s";

/// A line with a clock that the test moves.
struct Screen {
  std::ostringstream err;
  Seconds now{100};
  std::string shown_at(Seconds time, const Terminal& terminal = kTerminal, bool is_wanted = true) {
    ProgressLine line(err, terminal, is_wanted, [&] { return now; });
    now += time;
    line.show(kProgress);
    return err.str();
  }
};

TEST(ProgressLine, ComesAfterASecondAndFitsTheTerminal) {
  EXPECT_EQ(Screen().shown_at(Seconds(0.9)), "");
  EXPECT_EQ(Screen().shown_at(Seconds(1.1)), kProgress.substr(0, 59));
}

TEST(ProgressLine, IsHiddenInAPipeAndWhenDisabled) {
  EXPECT_EQ(Screen().shown_at(Seconds(2), {.is_terminal = false, .width = 80}), "");
  EXPECT_EQ(Screen().shown_at(Seconds(2), kTerminal, false), "");
}

TEST(ProgressLine, PipeGetsALineAtDoublingIntervals) {
  Screen screen;
  ProgressLine line(
      screen.err, {.is_terminal = false, .width = 80}, true, [&] { return screen.now; }, InPipe::Lines);
  for (int second = 1; second <= 10; ++second) {
    screen.now += Seconds(1);
    line.show(std::to_string(second) + " s");
  }
  line.erase();
  EXPECT_EQ(screen.err.str(), "2 s\n4 s\n8 s\n");
}

TEST(ProgressLine, IsRewrittenInPlaceAndErasedAtTheEnd) {
  Screen screen;
  {
    ProgressLine line(screen.err, kTerminal, true, [&] { return screen.now; });
    screen.now += Seconds(2);
    line.show(kProgress);
    screen.now += Seconds(0.05);
    line.show(kProgress);  // Too soon.
    screen.now += Seconds(0.1);
    line.show("pricing changes");
  }
  const std::string first = kProgress.substr(0, 59);
  EXPECT_EQ(screen.err.str(),
            first + "\r" + std::string(59, ' ') + "\rpricing changes\r" + std::string(15, ' ') + "\r");
}

}  // namespace
}  // namespace fsdp::text
