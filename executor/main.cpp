// fsdp-exec: one rank of a training run. `fsdp-plan execute` starts several; torchrun, mpirun and srun do too.

#include <csignal>
#include <cstdio>
#include <exception>

#include "executor/options.h"
#include "executor/rank_run.h"

int main(int argc, char** argv) {
  using namespace fsdp;
  // A rank that died leaves connections behind that others write to: an error for them, not their end.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const Result<executor::RunOptions> options = executor::read_options(argc, argv);
    if (options) return executor::run_rank(*options);
    if (options.error().empty()) {
      std::fputs(executor::usage().c_str(), stdout);
      return executor::kExitDone;
    }
    for (const Error& error : options.error()) std::fputs(("error: " + to_string(error) + "\n").c_str(), stderr);
    return executor::kExitInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: the program failed: %s\n", error.what());
    return executor::kExitRun;
  }
}
