// A process that runs too long gets three signals: SIGUSR1, at which the hook in Python prints the stacks of all
// threads; SIGTERM; and SIGKILL for the rest of its session. If the user interrupts a process, it gets that signal and
// writes its measurements, then SIGUSR1 and SIGKILL.
//
// The output of a process is a file. To stream it, we read the end of the file; a file that grows too long is
// truncated, which O_APPEND allows.

#include "runs/rehearse_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/base/parse_units.h"
#include "core/cluster/cpu_cluster.h"
#include "runs/confinement.h"
#include "runs/keeper.h"
#include "runs/rehearse_offline.h"
#include "runs/rehearse_overlay.h"
#include "runs/script_position.h"
#include "text/progress_line.h"

namespace fsdp::runs {

namespace {

constexpr Seconds kBetweenRehearsalLooks{0.1};
constexpr Seconds kBetweenStacks{1};
constexpr Seconds kForStacks{2};       // From SIGUSR1 to SIGTERM, and
constexpr Seconds kForEnding{3};       // from there, or from Ctrl-C, to SIGKILL.
constexpr Seconds kForInterrupt{1.5};  // From Ctrl-C to SIGUSR1.
constexpr std::uintmax_t kLargestLog = std::uintmax_t{64} << 20;
constexpr std::uintmax_t kRoomForRecord = std::uintmax_t{1} << 20;
constexpr std::streamoff kTail = 64 << 10;

std::uintmax_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

/// Whether the disk of a folder is full: too little room for a record.
bool is_full(const std::string& folder) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  return !error && space.available < kRoomForRecord;
}

RankFiles files_of(const RehearsalSettings& settings, const RankJob& job, const std::string& folder) {
  const std::string stem = fmt::format("{}/rank-{}{}", folder, job.rank, job.bound == EventBound::Hold ? "-hold" : "");
  return {.record = stem + ".json",
          .log = stem + ".log",
          .progress = stem + ".progress",
          .overlay = stem + ".overlay",
          .snapshot = settings.snapshot.empty() ? "" : stem + ".snapshot",
          .trace = settings.trace.empty() ? "" : stem + ".trace"};
}

struct Running {
  std::size_t index = 0;  // Index of its run.
  ChildProcess process;
  Seconds started{0};
  std::optional<Seconds> asked_for_stacks;
  std::optional<Seconds> asked_to_end;
  std::uintmax_t shown = 0;  // Printed bytes of the log.
  Seconds next_stack{0};     // Time of the next request for its stack.
  std::string stage;         // Its last message, and
  std::string position;      // its position by its last stack.
};

class Runner {
 public:
  Runner(const RehearsalSettings& settings, const std::string& folder, Supervision& supervision,
         const RunObserver& observer, std::size_t num_jobs)
      : settings_(settings), folder_(folder), supervision_(supervision), observer_(observer) {
    const auto cores = static_cast<std::size_t>(num_cores());
    at_once_ = std::min(cores, num_jobs);
    threads_ = static_cast<unsigned>(cores / at_once_);
    if (writes_of(settings) == Writes::Redirected) confinement_ = Confinement::make(writable_paths(folder));
  }

