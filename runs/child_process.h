#pragma once

// Other programs, run so that nothing of them is left over: each in a session of its own, its output in a file, and
// whatever it started ended with it.

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

namespace fsdp::planner {

struct ChildCommand {
  std::vector<std::string> words;  ///< The program, as a path or a name on PATH, and its arguments.
  /// Variables set on top of this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  std::function<bool(std::string_view)> hides;  ///< Names of variables that it does not inherit. May be empty.
  /// Rules of a Confinement that the child takes upon itself, -1 for none but that it gains no privileges. Empty: it is
  /// free.
  std::optional<int> confinement;
  std::string output;  ///< File to which standard output and standard error are appended. The input is empty.
};

/// How a process ended.
struct ExitStatus {
  int code = 0;    ///< Code of exit; 0 when a signal ended it.
  int signal = 0;  ///< 0: it ended by itself.

  bool operator==(const ExitStatus&) const = default;
};
/// "ended with exit code 1", "was ended by signal 11 (Segmentation fault)".
std::string describe(const ExitStatus& status);

/// The output of a process from byte `begin` on; nothing when it is shorter.
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
  /// How it ended, or nothing while it runs. Never waits. Its session is killed once it has ended.
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

/// While it lives, this process adopts the orphans of its children, gets the signals that ask it to end as values
/// instead of dying of them (those that it does not ignore anyway), and is told of children that end. A pipe that
/// nobody reads ends it at the end of this life, and not before. Then it kills all descendants that were started
/// meanwhile, also those that left their session.
///
/// REQUIRES: one at a time, on a thread that starts all children; no other code waits for children.
class Supervision {
 public:
  Supervision();
  ~Supervision();
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  /// Leaves a child alone, whoever else is killed.
  void spare(pid_t child) { not_ours_.push_back(child); }

  /// Waits until a child ends, somebody asks this process to end, or the time is over. Returns the signal that asked
  /// (SIGINT, SIGQUIT, SIGTERM, SIGHUP), or 0.
  int wait(Seconds at_most);

  /// Kills what was started since and is still there.
  void kill_descendants();

 private:
  sigset_t waited_{};
  sigset_t before_{};
  int was_subreaper_ = 0;
  std::vector<pid_t> not_ours_;  ///< Children from before.
};

}  // namespace fsdp::planner
