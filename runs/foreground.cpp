#include "runs/foreground.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace fsdp::runs {

namespace {

/// Ignores the signals that a terminal sends to all its processes.
class DeafToTerminal {
 public:
  DeafToTerminal() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &ignore, &before_[i]);
  }
  ~DeafToTerminal() { restore(); }
  DeafToTerminal(const DeafToTerminal&) = delete;
  DeafToTerminal& operator=(const DeafToTerminal&) = delete;

  void restore() const {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// In the child: becomes the program, or writes the system's error number to `report`.
[[noreturn]] void become(const ForegroundCommand& command, const DeafToTerminal& deaf, pid_t parent, int report) {
  deaf.restore();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  if (command.output_to_error) dup2(STDERR_FILENO, STDOUT_FILENO);
  for (const auto& [name, value] : command.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof(error));
  _exit(1);
}

}  // namespace

Result<ExitStatus> run_in_foreground(const ForegroundCommand& command) {
  const std::string& program = command.words.front();
  const auto fail = [&](int error) {
    return failure(program, fmt::format("It cannot be started: {}.", std::strerror(error)), "");
  };
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return fail(errno);
  const DeafToTerminal deaf;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(command, deaf, parent, pipe_ends[1]);
  const int fork_error = errno;
  close(pipe_ends[1]);
  int exec_error = 0;
  const bool is_refused = child > 0 && read(pipe_ends[0], &exec_error, sizeof(exec_error)) == sizeof(exec_error);
  close(pipe_ends[0]);
  if (child < 0) return fail(fork_error);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (is_refused) return fail(exec_error);
  if (WIFSIGNALED(status)) return ExitStatus{.signal = WTERMSIG(status)};
  return ExitStatus{.code = WEXITSTATUS(status)};
}

}  // namespace fsdp::runs
