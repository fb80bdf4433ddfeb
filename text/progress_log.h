#pragma once

// Lines that say how far a rehearsal is, for those who wait without a terminal and for those who look into a file.

#include <functional>
#include <ostream>
#include <string>

#include "core/base/units.h"

namespace fsdp::planner {

/// Says what is done from the second second on. Into a stream it writes a line when that has changed, at most every
/// five seconds, and every half minute where nothing changes; into a file a line for each change.
class ProgressLog {
 public:
  /// `out`: may be null; `file`: is appended to, empty: none; `clock` says the time since any moment. REQUIRES: `out`
  /// outlives this object.
  ProgressLog(std::ostream* out, std::string file, std::function<Seconds()> clock);

  /// `what`: "rank 0: step 1 of 3, forward"; `running`: since it was started.
  void show(const std::string& what, Seconds running);

 private:
  std::ostream* out_;
  std::string file_;
  std::function<Seconds()> clock_;
  Seconds first_;
  Seconds next_change_;  ///< From when on the stream is told of a change, and
  Seconds next_line_;    ///< of anything.
  std::string said_;
  std::string written_;
};

}  // namespace fsdp::planner
