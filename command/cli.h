#pragma once

// The fsdp-plan command, as a function, so that tests call it as users do.

#include <optional>
#include <ostream>
#include <span>
#include <string>

#include "text/terminal.h"

namespace fsdp::command {

enum ExitCode {
  kExitYes = 0,            ///< Done; the plan fits.
  kExitNo = 1,             ///< The answer is no: nothing fits.
  kExitInput = 2,          ///< The command line or a file is wrong; nothing was written.
  kExitRun = 3,            ///< The machine or a script failed: a full disk, for example.
  kExitInterrupted = 130,  ///< The user ended a rehearsal with Ctrl-C.
};

/// The surroundings that a command reads and the streams that it writes.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  std::optional<int> out_width;  ///< Width of the terminal.
  std::optional<int> err_width;
  text::TerminalEnvironment environment;
  std::string library;  ///< Folder with the shipped model specs and clusters/.
};

/// Runs one command. `arguments` excludes the program's name. Results go to `out`, everything else to `err`.
int run(std::span<const std::string> arguments, Console& console);

/// The console of this process, on its two streams.
Console console_of_process(std::ostream& out, std::ostream& err);

}  // namespace fsdp::command
