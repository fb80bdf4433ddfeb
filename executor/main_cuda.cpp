// fsdp-exec-cuda: the program that fsdp-exec --device cuda becomes.

#include "executor/backend_cuda.h"
#include "executor/program.h"

int main(int argc, char** argv) {
  using namespace fsdp::executor;
  return run_program(argc, argv,
                     [](const RunOptions& options) { return options.on_cuda ? cuda_backend() : cpu_backend(); });
}
