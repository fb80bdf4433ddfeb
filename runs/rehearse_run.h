#pragma once

// Runs the processes of a rehearsal side by side and collects their records.

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "runs/child_process.h"
#include "runs/rehearse_environment.h"
#include "runs/rehearse_record.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// A folder of its own under TMPDIR or /tmp, removed with its contents.
class TemporaryFolder {
 public:
  /// Error: the system's reason.
  static Result<TemporaryFolder> make();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// The result of one process.
struct RankRun {
  RankJob job;
  RankFiles files;
  std::optional<ExitStatus> status;  ///< `nullopt` if it could not be started, with the reason in `errors`.
  bool timed_out = false;
  std::string last_progress;              ///< "step 2 of 3"; empty if it reported none.
  std::string was_at;                     ///< Its position when the user interrupted it.
  std::optional<RehearsalRecord> record;  ///< `nullopt` if it wrote none, or one with `errors`.
  Errors errors;
  std::vector<RehearsalWarning> writes;  ///< Files that the script wrote and removed.
  bool disk_full = false;                ///< The folder of temporary files was full when it ended.
  std::string log_tail;                  ///< The end of what it printed.
  Seconds seconds{0};

  /// For a script that ended by itself: the process's exit code, or the script's own if a destructor crashed after
  /// that.
  std::int64_t exit_code() const;
  /// Whether it trained or ran out of device memory, so that there is something to report.
  bool has_result() const;
};

/// Receives the progress of a run.
struct RunObserver {
  /// Called many times a second with the position of the first running process, and its time so far.
  std::function<void(const std::string&, Seconds)> progress;
  std::ostream* log = nullptr;  ///< Receives the script's output as it comes; may be null.
};

struct RunOutcome {
  std::vector<RankRun> runs;  ///< In the order of the jobs, without those that were not started.
  int interrupted_by = 0;     ///< The signal that asked to end; 0 if none.
};

/// Runs a process for each job, as many at a time as there are cores. After two without a result, and none with
/// one, ends the others. Leaves no process running, whatever happens. REQUIRES: `folder` is empty or from an earlier
/// call.
RunOutcome run_ranks(const RehearsalSettings& settings, const std::vector<RankJob>& jobs, const std::string& folder,
                     Supervision& supervision, const RunObserver& observer);

}  // namespace fsdp::runs
