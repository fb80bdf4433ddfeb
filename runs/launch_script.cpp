// bash reads the script, so that variables, arrays and conditions mean what they mean. It is restricted (bash -r), and
// has no PATH: it writes no file, changes no folder and finds no program. Functions stand in for the launchers. Each
// records its words and succeeds; but `python -c`, which scripts ask what is installed, fails. Every other command does
// nothing, except that it reads its pipe to the end: one that closes would end what writes to it. A script that only
// starts something with its output in a file is read again without that.
//
// Sources: bash(1), RESTRICTED SHELL, Shell Function Definitions and command_not_found_handle.
//
// Not modeled: what other programs print: `$(nvidia-smi -L | wc -l)` is empty.

#include "runs/launch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/environment.h"
#include "core/base/files.h"
#include "runs/child_process.h"
#include "runs/foreground.h"
#include "runs/rehearse_command.h"
#include "runs/rehearse_run.h"

namespace fsdp::runs {

namespace {

constexpr double kLongest = 10;  // Seconds.
// Around the words of a record. Traces of `set -x` are in the same output.
constexpr std::string_view kBegin("\x01launch\0", 8);
constexpr std::string_view kEnd = "\x02";

/// Defines what stands in for programs. `$0` is the script's name, and its text the last line's argument.
constexpr std::string_view kPrelude = R"(
enable -n history fc kill suspend ulimit umask
trap '' PIPE
exec 3>&1 1>&2
record() { printf '%s\0' $'\001launch' "$@" $'\002' >&3; }
is_question() { local word; for word; do [ "$word" = -c ] && return 0; [ "$word" = -m ] && return 1; done; return 1; }
python() { is_question "$@" && return 1; record python "$@"; }
python3() { is_question "$@" && return 1; record python3 "$@"; }
for name in torchrun accelerate deepspeed trl axolotl llamafactory-cli lmf automodel swift uv ray srun mpirun; do
  eval "$name() { record $name \"\$@\"; }"
done
bash() { :; }
sh() { :; }
cd() { :; }
pushd() { :; }
popd() { :; }
source() { :; }
exec() { [ $# -eq 0 ] || "$@"; }
export() {
  local word
  for word; do case "$word" in PATH=* | SHELL=* | ENV=* | BASH_ENV=*) ;; *) builtin export "$word" ;; esac; done
}
env() { while [[ "${1:-}" == *=* || "${1:-}" == -* ]]; do shift; done; [ $# -eq 0 ] || "$@"; }
command() { [ "${1:-}" = -v ] && return 1; "$@"; }
nohup() { "$@"; }
sudo() { "$@"; }
command_not_found_handle() {
  if [ -p /dev/stdin ]; then while read -r; do :; done; fi
  return 0
}
)";

/// The records in what the script printed.
std::vector<std::vector<std::string>> records_of(const std::string& output) {
  std::vector<std::vector<std::string>> commands;
  for (std::size_t at = output.find(kBegin); at != std::string::npos; at = output.find(kBegin, at)) {
    std::vector<std::string>& words = commands.emplace_back();
    for (at += kBegin.size(); at < output.size();) {
      const std::size_t end = std::min(output.find('\0', at), output.size());
      std::string word = output.substr(at, end - at);
      at = end + 1;
      if (word == kEnd) break;
      words.push_back(std::move(word));
    }
  }
  return commands;
}

/// The last message of bash.
std::string message_of(const std::string& output) {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(": ") != std::string::npos && !line.starts_with("+")) last = line;
  }
  return last;
}

/// The text without "> FILE", which a restricted bash refuses together with the command before it. What else looks like
/// that is lost, too.
std::string without_redirections(const std::string& text) {
  static const std::regex kOutput(R"((&|[0-9])?>{1,2}(?![&(])\s*("[^"\n]*"|'[^'\n]*'|[^\s;|&)]+))");
  return std::regex_replace(text, kOutput, " ");
}

/// What bash made of a script.
struct Reading {
  std::vector<std::vector<std::string>> commands;
  std::string output;
  ExitStatus end;
};

Result<Reading> read_by_bash(const std::string& path, const std::string& text, std::span<const std::string> arguments) {
  FSDP_TRY(const std::string bash, find_program("bash", environment_variable("PATH")));
  FSDP_TRY(const TemporaryFolder folder, TemporaryFolder::make());
  ChildCommand command;
  command.words = {bash, "--noprofile", "--norc", "-r", "-c", fmt::format("{}\n{}", kPrelude, text), path};
  command.words.insert(command.words.end(), arguments.begin(), arguments.end());
  command.environment = {{"PATH", "/nonexistent"}};
  command.hides = [](std::string_view name) { return name == "ENV" || name.starts_with("BASH_"); };
  command.output = folder.path() + "/output";
  Supervision supervision;
  FSDP_TRY(ChildProcess process, ChildProcess::start(command));
  std::optional<ExitStatus> end;
  double waited = 0;
  for (constexpr double kPause = 0.02; !(end = process.poll()); waited += kPause) {
    const bool is_stopped = supervision.wait(Seconds(kPause)) != 0;
    if (is_stopped || waited > kLongest) process.signal_session(SIGKILL);
  }
  if (waited > kLongest) {
    return failure(path, fmt::format("It runs for more than {} s, although nothing is started.", kLongest),
                   "Write the line that it starts after --.");
  }
  std::string output = output_from(command.output);
  std::vector<std::vector<std::string>> commands = records_of(output);
  return Reading{std::move(commands), std::move(output), *end};
}

}  // namespace

bool is_shell_script(const std::string& path) {
  if (path.ends_with(".sh") || path.ends_with(".bash")) return true;
  constexpr std::size_t kLongestLine = 128;
  std::string first(kLongestLine, '\0');
  std::ifstream file(path);
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<std::size_t>(file.gcount()));
  first.resize(std::min(first.find('\n'), first.size()));
  return first.starts_with("#!") && first.ends_with("bash");
}

bool is_script_line(std::span<const std::string> words) {
  return words.size() > 1 && (words[0] == "bash" || words[0] == "sh") && is_shell_script(words[1]);
}

Result<std::vector<std::vector<std::string>>> commands_of_script(const std::string& path,
                                                                 std::span<const std::string> arguments) {
  FSDP_TRY(const std::string text, read_text_file(path));
  FSDP_TRY(Reading reading, read_by_bash(path, text, arguments));
  if (reading.commands.empty() && reading.output.find("cannot redirect output") != std::string::npos) {
    FSDP_TRY(reading, read_by_bash(path, without_redirections(text), arguments));
  }
  if (reading.commands.empty() && reading.end != ExitStatus{}) {
    return failure(path, fmt::format("bash ends it: {}", message_of(reading.output)),
                   "Write the line that it starts after --.");
  }
  return std::move(reading.commands);
}

}  // namespace fsdp::runs
