// fsdp-exec: one rank of a training run. `fsdp-plan execute` starts several; so do torchrun, mpirun and srun.
//
// This program loads no CUDA, so it starts at once. With --device cuda it becomes fsdp-exec-cuda, which is in the same
// folder, with the same arguments.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "executor/program.h"

int main(int argc, char** argv) {
  using namespace fsdp::executor;
  return run_program(argc, argv, [&](const RunOptions& options) -> std::unique_ptr<Backend> {
    if (!options.on_cuda) return cpu_backend();
    std::error_code error;
    const auto beside = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "fsdp-exec-cuda";
    execv(beside.c_str(), argv);
    std::fprintf(stderr,
                 "error: --device cuda: %s cannot be started.\n  It is built where PyTorch's wheel for CUDA is. To add "
                 "it: ./scripts/bootstrap --with rehearsal, then build again.\n",
                 beside.c_str());
    return nullptr;
  });
}
