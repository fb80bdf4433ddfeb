#include "command/rehearse_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/parse_units.h"
#include "runs/keeper.h"
#include "runs/rehearse_failure.h"
#include "runs/rehearse_report.h"
#include "text/progress_line.h"
#include "text/progress_log.h"

namespace fsdp::planner {

namespace {

constexpr const char* kNotRun = "It was not run to its end, since others had failed.";

class Rehearser {
 public:
  Rehearser(const RehearsalSettings& settings, const Output& output, const std::string& folder,
            Supervision& supervision)
      : settings_(settings),
        output_(output),
        folder_(folder),
        supervision_(supervision),
        line_(output.console.err, output.err, !output.quiet && !output.verbose, seconds_of_this_process),
        log_(output.quiet || output.err.is_terminal ? nullptr : &output.console.err, settings.progress,
             seconds_of_this_process) {
    observer_.progress = [this](const std::string& what, Seconds running) {
      line_.show(fmt::format("{}, {:.0f} s", what, running.count()));
      log_.show(what, running);
    };
    if (output.verbose) observer_.log = &output.console.err;
  }

  /// All ranks, and at the other bound those whose figures depend on timing. `nullopt` if the user interrupted it.
  tl::expected<std::optional<RehearsalRuns>, Failure> run() {
    const Seconds begin = seconds_of_this_process();
    const EventBound bound = settings_.bound.value_or(EventBound::Done);
    const auto jobs_of = [&](const std::vector<std::int64_t>& ranks) {
      std::vector<RankJob> jobs;
      for (const std::int64_t rank : ranks) jobs.push_back({rank, bound});
      return jobs;
    };
    const std::int64_t gpus = settings_.cluster.gpus_per_node;
    const auto known = ranks_of(settings_.ranks, world_size(settings_.cluster), gpus);
    std::vector<std::int64_t> ranks = settings_.counts_known && known ? *known : std::vector<std::int64_t>{0};
    if (!settings_.counts_known && settings_.ranks.kind == RankChoice::Kind::Numbers) ranks = settings_.ranks.numbers;
    if (!add(jobs_of(ranks))) return stopped();
    if (!settings_.counts_known && settings_.ranks.kind != RankChoice::Kind::Numbers) {
      // Now the launcher has set the number of ranks.
      const RecordedJob job = runs_.runs.front().record->job;
      std::vector<std::int64_t> rest = *ranks_of(settings_.ranks, job.world_size, job.local_world_size);
      std::erase(rest, ranks.front());
      if (!add(jobs_of(rest))) return stopped();
    }
    if (!add(jobs_at_other_bound(settings_, runs_.runs))) return stopped();
    line_.erase();
    runs_.facts.seconds = seconds_of_this_process() - begin;
    for (const RankRun& run : runs_.runs) {
      runs_.facts.host_peak = std::max(runs_.facts.host_peak, run.record->host_peak);
    }
    return std::optional<RehearsalRuns>(std::move(runs_));
  }

 private:
  /// Runs more jobs. Returns false if no run so far has a result. Failures of others become notes.
  bool add(const std::vector<RankJob>& jobs) {
    if (jobs.empty()) return true;
    RunOutcome outcome = run_ranks(settings_, jobs, folder_, supervision_, observer_);
    interrupted_ = outcome.interrupted_by != 0;
    if (interrupted_) {
      say_what_is_known(outcome);
      return false;
    }
    std::vector<const RankRun*> lost;
    for (RankRun& run : outcome.runs) {
      Errors errors;
      if (!run.has_result()) {
        errors = explain_failure(run, settings_);
      } else if (used_the_gpu(run, errors)) {
        runs_.runs.push_back(std::move(run));
        continue;
      }
      lost.push_back(&run);
      runs_.unplayed.push_back({run.job.rank, errors.empty() ? kNotRun : errors.front().what});
    }
    for (std::size_t i = outcome.runs.size(); i < jobs.size(); ++i) runs_.unplayed.push_back({jobs[i].rank, kNotRun});
    if (runs_.runs.empty()) {
      explain(most_telling(lost));
      return false;
    }
    mention(lost);
    return true;
  }

