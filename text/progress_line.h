#pragma once

// One line that says how far a search or a rehearsal is, for people who wait for it.

#include <functional>
#include <ostream>
#include <string>

#include "core/base/units.h"
#include "text/terminal.h"

namespace fsdp::planner {

/// Rewrites one line in place. Writes nothing where the stream is no terminal, when it is not wanted, and during the
/// first second; leaves nothing behind.
class ProgressLine {
 public:
  /// `clock` says the time since any moment. REQUIRES: `err` outlives this object.
  ProgressLine(std::ostream& err, const Terminal& terminal, bool is_wanted, std::function<Seconds()> clock);
  ~ProgressLine() { erase(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Any text.
  void show(const std::string& text);
  void erase();

 private:
  bool is_due();
  void write(std::string text);

  std::ostream& err_;
  int width_;
  bool is_shown_;
  std::function<Seconds()> clock_;
  Seconds next_;
  int written_ = 0;  ///< Columns on the screen.
};

/// A clock for it.
Seconds seconds_of_this_process();

}  // namespace fsdp::planner
