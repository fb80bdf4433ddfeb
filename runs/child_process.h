#pragma once

// Other programs, run so that nothing of them is left over: each in a session of its own, with its output in a file.
// Everything that it starts ends with it.

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <ios>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"

namespace fsdp::runs {

struct ChildCommand {
  std::vector<std::string> words;  ///< The program, as a path or a name on PATH, and its arguments.
  /// Variables set on top of this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  std::function<bool(std::string_view)> hides;  ///< Names of variables that the child does not inherit. May be empty.
  /// Rules of a Confinement that the child applies to itself; -1 only forbids gaining privileges. `nullopt` if the
  /// child is unconfined.
  std::optional<int> confinement;
  std::string output;  ///< File to which standard output and standard error are appended. The input is empty.
};

/// How a process ended.
struct ExitStatus {
  int code = 0;    ///< Exit code; 0 if a signal ended it.
  int signal = 0;  ///< 0 if it ended by itself.

  bool operator==(const ExitStatus&) const = default;
};
/// "ended with exit code 1", "was ended by signal 11 (Segmentation fault)".
std::string describe(const ExitStatus& status);

/// The output of a process from byte `begin` on; empty if it is shorter.
std::string output_from(const std::string& path, std::streamoff begin = 0);

/// One process and all that it starts. Its destructor kills processes that still run.
class ChildProcess {
 public:
  /// Error: the program cannot be started, with the system's reason.
  static Result<ChildProcess> start(const ChildCommand& command);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)), status_(other.status_) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(status_, other.status_);
    return *this;
  }

  pid_t pid() const { return pid_; }
  /// How it ended; `nullopt` while it runs. Never waits. Kills its session once it has ended.
  std::optional<ExitStatus> poll();
  /// Sends a signal to the process itself.
  void signal(int number) const;
  /// Sends a signal to every process of its session.
  void signal_session(int number) const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::optional<ExitStatus> status_;
};

/// During its life, this process adopts the orphans of its children, receives the signals that ask it to end as
/// values instead of dying of them (unless it ignores them anyway), and learns of children that end. A pipe without a
/// reader ends this process only at the end of this life. The destructor then kills all descendants that were started
/// meanwhile, also those that left their session.
///
/// REQUIRES: one at a time, on a thread that starts all children; no other code waits for children.
class Supervision {
 public:
  Supervision();
  ~Supervision();
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  /// Exempts a child from kill_descendants().
  void spare(pid_t child) { not_ours_.push_back(child); }

  /// Waits until a child ends, a signal asks this process to end, or the time is over. Returns that signal (SIGINT,
  /// SIGQUIT, SIGTERM, SIGHUP), or 0.
  int wait(Seconds at_most);

  /// Kills the remaining processes that were started since construction.
  void kill_descendants();

 private:
  sigset_t waited_{};
  sigset_t before_{};
  int was_subreaper_ = 0;
  std::vector<pid_t> not_ours_;  ///< Children from before construction.
};

}  // namespace fsdp::runs
