#include "runs/framework_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/base/environment.h"
#include "runs/child_process.h"
#include "runs/rehearse_plan.h"

namespace fsdp::runs {

namespace {

constexpr const char* kModule = "fsdp_plan_runner.execute";
constexpr Seconds kBetweenLooks{0.05};
constexpr int kRefused = 2;  // The runner's exit code for a job that cannot run.

/// build/python/NAME/lib/python3.11/site-packages beside build/python/torch-2.11.0/bin/python; may be empty.
std::string beside_environment(const std::string& python, std::string_view name) {
  std::error_code error;
  const auto environment = std::filesystem::path(python).parent_path().parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(environment / "lib", error)) {
    const auto found = environment.parent_path() / name / "lib" / entry.path().filename() / "site-packages";
    if (std::filesystem::is_directory(found, error)) return found.string();
  }
  return {};
}

}  // namespace

std::vector<std::string> FrameworkPython::words(const std::string& job) const {
  return {program, "-B", "-m", kModule, job};
}

std::vector<std::pair<std::string, std::string>> FrameworkPython::environment() const {
  std::vector<std::pair<std::string, std::string>> variables = {{"PYTHONPATH", path}, {"PYTHONUNBUFFERED", "1"}};
  // All ranks are on this machine.
  if (environment_variable("GLOO_SOCKET_IFNAME").empty()) variables.emplace_back("GLOO_SOCKET_IFNAME", "lo");
  return variables;
}

Result<FrameworkPython> find_framework_python(const std::string& given, const RehearsalPlaces& places,
                                              Framework framework) {
  FrameworkPython python;
  FSDP_TRY(python.program, find_torch_python(given, places));
  python.path = path_list(places.python, environment_variable("PYTHONPATH"));
  const std::string_view packages = framework_trainer(framework).packages;
  if (!packages.empty()) python.path = path_list(python.path, beside_environment(python.program, packages));
  return python;
}

Result<Errors> check_framework_run(const FrameworkPython& python, const std::string& job,
                                   const std::vector<std::string>& options, std::int64_t ranks,
                                   const std::string& log) {
  ChildCommand command{.words = python.words(job), .environment = python.environment(), .output = log};
  command.words.insert(command.words.end(), options.begin(), options.end());
  command.words.insert(command.words.end(), {"--check", std::to_string(ranks)});
  Supervision supervision;
  FSDP_TRY(ChildProcess process, ChildProcess::start(command));
  std::optional<ExitStatus> end;
  while (!(end = process.poll())) {
    if (supervision.wait(kBetweenLooks) != 0) process.signal_session(SIGKILL);
  }
  if (*end == ExitStatus{}) return Errors{};
  Errors found;
  std::istringstream lines(output_from(log));
  constexpr std::string_view kError = "error: ";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kError)) found.push_back({"", line.substr(kError.size()), ""});
  }
  if (end->code == kRefused && !found.empty()) return found;
  return failure(python.program, fmt::format("The runner {}: {}", describe(*end), output_from(log)), "");
}

}  // namespace fsdp::runs
