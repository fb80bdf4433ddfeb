#include "runs/titan_config.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/base/environment.h"
#include "runs/child_process.h"
#include "runs/rehearse_command.h"
#include "runs/rehearse_run.h"

namespace fsdp::runs {

namespace {

constexpr const char* kReader = "fsdp_torchtitan.read_config";
constexpr int kNoTorchtitan = 3;  // The reader's exit code.

/// The Python of a line: the launcher itself, or one in its folder.
Result<std::string> python_of(const std::string& launcher, std::string_view path) {
  FSDP_TRY(const std::string program, find_program(launcher, path));
  const std::filesystem::path file(program);
  if (file.filename().string().starts_with("python")) return program;
  for (const char* name : {"python", "python3"}) {
    std::error_code error;
    const std::filesystem::path beside = file.parent_path() / name;
    if (std::filesystem::exists(beside, error)) return beside.string();
  }
  return find_program("python3", path);
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

Result<JsonDocument> read_titan_config(const std::string& launcher, std::span<const std::string> arguments,
                                       const RehearsalPlaces& places) {
  FSDP_TRY(const std::string python, python_of(launcher, places.path));
  FSDP_TRY(const TemporaryFolder folder, TemporaryFolder::make());
  ChildCommand command;
  command.words = {python, "-B", "-m", kReader};
  command.output = folder.path() + "/output";
  command.words.insert(command.words.end(), arguments.begin(), arguments.end());
  command.environment = {{"PYTHONPATH", path_list(places.python, environment_variable("PYTHONPATH"))}};
  Supervision supervision;
  FSDP_TRY(ChildProcess process, ChildProcess::start(command));
  std::optional<ExitStatus> end;
  while (!(end = process.poll())) {
    if (supervision.wait(Seconds(0.05)) != 0) process.signal_session(SIGKILL);
  }
  const std::string output = output_from(command.output);
  if (end->code == kNoTorchtitan) {
    return failure(python, last_line(output),
                   fmt::format("Write: {} -m pip install torchtitan==0.3.0, or start the line with the Python that has "
                               "it.",
                               python));
  }
  if (*end != ExitStatus{}) {
    return failure(python, fmt::format("torchtitan cannot make this configuration: {}", last_line(output)),
                   "Its own message is that of: python -m torchtitan.config.manager with the same arguments.");
  }
  FSDP_TRY(JsonDocument document, parse_json(last_line(output), "the configuration"));
  document.is_translated = true;
  return document;
}

}  // namespace fsdp::runs
