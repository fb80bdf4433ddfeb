// fsdp-plan: forwards to command/cli.h.

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "command/cli.h"

int main(int argc, char** argv) {
  using fsdp::planner::Console;
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  Console console = fsdp::planner::console_of_process(std::cout, std::cerr);
  try {
    const int code = fsdp::planner::run(arguments, console);
    std::cout.flush();
    // A reader that closed the pipe has seen enough; a disk that is full has not.
    return std::cout.good() ? code : fsdp::planner::kExitRun;
  } catch (const std::exception& error) {
    std::cerr << "error: the program failed: " << error.what() << "\n";
    return fsdp::planner::kExitRun;
  }
}
