// fsdp-exec: one rank of a training run. `fsdp-plan execute` starts several; torchrun, mpirun and srun do too.

#include <cstdio>
#include <exception>

#include "executor/options.h"
#include "executor/rank_run.h"

int main(int argc, char** argv) {
  using namespace fsdp;
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
