// Starting, watching and ending other programs.
//
// A child gets a session of its own (setsid), so that one signal reaches everything that it started in it. A process
// that leaves the session, like daemons and torchrun's workers, becomes our child when its parent ends, because this
// process is a subreaper (PR_SET_CHILD_SUBREAPER). At the end we kill all our children that did not exist before, until
// none is left. A child also dies when this process does, even by SIGKILL (PR_SET_PDEATHSIG).
//
// The output goes to a file instead of a pipe: a pipe that a grandchild holds open never ends, and a pipe without a
// reader stops the child.
//
// Sources: credentials(7), prctl(2), proc(5), sigtimedwait(2). Boost.Process 1.74, the version of Debian 12, supports
// neither sessions nor subreapers, so it would not save code.
//
// Not modeled: a descendant that another user owns cannot be killed; it survives.

#include "runs/child_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "runs/confinement.h"

namespace fsdp::runs {

namespace {

constexpr int kMostRounds = 1000;  // Rounds of killing: bounds the fight against a process that forks faster than it
                                   // can be killed.
constexpr int kEndSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

ExitStatus status_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.code = 0, .signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status), .signal = 0};
}

/// The environment of this process with the changes of a command, as "NAME=value".
std::vector<std::string> environment_of(const ChildCommand& command) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (command.hides && command.hides(text.substr(0, text.find('=')))) continue;
    const bool is_changed = std::any_of(command.environment.begin(), command.environment.end(), [&](const auto& each) {
      return text.starts_with(each.first) && text.substr(each.first.size()).starts_with('=');
    });
    if (!is_changed) result.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Runs in the child between fork and exec: calls only functions that signal-safety(7) allows.
[[noreturn]] void become(char** words, char** environment, int input, int output, int report, pid_t parent,
                         std::optional<int> confinement) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) std::signal(number, SIG_DFL);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl.
  if (getppid() != parent) _exit(127);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (confinement) confine_this_process(*confinement);
  execvpe(words[0], words, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof error);
  _exit(127);
}

/// Parent of a process; `nullopt` if the process is gone.
std::optional<pid_t> parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text, '\0');
  // "pid (name) state parent ...": a name may contain blanks and parentheses.
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 4 >= text.size()) return std::nullopt;
  pid_t parent = 0;
  std::from_chars(text.data() + end + 4, text.data() + text.size(), parent);
  return parent;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return children;
  while (const dirent* entry = readdir(folder)) {
    pid_t pid = 0;
    const std::string_view name(entry->d_name);
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    if (parent_of(pid) == getpid()) children.push_back(pid);
  }
  closedir(folder);
  return children;
}

}  // namespace

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("ended with exit code {}", status.code);
  return fmt::format("was ended by signal {} ({})", status.signal, strsignal(status.signal));
}

std::string output_from(const std::string& path, std::streamoff begin) {
  std::ifstream file(path, std::ios::binary);
  if (!file.seekg(begin)) return {};
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<ChildProcess> ChildProcess::start(const ChildCommand& command) {
  std::vector<std::string> words = command.words;
  std::vector<std::string> environment = environment_of(command);
  const std::vector<char*> word_pointers = pointers_of(words);
  const std::vector<char*> environment_pointers = pointers_of(environment);
  const auto refuse = [&](int error) {
    return failure(words.front(), fmt::format("It cannot be started: {}.", std::strerror(error)));
  };
  int report[2] = {-1, -1};
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int output = open(command.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (input < 0 || output < 0 || pipe2(report, O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int file : {input, output}) close(file);
    return refuse(error);
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(const_cast<char**>(word_pointers.data()), const_cast<char**>(environment_pointers.data()), input, output,
           report[1], parent, command.confinement);
  }
  int error = pid < 0 ? errno : 0;
  for (const int file : {input, output, report[1]}) close(file);
  // The pipe closes without data if exec succeeds.
  if (pid > 0 && read(report[0], &error, sizeof error) > 0) waitpid(pid, nullptr, 0);
  close(report[0]);
  if (error != 0) return refuse(error);
  return ChildProcess(pid);
}

ChildProcess::~ChildProcess() {
  if (pid_ == 0 || status_) return;
  signal_session(SIGKILL);
  signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<ExitStatus> ChildProcess::poll() {
  if (status_ || pid_ == 0) return status_;
  // Leaves a zombie until its session is gone, so that the system cannot reuse the number for another session.
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  signal_session(SIGKILL);
  int wait_status = 0;
  waitpid(pid_, &wait_status, 0);
  status_ = status_of(wait_status);
  return status_;
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && !status_) kill(pid_, number);
}

void ChildProcess::signal_session(int number) const {
  if (pid_ > 0 && !status_) kill(-pid_, number);
}

Supervision::Supervision() {
  sigemptyset(&waited_);
  sigaddset(&waited_, SIGCHLD);
  for (const int number : kEndSignals) {
    // nohup and "&" in a script make a process ignore some of them; they stay ignored.
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&waited_, number);
  }
  // Blocked, but not waited for: leftovers have to be removed first.
  sigset_t blocked = waited_;
  sigaddset(&blocked, SIGPIPE);
  sigprocmask(SIG_BLOCK, &blocked, &before_);
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  not_ours_ = children_of_this_process();
}

Supervision::~Supervision() {
  kill_descendants();
  prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Supervision::wait(Seconds at_most) {
  const auto whole = static_cast<std::int64_t>(at_most.count());
  timespec time{};
  time.tv_sec = static_cast<time_t>(whole);
  time.tv_nsec = static_cast<long>((at_most.count() - static_cast<double>(whole)) * 1e9);
  const int number = sigtimedwait(&waited_, nullptr, &time);
  return std::find(std::begin(kEndSignals), std::end(kEndSignals), number) == std::end(kEndSignals) ? 0 : number;
}

void Supervision::kill_descendants() {
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<pid_t> children = children_of_this_process();
    std::erase_if(children,
                  [&](pid_t pid) { return std::find(not_ours_.begin(), not_ours_.end(), pid) != not_ours_.end(); });
    if (children.empty()) return;
    // The children of killed processes become ours for the next round.
    for (const pid_t pid : children) {
      if (kill(pid, SIGKILL) == 0) waitpid(pid, nullptr, 0);
    }
  }
}

}  // namespace fsdp::runs
