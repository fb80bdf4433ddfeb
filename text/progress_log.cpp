#include "text/progress_log.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

namespace fsdp::text {

namespace {

constexpr Seconds kBeforeTheFirstEntry{1};
constexpr Seconds kBetweenChanges{5};
constexpr Seconds kBetweenLines{30};

}  // namespace

ProgressLog::ProgressLog(std::ostream* out, std::string file, std::function<Seconds()> clock)
    : out_(out),
      file_(std::move(file)),
      clock_(std::move(clock)),
      first_(clock_() + kBeforeTheFirstEntry),
      next_change_(first_),
      next_line_(first_) {}

void ProgressLog::show(const std::string& what, Seconds running) {
  const Seconds now = clock_();
  if (now < first_) return;
  const std::string line = fmt::format("{}, {:.0f} s\n", what, running.count());
  if (!file_.empty() && what != written_) {
    std::ofstream(file_, std::ios::app) << line;
    written_ = what;
  }
  if (out_ == nullptr || now < (what != said_ ? next_change_ : next_line_)) return;
  *out_ << line << std::flush;
  said_ = what;
  next_change_ = now + kBetweenChanges;
  next_line_ = now + kBetweenLines;
}

}  // namespace fsdp::text
