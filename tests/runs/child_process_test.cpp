#include "runs/child_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

namespace fsdp::runs {
namespace {

/// A file of this test, which is empty or not there.
std::string scratch(const std::string& name) {
  const std::string path = testing::TempDir() + "child_process_test_" + std::to_string(getpid()) + "_" + name;
  std::filesystem::remove(path);
  return path;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

ChildCommand shell(const std::string& script, const std::string& output = "/dev/null") {
  return {.words = {"sh", "-c", script}, .output = output};
}

/// Whether there is a process that is not just a zombie.
bool runs(pid_t pid) {
  const std::string stat = content("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

/// The number that a script wrote to a file, once it is there.
// Whatever is waited for here comes, however busy the machine is; what never comes is ended by ctest.
pid_t pid_in(const std::string& path) {
  for (;;) {
    const std::string text = content(path);
    if (text.ends_with('\n')) return static_cast<pid_t>(std::stol(text));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void wait_until_gone(pid_t pid) {
  while (runs(pid)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// A script that starts `background`, which leaves its number in a file, and ends once the number is there.
std::string ends_after(const std::string& background, const std::string& file) {
  return background + " & until [ -s " + file + " ]; do sleep 0.01; done";
}

ExitStatus end_of(ChildProcess& process, Supervision& supervision) {
  for (;;) {
    if (const auto status = process.poll()) return *status;
    supervision.wait(Seconds(0.05));
  }
}

TEST(ChildProcess, ReportsItsExitStatus) {
  Supervision supervision;
  auto good = ChildProcess::start(shell("exit 0"));
  auto bad = ChildProcess::start(shell("exit 7"));
  auto killed = ChildProcess::start(shell("kill -SEGV $$"));
  ASSERT_TRUE(good && bad && killed);
  EXPECT_EQ(end_of(*good, supervision), (ExitStatus{0, 0}));
  EXPECT_EQ(end_of(*bad, supervision), (ExitStatus{7, 0}));
  EXPECT_EQ(end_of(*killed, supervision), (ExitStatus{0, SIGSEGV}));
  EXPECT_EQ(describe({7, 0}), "ended with exit code 7");
  EXPECT_EQ(describe({0, SIGSEGV}), "was ended by signal 11 (Segmentation fault)");
}

TEST(ChildProcess, ReportsWhyItCannotStart) {
  Supervision supervision;
  const auto process = ChildProcess::start({.words = {"/no/such/program"}, .output = "/dev/null"});
  ASSERT_FALSE(process);
  EXPECT_EQ(to_string(process.error().front()), "/no/such/program: It cannot be started: No such file or directory.");
}

TEST(ChildProcess, CapturesBothStreamsAndHasAnEmptyInput) {
  Supervision supervision;
  const std::string log = scratch("log");
  // A pipe holds 64 KiB.
  auto process = ChildProcess::start(shell("head -c 1000000 /dev/zero | tr '\\0' x; echo end >&2; cat; exit 3", log));
  ASSERT_TRUE(process);
  EXPECT_EQ(end_of(*process, supervision).code, 3);
  EXPECT_EQ(content(log), std::string(1000000, 'x') + "end\n");
}

TEST(ChildProcess, SetsAndHidesVariables) {
  setenv("FSDP_TEST_HIDDEN", "1", 1);
  setenv("FSDP_TEST_CHANGED", "1", 1);
  Supervision supervision;
  const std::string log = scratch("variables");
  ChildCommand command = shell("echo $FSDP_TEST_HIDDEN.$FSDP_TEST_CHANGED.$FSDP_TEST_NEW", log);
  command.environment = {{"FSDP_TEST_CHANGED", "2"}, {"FSDP_TEST_NEW", "3"}};
  command.hides = [](std::string_view name) { return name == "FSDP_TEST_HIDDEN"; };
  auto process = ChildProcess::start(command);
  ASSERT_TRUE(process);
  end_of(*process, supervision);
  EXPECT_EQ(content(log), ".2.3\n");
}

TEST(ChildProcess, KilledWhenHandleDropped) {
  Supervision supervision;
  const std::string file = scratch("deaf");
  pid_t pid = 0;
  {
    // Deaf to all that asks kindly.
    auto process =
        ChildProcess::start(shell("trap '' TERM INT HUP; echo $$ > " + file + "; while :; do sleep 1; done"));
    ASSERT_TRUE(process);
    pid = pid_in(file);
    process->signal_session(SIGTERM);
    supervision.wait(Seconds(0.2));
    EXPECT_FALSE(process->poll());
    EXPECT_TRUE(runs(pid));
  }
  EXPECT_FALSE(runs(pid));
}

TEST(ChildProcess, ItsEndKillsItsSession) {
  Supervision supervision;
  const std::string file = scratch("session");
  auto process = ChildProcess::start(shell(ends_after("sh -c 'echo $$ > " + file + "; sleep 100000'", file)));
  ASSERT_TRUE(process);
  const pid_t grandchild = pid_in(file);
  end_of(*process, supervision);
  // Nothing else ends it: it would sleep for a day.
  wait_until_gone(grandchild);
}

TEST(Supervision, KillsOrphansThatLeftTheirSession) {
  const std::string file = scratch("daemon");
  Supervision supervision;
  auto process = ChildProcess::start(shell(ends_after("setsid sh -c 'echo $$ > " + file + "; sleep 100000'", file)));
  ASSERT_TRUE(process);
  const pid_t daemon = pid_in(file);
  end_of(*process, supervision);
  EXPECT_TRUE(runs(daemon));
  supervision.kill_descendants();
  EXPECT_FALSE(runs(daemon));
}

TEST(Supervision, DoesNotTouchEarlierChildren) {
  const pid_t before = fork();
  if (before == 0) {
    pause();
    _exit(0);
  }
  { Supervision supervision; }
  EXPECT_TRUE(runs(before));
  kill(before, SIGKILL);
}

TEST(Supervision, ReturnsTerminationSignals) {
  Supervision supervision;
  EXPECT_EQ(supervision.wait(Seconds(0)), 0);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(supervision.wait(Seconds(1)), SIGTERM);
  kill(getpid(), SIGINT);
  EXPECT_EQ(supervision.wait(Seconds(1)), SIGINT);
}

TEST(Supervision, WakesUpWhenAChildEnds) {
  Supervision supervision;
  auto process = ChildProcess::start(shell("sleep 0.1"));
  ASSERT_TRUE(process);
  // A day: this test ends because the child woke it up.
  while (!process->poll()) EXPECT_EQ(supervision.wait(Seconds(86'400)), 0);
}

TEST(ChildProcess, IsKilledWithItsSupervisor) {
  const std::string file = scratch("orphan");
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    Supervision supervision;
    const auto process = ChildProcess::start(shell("echo $$ > " + file + "; exec sleep 100000"));
    pause();
    _exit(0);
  }
  const pid_t child = pid_in(file);
  ASSERT_TRUE(runs(child));
  kill(supervisor, SIGKILL);
  wait_until_gone(child);
}

}  // namespace
}  // namespace fsdp::runs
