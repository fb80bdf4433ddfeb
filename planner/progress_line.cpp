#include "planner/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/parse_units.h"
#include "planner/render_plan.h"

namespace fsdp::planner {

namespace {

constexpr Seconds kBeforeTheFirst{1};
constexpr Seconds kBetween{0.1};

}  // namespace

std::string text_of(const SearchProgress& progress) {
  const std::string settled =
      fmt::format("{} of {} plans ruled out or predicted", grouped(progress.settled), grouped(progress.space));
  switch (progress.stage) {
    case SearchStage::Fastest:
      if (!progress.at_least) return "searching: " + settled;
      return fmt::format("searching: {}, at least {}", settled, format_time(*progress.at_least));
    case SearchStage::Smallest:
      return "no plan fits; least memory: " + settled;
    case SearchStage::Front:
      return "searching smaller plans: " + settled;
    case SearchStage::Remedies:
      return "pricing changes";
  }
  return "";
}

ProgressLine::ProgressLine(std::ostream& err, const Terminal& terminal, bool is_wanted, std::function<Seconds()> clock)
    : err_(err),
      width_(terminal.width),
      is_shown_(is_wanted && terminal.is_terminal),
      clock_(std::move(clock)),
      next_(clock_() + kBeforeTheFirst) {}

void ProgressLine::show(const SearchProgress& progress) {
  if (is_due()) write(text_of(progress));
}

void ProgressLine::show(const std::string& text) {
  if (is_due()) write(text);
}

bool ProgressLine::is_due() {
  if (!is_shown_) return false;
  const Seconds now = clock_();
  if (now < next_) return false;
  next_ = now + kBetween;
  return true;
}

void ProgressLine::write(std::string text) {
  // A line that breaks could not be rewritten.
  text.resize(std::min(text.size(), static_cast<std::size_t>(width_ - 1)));
  erase();
  err_ << text << std::flush;
  written_ = static_cast<int>(text.size());
}

void ProgressLine::erase() {
  // Blanks do it on every terminal.
  if (written_ > 0) err_ << '\r' << std::string(static_cast<std::size_t>(written_), ' ') << '\r' << std::flush;
  written_ = 0;
}

Seconds seconds_of_this_process() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return Seconds(std::chrono::duration<double>(now).count());
}

}  // namespace fsdp::planner
