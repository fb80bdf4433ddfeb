#include "text/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/parse_units.h"
#include "text/figures.h"

namespace fsdp::text {

namespace {

constexpr Seconds kBeforeTheFirst{1};
constexpr Seconds kBetween{0.1};
constexpr Seconds kBeforeTheFirstLine{2};

}  // namespace

ProgressLine::ProgressLine(std::ostream& err, const Terminal& terminal, bool is_wanted, std::function<Seconds()> clock,
                           InPipe in_pipe)
    : err_(err),
      width_(terminal.width),
      is_terminal_(terminal.is_terminal),
      is_shown_(is_wanted && (terminal.is_terminal || in_pipe == InPipe::Lines)),
      clock_(std::move(clock)),
      begin_(clock_()),
      next_(begin_ + (is_terminal_ ? kBeforeTheFirst : kBeforeTheFirstLine)) {}

void ProgressLine::show(const std::string& text) {
  if (is_due()) write(text);
}

bool ProgressLine::is_due() {
  if (!is_shown_) return false;
  const Seconds now = clock_();
  if (now < next_) return false;
  next_ = is_terminal_ ? now + kBetween : now + (now - begin_);
  return true;
}

void ProgressLine::write(std::string text) {
  if (!is_terminal_) {
    err_ << text << "\n" << std::flush;
    return;
  }
  // A line that breaks cannot be rewritten.
  text.resize(std::min(text.size(), static_cast<std::size_t>(width_ - 1)));
  erase();
  err_ << text << std::flush;
  written_ = static_cast<int>(text.size());
}

void ProgressLine::erase() {
  // Blanks clear a line on every terminal.
  if (written_ > 0) err_ << '\r' << std::string(static_cast<std::size_t>(written_), ' ') << '\r' << std::flush;
  written_ = 0;
}

Seconds seconds_of_this_process() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return Seconds(std::chrono::duration<double>(now).count());
}

}  // namespace fsdp::text
