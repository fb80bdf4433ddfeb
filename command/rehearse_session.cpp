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

namespace fsdp::command {

namespace {

constexpr const char* kNotRun = "It was not run to its end, since others had failed.";

class Rehearser {
 public:
  Rehearser(const runs::RehearsalSettings& settings, const Output& output, const std::string& folder,
            runs::Supervision& supervision)
      : settings_(settings),
        output_(output),
        folder_(folder),
        supervision_(supervision),
        line_(output.console.err, output.err, !output.quiet && !output.verbose, text::seconds_of_this_process),
        log_(output.quiet || output.err.is_terminal ? nullptr : &output.console.err, settings.progress,
             text::seconds_of_this_process) {
    observer_.progress = [this](const std::string& what, Seconds running) {
      line_.show(fmt::format("{}, {:.0f} s", what, running.count()));
      log_.show(what, running);
    };
    if (output.verbose) observer_.log = &output.console.err;
  }

  /// All ranks, and at the other bound those whose figures depend on timing. `nullopt` if the user interrupted it.
  tl::expected<std::optional<RehearsalRuns>, Failure> run() {
    const Seconds begin = text::seconds_of_this_process();
    const runs::EventBound bound = settings_.bound.value_or(runs::EventBound::Done);
    const auto jobs_of = [&](const std::vector<std::int64_t>& ranks) {
      std::vector<runs::RankJob> jobs;
      for (const std::int64_t rank : ranks) jobs.push_back({rank, bound});
      return jobs;
    };
    const std::int64_t gpus = settings_.cluster.gpus_per_node;
    const auto known = runs::ranks_of(settings_.ranks, world_size(settings_.cluster), gpus);
    std::vector<std::int64_t> ranks = settings_.counts_known && known ? *known : std::vector<std::int64_t>{0};
    if (!settings_.counts_known && settings_.ranks.kind == runs::RankChoice::Kind::Numbers)
      ranks = settings_.ranks.numbers;
    if (!add(jobs_of(ranks))) return stopped();
    if (!settings_.counts_known && settings_.ranks.kind != runs::RankChoice::Kind::Numbers) {
      // Now the launcher has set the number of ranks.
      const runs::RecordedJob job = runs_.runs.front().record->job;
      std::vector<std::int64_t> rest = *runs::ranks_of(settings_.ranks, job.world_size, job.local_world_size);
      std::erase(rest, ranks.front());
      if (!add(jobs_of(rest))) return stopped();
    }
    if (!add(runs::jobs_at_other_bound(settings_, runs_.runs))) return stopped();
    line_.erase();
    runs_.facts.seconds = text::seconds_of_this_process() - begin;
    for (const runs::RankRun& run : runs_.runs) {
      runs_.facts.host_peak = std::max(runs_.facts.host_peak, run.record->host_peak);
    }
    return std::optional<RehearsalRuns>(std::move(runs_));
  }

 private:
  /// Runs more jobs. Returns false if no run so far has a result. Failures of others become notes.
  bool add(const std::vector<runs::RankJob>& jobs) {
    if (jobs.empty()) return true;
    runs::RunOutcome outcome = runs::run_ranks(settings_, jobs, folder_, supervision_, observer_);
    interrupted_ = outcome.interrupted_by != 0;
    if (interrupted_) {
      say_what_is_known(outcome);
      return false;
    }
    std::vector<const runs::RankRun*> lost;
    for (runs::RankRun& run : outcome.runs) {
      Errors errors;
      if (!run.has_result()) {
        errors = runs::explain_failure(run, settings_);
      } else if (runs::used_the_gpu(run, errors)) {
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
  void say_what_is_known(const runs::RunOutcome& outcome) {
    const auto run =
        std::find_if(outcome.runs.begin(), outcome.runs.end(), [](const runs::RankRun& r) { return r.status; });
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
  static const runs::RankRun& most_telling(const std::vector<const runs::RankRun*>& lost) {
    const auto failed =
        std::find_if(lost.begin(), lost.end(), [](auto* run) { return run->status && !run->has_result(); });
    if (failed != lost.end()) return **failed;
    const auto not_started = std::find_if(lost.begin(), lost.end(), [](auto* run) { return !run->errors.empty(); });
    return not_started != lost.end() ? **not_started : *lost.front();
  }

  /// Adds the output and the writes of the failed ranks to an answer without them.
  void mention(const std::vector<const runs::RankRun*>& lost) {
    std::set<std::string> said;
    for (const runs::RankRun* run : lost) {
      if (said.insert(runs::kept_output(*run)).second) keep_output(*run);
      note_writes(*run);
    }
  }

  void explain(const runs::RankRun& run) {
    if (!run.has_result()) {
      failure_.errors = runs::explain_failure(run, settings_);
    } else {
      runs::used_the_gpu(run, failure_.errors);
    }
    if (runs::is_refused_plan(run)) failure_.code = kExitInput;
    keep_output(run);
    note_writes(run);
  }

  void note_writes(const runs::RankRun& run) {
    for (const RehearsalWarning& warning : run.writes) {
      if (warning.kind == "allowed_writes") output_.note(warning.text);
    }
  }

  /// Prints the script's output before the error, once.
  void keep_output(const runs::RankRun& run) {
    line_.erase();
    if (!output_.verbose) output_.console.err << runs::kept_output(run);
  }

  tl::expected<std::optional<RehearsalRuns>, Failure> stopped() {
    line_.erase();
    if (interrupted_) return std::nullopt;
    return tl::unexpected(failure_);
  }

  const runs::RehearsalSettings& settings_;
  const Output& output_;
  const std::string& folder_;
  runs::Supervision& supervision_;
  text::ProgressLine line_;
  text::ProgressLog log_;
  runs::RunObserver observer_;
  RehearsalRuns runs_;
  bool interrupted_ = false;
  Failure failure_{.errors = {}, .code = kExitRun};
};

}  // namespace

CommandResult in_rehearsal_folder(const std::function<CommandResult(const std::string&, runs::Supervision&)>& run) {
  runs::Supervision supervision;
  const Result<runs::TemporaryFolder> folder = runs::TemporaryFolder::make();
  if (!folder) return tl::unexpected(Failure{folder.error(), kExitRun});
  const runs::Keeper keeper(folder->path());
  supervision.spare(keeper.pid());
  return run(folder->path(), supervision);
}

void begin_progress(const runs::RehearsalSettings& settings) {
  if (!settings.progress.empty()) std::ofstream(settings.progress, std::ios::trunc);
}

tl::expected<std::optional<RehearsalRuns>, Failure> rehearse_all(const runs::RehearsalSettings& settings,
                                                                 const Output& output, const std::string& folder,
                                                                 runs::Supervision& supervision) {
  return Rehearser(settings, output, folder, supervision).run();
}

}  // namespace fsdp::command
