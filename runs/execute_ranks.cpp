// Ranks meet through a file in the run's folder, so that no port is used. A failed rank ends the others: their
// connections break, and they report that. The failed rank's own message is the cause; theirs are consequences. A rank
// without a message, because it was killed, is found by its exit status.

#include "runs/execute_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/base/environment.h"
#include "core/cluster/cpu_cluster.h"
#include "text/progress_line.h"

namespace fsdp::runs {

namespace {

constexpr Seconds kBetweenRankLooks{0.05};
constexpr int kExitInput = 2;                                      // fsdp-exec reports wrong input.
constexpr std::uintmax_t kRoomForWords = std::uintmax_t{1} << 20;  // And for the ranks' earlier output.

/// The last line that begins with "error: ".
std::string error_in(const std::string& log) {
  const std::size_t begin = log.rfind("error: ");
  if (begin == std::string::npos) return {};
  std::string line = log.substr(begin + 7, log.find('\n', begin) - begin - 7);
  return line;
}

/// All such lines.
std::vector<std::string> errors_in(const std::string& log) {
  std::vector<std::string> errors;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("error: ")) errors.push_back(line.substr(7));
  }
  return errors;
}

class RankRunner {
 public:
  RankRunner(const ExecutionSettings& settings, const std::string& folder, std::ostream* words,
             Supervision& supervision)
      : settings_(settings), folder_(folder), words_(words), supervision_(supervision) {}

  Result<ExecutionOutcome> run() {
    for (std::int64_t rank = 0; rank < settings_.ranks; ++rank) {
      FSDP_TRY(ChildProcess process, ChildProcess::start(command(rank)));
      processes_.push_back(std::move(process));
    }
    outcome_.ends.resize(processes_.size());
    while (still_running() > 0) {
      const int signal = supervision_.wait(kBetweenRankLooks);
      if (signal != 0) interrupt(signal);
      for (std::size_t rank = 0; rank < processes_.size(); ++rank) look(rank);
      show();
      end_when_late();
    }
    show();
    supervision_.kill_descendants();
    describe_failure();
    return std::move(outcome_);
  }

 private:
  std::string log_of(std::size_t rank) const { return fmt::format("{}/{}.log", folder_, rank); }

  ChildCommand command(std::int64_t rank) const {
    ChildCommand command{.words = settings_.words, .output = log_of(static_cast<std::size_t>(rank))};
    command.words.insert(command.words.end(), settings_.options.begin(), settings_.options.end());
    command.words.push_back("--report");
    command.words.push_back(fmt::format("{}/report-{}.json", folder_, rank));
    command.environment = {{"RANK", std::to_string(rank)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"LOCAL_WORLD_SIZE", std::to_string(settings_.ranks)},
                           {"WORLD_SIZE", std::to_string(settings_.ranks)},
                           {"FSDP_EXEC_STORE_FILE", folder_ + "/store"}};
    command.environment.insert(command.environment.end(), settings_.environment.begin(), settings_.environment.end());
    // Gloo's threads start more threads of their own.
    if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      command.environment.emplace_back("OMP_NUM_THREADS", std::to_string(threads_of_rank(settings_.ranks)));
    }
    return command;
  }

  std::size_t still_running() const {
    return static_cast<std::size_t>(
        std::count_if(outcome_.ends.begin(), outcome_.ends.end(), [](const auto& end) { return !end.has_value(); }));
  }

  void interrupt(int signal) {
    outcome_.interrupted_by = signal;
    for (ChildProcess& each : processes_) each.signal_session(SIGKILL);
  }

  void look(std::size_t rank) {
    if (outcome_.ends[rank]) return;
    outcome_.ends[rank] = processes_[rank].poll();
    if (!outcome_.ends[rank] || *outcome_.ends[rank] == ExitStatus{} || outcome_.first_failed >= 0) return;
    outcome_.first_failed = static_cast<std::int64_t>(rank);
    failed_at_ = text::seconds_of_this_process();
  }

  void end_when_late() {
    if (!failed_at_ || text::seconds_of_this_process() - *failed_at_ < settings_.grace) return;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (!outcome_.ends[rank]) processes_[rank].signal_session(SIGKILL);
    }
  }

  /// Among ranks that end almost together, the one that a signal ended is the cause.
  void describe_failure() {
    if (outcome_.first_failed < 0) return;
    for (std::size_t rank = 0; rank < outcome_.ends.size(); ++rank) {
      if (outcome_.ends[rank]->signal == 0 || outcome_.ends[rank]->signal == SIGKILL) continue;
      outcome_.first_failed = static_cast<std::int64_t>(rank);
      break;
    }
    const auto rank = static_cast<std::size_t>(outcome_.first_failed);
    const ExitStatus end = *outcome_.ends[rank];
    const std::string log = output_from(log_of(rank));
    outcome_.message = error_in(log);
    if (end.code == kExitInput) outcome_.messages = errors_in(log);
    if (end.signal != 0 || outcome_.message.empty()) {
      outcome_.message = fmt::format("rank {} {}{}", rank, describe(end), words_on_room());
    }
  }

  /// A rank has no message if its log has no room.
  std::string words_on_room() const {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(folder_, error);
    if (error || space.available >= kRoomForWords) return {};
    return fmt::format(
        ": the disk of {}, which has its log, is full ({} bytes are left). Set TMPDIR, or name a folder on another "
        "with --run-dir",
        folder_, space.available);
  }

  void show() {
    if (words_ == nullptr) return;
    const std::string text = output_from(log_of(0), shown_);
    const std::size_t whole_lines = text.rfind('\n') + 1;
    if (whole_lines == 0) return;
    errno = 0;
    *words_ << text.substr(0, whole_lines) << std::flush;
    shown_ += static_cast<std::streamoff>(whole_lines);
    // The reader is gone: `| head`. SIGPIPE is blocked while ranks run.
    if (!words_->good() && errno == EPIPE && outcome_.interrupted_by == 0) interrupt(SIGPIPE);
  }

  const ExecutionSettings& settings_;
  const std::string& folder_;
  std::ostream* words_;
  Supervision& supervision_;
  std::vector<ChildProcess> processes_;
  ExecutionOutcome outcome_;
  std::optional<Seconds> failed_at_;
  std::streamoff shown_ = 0;  // Printed bytes of rank 0's log.
};

}  // namespace

Result<std::string> find_executor() {
  if (std::string given = environment_variable("FSDP_PLAN_EXECUTOR"); !given.empty()) return given;
  std::error_code error;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "fsdp-exec";
  if (!error && std::filesystem::exists(beside, error)) return beside.string();
  return failure("fsdp-exec", "The executor was not built, because there was no LibTorch.",
                 "Run ./scripts/bootstrap --with executor, then build again.");
}

Result<ExecutionOutcome> execute_ranks(const ExecutionSettings& settings, const std::string& folder,
                                       std::ostream* words, Supervision& supervision) {
  return RankRunner(settings, folder, words, supervision).run();
}

}  // namespace fsdp::runs
