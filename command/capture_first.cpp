#include "command/capture_first.h"

#include <fmt/format.h>

#include <filesystem>

#include "command/cli_machines.h"

namespace fsdp::command {

namespace {

/// Options of the capture, which a model in a file already used.
constexpr Option kOfCapture[] = {Option::Timeout,     Option::Routing, Option::AllowWrites,
                                 Option::BatchOption, Option::Batches, Option::NoCheck};

/// The output file of a script's capture: "train.model.json" for a command with train.py.
std::string capture_file_of(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    const std::filesystem::path path(word);
    if (path.extension() == ".py") return path.stem().string() + ".model.json";
  }
  return "captured.model.json";
}

}  // namespace

Errors check_no_script(const CommandLine& line) {
  Errors errors;
  for (const Option option : kOfCapture) {
    if (!line.has(option)) continue;
    errors.push_back(
        {std::string(flag_of(option)), "It is for the capture of a script.",
         fmt::format("Write the script's command: fsdp-plan {} -- python train.py.", info_of(line.command).name)});
  }
  return errors;
}

CommandResult after_capture(const CommandLine& line, const Output& output,
                            CommandResult (*next)(const CommandLine& line, const Output& output)) {
  const std::string file = capture_file_of(line.script);
  CommandLine capture = without_lists(line);
  capture.command = Command::Capture;
  capture.values[static_cast<std::size_t>(Option::Output)] = {file};
  // A program reads only the answer.
  const Console& console = output.console;
  Console beside{.out = console.err,
                 .err = console.err,
                 .out_is_terminal = console.err_is_terminal,
                 .err_is_terminal = console.err_is_terminal,
                 .out_width = console.err_width,
                 .err_width = console.err_width,
                 .environment = console.environment,
                 .library = console.library};
  const bool is_for_people = output.format == text::Format::Table;
  const Output brief{.console = is_for_people ? output.console : beside,
                     .out = is_for_people ? output.out : output.err,
                     .err = output.err,
                     .quiet = true};
  const CommandResult captured = capture_command(capture, brief);
  if (!captured || *captured != kExitYes) return captured;
  CommandLine model = line;
  model.script.clear();
  model.arguments = {file};
  for (const Option option : kOfCapture) model.values[static_cast<std::size_t>(option)].clear();
  return next(model, output);
}

}  // namespace fsdp::command
