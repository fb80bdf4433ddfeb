// The keeper waits at a pipe whose other end only we have. A byte means that we are done; the end of the pipe without a
// byte means that we were killed. It finds processes of the rehearsal by their environment: each has a variable with a
// file in the folder, whatever session or parent it has by then.
//
// Sources: pipe(7), proc_pid_environ(5), flock(2): a lock ends with its process, however that ends.

#include "runs/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace fsdp::runs {

namespace {

constexpr int kKillRounds = 100;
constexpr std::string_view kPrefix = "fsdp-plan-";
constexpr char kLock[] = "/lock";

bool belongs_to(const std::filesystem::path& process, const std::string& folder) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string environment((std::istreambuf_iterator<char>(file)), {});
  return environment.find("=" + folder + "/") != std::string::npos;
}

/// Kills every process of the rehearsal. Returns false if there was none.
bool kill_all(const std::string& folder) {
  bool found = false;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad != std::errc{} || rest != name.data() + name.size() || pid == getpid()) continue;
    if (belongs_to(entry->path(), folder)) found = kill(pid, SIGKILL) == 0 || found;
  }
  return found;
}

[[noreturn]] void keep(int from_us, const std::string& folder) {
  setsid();
  const int nothing = open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, file);
  char done = 0;
  if (read(from_us, &done, 1) == 1) _exit(0);
  for (int round = 0; round < kKillRounds && kill_all(folder); ++round) usleep(20000);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

Keeper::Keeper(const std::string& folder) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return;
  const pid_t pid = fork();
  if (pid == 0) {
    close(pipe[1]);
    keep(pipe[0], folder);
  }
  close(pipe[0]);
  to_keeper_ = pipe[1];
  if (pid > 0) pid_ = pid;
}

Keeper::~Keeper() {
  if (to_keeper_ < 0) return;
  [[maybe_unused]] const ssize_t written = write(to_keeper_, "d", 1);
  close(to_keeper_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void lock_folder(const std::string& folder) {
  // Stays open and locked until this process ends. It has its name once it is locked: before, another process would
  // take the folder for one that is left over.
  const std::string name = folder + kLock;
  const std::string unfinished = name + "-unfinished";
  const int file = open(unfinished.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  flock(file, LOCK_EX | LOCK_NB);
  std::rename(unfinished.c_str(), name.c_str());
}

void remove_stale_folders(const std::string& base) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(base, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    // Without O_CREAT: a folder without a lock is foreign or unfinished.
    const int file = open((path + kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    close(file);
  }
}

}  // namespace fsdp::runs
