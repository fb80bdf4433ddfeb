#pragma once

// One line with the progress of a search or a rehearsal.

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "core/base/units.h"
#include "text/terminal.h"

namespace fsdp::text {

/// The output if the stream is no terminal.
enum class InPipe : std::uint8_t {
  Nothing,
  Lines,  ///< A line after two seconds, and then whenever the time has doubled.
};

/// Rewrites one line in place. Writes nothing if it is not wanted, and nothing in the first second; clears its line on
/// a terminal at the end.
class ProgressLine {
 public:
  /// `clock` returns the time since any fixed moment. REQUIRES: `err` outlives this object.
  ProgressLine(std::ostream& err, const Terminal& terminal, bool is_wanted, std::function<Seconds()> clock,
               InPipe in_pipe = InPipe::Nothing);
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
  bool is_terminal_;
  bool is_shown_;
  std::function<Seconds()> clock_;
  Seconds begin_;
  Seconds next_;
  int written_ = 0;  ///< Columns on the screen.
};

/// A clock for ProgressLine.
Seconds seconds_of_this_process();

}  // namespace fsdp::text
