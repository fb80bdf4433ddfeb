#pragma once

// Lines with the progress of a rehearsal, for streams that are no terminal and for log files.

#include <functional>
#include <ostream>
#include <string>

#include "core/base/units.h"

namespace fsdp::text {

/// Writes the progress after the first second. A stream gets a line at each change, at most every five seconds, and
/// every half minute if nothing changes; a file gets a line for each change.
class ProgressLog {
 public:
  /// `out` may be null. `file` is appended to; empty for none. `clock` returns the time since any fixed moment.
  /// REQUIRES: `out` outlives this object.
  ProgressLog(std::ostream* out, std::string file, std::function<Seconds()> clock);

  /// `what`: "rank 0: step 1 of 3, forward"; `running`: the time since the start.
  void show(const std::string& what, Seconds running);

 private:
  std::ostream* out_;
  std::string file_;
  std::function<Seconds()> clock_;
  Seconds first_;
  Seconds next_change_;  ///< From this time on the stream gets a change, and
  Seconds next_line_;    ///< an unchanged line.
  std::string said_;
  std::string written_;
};

}  // namespace fsdp::text
