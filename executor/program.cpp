#include "executor/program.h"

#include <csignal>
#include <cstdio>
#include <exception>

#include "core/base/printable.h"
#include "executor/rank_run.h"

namespace fsdp::executor {

int run_program(int argc, char** argv, const BackendChoice& choose) {
  // A dead rank leaves connections to which others write: that must be an error for them, not their end.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const Result<RunOptions> options = read_options(argc, argv);
    if (options) {
      const std::unique_ptr<Backend> backend = choose(*options);
      return backend ? run_rank(*options, *backend) : kExitInput;
    }
    if (options.error().empty()) {
      std::fputs(usage().c_str(), stdout);
      return kExitDone;
    }
    for (const Error& error : options.error())
      std::fputs(("error: " + printable(to_string(error)) + "\n").c_str(), stderr);
    return kExitInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: the program failed: %s\n", error.what());
    return kExitRun;
  }
}

}  // namespace fsdp::executor