  RunOutcome run(const std::vector<RankJob>& jobs) {
    std::deque<RankJob> waiting(jobs.begin(), jobs.end());
    bool gave_up = false;
    while (!running_.empty() || (!waiting.empty() && !gave_up)) {
      while (!gave_up && !waiting.empty() && running_.size() < at_once_) {
        gave_up = !start(waiting.front());
        waiting.pop_front();
      }
      look(supervision_.wait(running_.empty() ? Seconds(0) : kBetweenRehearsalLooks));
      if (outcome_.interrupted_by != 0) gave_up = true;
      for (std::size_t i = running_.size(); i-- > 0;) {
        if (!has_ended(running_[i])) continue;
        ++(outcome_.runs[running_[i].index].has_result() ? good_ : bad_);
        // Two failed ranks without a success end all.
        gave_up = gave_up || (good_ == 0 && bad_ == std::min<std::size_t>(2, jobs.size()));
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (gave_up && outcome_.interrupted_by == 0) running_.clear();  // Kills the remaining ones.
    }
    supervision_.kill_descendants();
    return std::move(outcome_);
  }

 private:
  static std::string working_folder() {
    std::error_code ignored;
    return std::filesystem::current_path(ignored).string();
  }

  bool start(const RankJob& job) {
    RankRun& run = outcome_.runs.emplace_back();
    run.job = job;
    run.files = files_of(settings_, job, folder_);
    ChildCommand command{.words = settings_.command,
                         .environment = rehearsal_environment(settings_, job, run.files, threads_),
                         .hides = [&](std::string_view name) { return is_misleading(name, settings_); },
                         .output = run.files.log};
    if (const Result<void> made = make_overlay(run.files.overlay); !made) {
      run.errors = made.error();
      return false;
    }
    for (const auto& more : {overlay_environment(settings_, run.files.overlay, folder_),
                             offline_environment(run.files.overlay + "/tmp")}) {
      command.environment.insert(command.environment.end(), more.begin(), more.end());
    }
    if (writes_of(settings_) == Writes::Redirected) {
      command.confinement = confinement_ ? confinement_->rules() : -1;
    }
    command.words.front() = settings_.program;
    Result<ChildProcess> process = ChildProcess::start(command);
    if (!process) {
      run.errors = process.error();
      return false;
    }
    running_.push_back({.index = outcome_.runs.size() - 1, .process = *std::move(process), .started = now()});
    return true;
  }

  /// Streams the output, ends processes whose time is over, and reports progress.
  void look(int signal) {
    if (signal != 0 && outcome_.interrupted_by == 0) {
      outcome_.interrupted_by = signal;
      for (Running& each : running_) {
        look_where(each);
        outcome_.runs[each.index].was_at = each.position;
        each.process.signal(signal);
        each.asked_to_end = now();
      }
    }
    for (Running& each : running_) {
      show_log(each);
      look_where(each);
      end_when_late(each);
    }
    if (observer_.progress && !running_.empty()) {
      observer_.progress(progress_text(), now() - running_.front().started);
    }
  }

  /// Reads the process's position, and requests its stack again: the hook in Python writes it at SIGURG, which other
  /// programs ignore (python/fsdp_rehearsal/progress.py).
  void look_where(Running& each) {
    const std::string& path = outcome_.runs[each.index].files.progress;
    const std::string stacks = path + ".stack";
    const std::string stage = first_line(path);
    const std::string stack = output_from(stacks, 0);
    if (!stack.empty() || stage != each.stage || each.position.empty()) {
      each.position = position_of(stage, stack, folder_of_command_);
      each.stage = stage;
    }
    if (now() < each.next_stack || each.asked_to_end) return;
    each.next_stack = now() + kBetweenStacks;
    if (truncate(stacks.c_str(), 0) == 0) each.process.signal(SIGURG);
  }

  void end_when_late(Running& each) {
    const Seconds time = now();
    if (each.asked_to_end) {
      if (outcome_.interrupted_by != 0 && !each.asked_for_stacks && time - *each.asked_to_end > kForInterrupt) {
        each.process.signal(SIGUSR1);
        each.asked_for_stacks = time;
      }
      if (time - *each.asked_to_end > kForEnding) each.process.signal_session(SIGKILL);
    } else if (each.asked_for_stacks) {
      if (time - *each.asked_for_stacks < kForStacks) return;
      each.process.signal_session(SIGTERM);
      each.asked_to_end = time;
    } else if (time - each.started > settings_.timeout) {
      outcome_.runs[each.index].timed_out = true;
      each.process.signal(SIGUSR1);
      each.asked_for_stacks = time;
    }
  }

  bool has_ended(Running& each) {
    const std::optional<ExitStatus> status = each.process.poll();
    if (!status) return false;
    show_log(each);
    RankRun& run = outcome_.runs[each.index];
    run.status = status;
    run.seconds = now() - each.started;
    run.last_progress = each.position;
    const auto size = static_cast<std::streamoff>(size_of_file(run.files.log));
    run.disk_full = is_full(folder_);
    run.writes = describe_writes(settings_, run.files.overlay);
    std::error_code ignored;
    std::filesystem::remove_all(run.files.overlay, ignored);
    run.log_tail = output_from(run.files.log, std::max<std::streamoff>(0, size - kTail));
    read(run);
    return true;
  }

  static void read(RankRun& run) {
    if (size_of_file(run.files.record) == 0) return;
    const Result<JsonDocument> document = read_json_file(run.files.record);
    Result<RehearsalRecord> record = document ? read_record(*document) : tl::unexpected(document.error());
    if (record) {
      run.record = *std::move(record);
    } else {
      run.errors = record.error();
    }
  }

  void show_log(Running& each) {
    const std::string& path = outcome_.runs[each.index].files.log;
    const std::uintmax_t size = size_of_file(path);
    if (size < each.shown) each.shown = 0;
    if (observer_.log == nullptr) {
      each.shown = size;
    } else if (size > each.shown) {
      const std::string text = output_from(path, static_cast<std::streamoff>(each.shown));
      *observer_.log << text << std::flush;
      each.shown += text.size();  // The script continues to write, so this may exceed `size`.
    }
    if (size > kLargestLog && truncate(path.c_str(), 0) == 0) each.shown = 0;
  }

  static std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  }

  std::string progress_text() const {
    const Running& first = running_.front();
    const RankRun& run = outcome_.runs[first.index];
    std::string text = fmt::format("rank {}", run.job.rank);
    if (running_.size() > 1) text += fmt::format(", the first of {} side by side", running_.size());
    return fmt::format("{}: {}", text, first.position);
  }

  static Seconds now() { return text::seconds_of_this_process(); }

  const RehearsalSettings& settings_;
  const std::string& folder_;
  Supervision& supervision_;
  const RunObserver& observer_;
  std::size_t at_once_ = 1;
  unsigned threads_ = 1;
  std::optional<Confinement> confinement_;
  std::size_t good_ = 0;  // Runs that have ended with a result, and
  std::size_t bad_ = 0;   // without one.
  const std::string folder_of_command_ = working_folder();
  std::vector<Running> running_;
  RunOutcome outcome_;
};

}  // namespace

Result<TemporaryFolder> TemporaryFolder::make() {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  const std::string where = (error ? std::filesystem::path("/tmp") : base).string();
  remove_stale_folders(where);
  std::string path = where + "/fsdp-plan-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return failure(path, fmt::format("A temporary folder cannot be made: {}.", std::strerror(errno)),
                   "Set TMPDIR to a folder that can be written to.");
  }
  lock_folder(path);
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::int64_t RankRun::exit_code() const {
  return status && status->signal == 0 ? status->code : record ? record->exit_status : 0;
}

bool RankRun::has_result() const {
  if (!record || timed_out) return false;
  return record->end != "exception" && (record->end != "script_ended" || exit_code() == 0);
}

RunOutcome run_ranks(const RehearsalSettings& settings, const std::vector<RankJob>& jobs, const std::string& folder,
                     Supervision& supervision, const RunObserver& observer) {
  return Runner(settings, folder, supervision, observer, std::max<std::size_t>(1, jobs.size())).run(jobs);
}

}  // namespace fsdp::runs
