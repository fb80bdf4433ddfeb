// fsdp-plan: forwards to command/cli.h.

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "command/cli.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace {

// A search allocates and frees the same lists again and again. If the process retains the memory, 13 % of the page
// faults of a search vanish, and 19 % for a model with thousands of experts.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kMost = 32 << 20;  // The most that glibc accepts.
  mallopt(M_MMAP_THRESHOLD, kMost);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using fsdp::command::Console;
  keep_freed_memory();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  Console console = fsdp::command::console_of_process(std::cout, std::cerr);
  try {
    const int code = fsdp::command::run(arguments, console);
    std::cout.flush();
    // A reader that closed the pipe has seen enough; a full disk is an error.
    return std::cout.good() ? code : fsdp::command::kExitRun;
  } catch (const std::exception& error) {
    std::cerr << "error: the program failed: " << error.what() << "\n";
    return fsdp::command::kExitRun;
  }
}