  /// Prints the script's position when the user ended the rehearsal, and its memory until then.
  void say_what_is_known(const RunOutcome& outcome) {
    const auto run = std::find_if(outcome.runs.begin(), outcome.runs.end(), [](const RankRun& r) { return r.status; });
    if (run == outcome.runs.end()) return;
    keep_output(*run);
    std::string text =
        fmt::format("rank {} was at: {}, after {:.0f} s.", run->job.rank, run->was_at, run->seconds.count());
    if (run->record && run->record->memory.peaks.device > Bytes(0)) {
      const MemoryPeaks& peaks = run->record->memory.peaks;
      text += fmt::format(" Until then it needed {} of {}: {} allocated, {} reserved.", format_bytes(peaks.device),
                          format_bytes(settings_.cluster.gpu.usable_memory.value), format_bytes(peaks.allocated),
                          format_bytes(peaks.reserved));
    }
    output_.note(text);
  }

  /// Among runs without figures: one that failed, otherwise one that could not start, otherwise one without a GPU.
  static const RankRun& most_telling(const std::vector<const RankRun*>& lost) {
    const auto failed =
        std::find_if(lost.begin(), lost.end(), [](auto* run) { return run->status && !run->has_result(); });
    if (failed != lost.end()) return **failed;
    const auto not_started = std::find_if(lost.begin(), lost.end(), [](auto* run) { return !run->errors.empty(); });
    return not_started != lost.end() ? **not_started : *lost.front();
  }

  /// Adds the output and the writes of the failed ranks to an answer without them.
  void mention(const std::vector<const RankRun*>& lost) {
    std::set<std::string> said;
    for (const RankRun* run : lost) {
      if (said.insert(kept_output(*run)).second) keep_output(*run);
      note_writes(*run);
    }
  }

  void explain(const RankRun& run) {
    if (!run.has_result()) {
      failure_.errors = explain_failure(run, settings_);
    } else {
      used_the_gpu(run, failure_.errors);
    }
    if (is_refused_plan(run)) failure_.code = kExitInput;
    keep_output(run);
    note_writes(run);
  }

  void note_writes(const RankRun& run) {
    for (const RehearsalWarning& warning : run.writes) {
      if (warning.kind == "allowed_writes") output_.note(warning.text);
    }
  }

  /// Prints the script's output before the error, once.
  void keep_output(const RankRun& run) {
    line_.erase();
    if (!output_.verbose) output_.console.err << kept_output(run);
  }

  tl::expected<std::optional<RehearsalRuns>, Failure> stopped() {
    line_.erase();
    if (interrupted_) return std::nullopt;
    return tl::unexpected(failure_);
  }

  const RehearsalSettings& settings_;
  const Output& output_;
  const std::string& folder_;
  Supervision& supervision_;
  ProgressLine line_;
  ProgressLog log_;
  RunObserver observer_;
  RehearsalRuns runs_;
  bool interrupted_ = false;
  Failure failure_{.errors = {}, .code = kExitRun};
};

}  // namespace

CommandResult in_rehearsal_folder(const std::function<CommandResult(const std::string&, Supervision&)>& run) {
  Supervision supervision;
  const Result<TemporaryFolder> folder = TemporaryFolder::make();
  if (!folder) return tl::unexpected(Failure{folder.error(), kExitRun});
  const Keeper keeper(folder->path());
  supervision.spare(keeper.pid());
  return run(folder->path(), supervision);
}

void begin_progress(const RehearsalSettings& settings) {
  if (!settings.progress.empty()) std::ofstream(settings.progress, std::ios::trunc);
}

tl::expected<std::optional<RehearsalRuns>, Failure> rehearse_all(const RehearsalSettings& settings,
                                                                 const Output& output, const std::string& folder,
                                                                 Supervision& supervision) {
  return Rehearser(settings, output, folder, supervision).run();
}

}  // namespace fsdp::planner
