// Each variant of the files (planner/jobs/job_changes.h) is planned as its files would be: the same options, the same
// search. So the answer to the changed files is the answer that chose them. Among those that are equally fast the one
// with the fewest changed keys wins, and the files as they are have none.
//
// A variant with expandable segments, which is no key of the files, is tried only if none runs without.
//
// Options that were typed count before the files. If they are no values of the changed files, there is no change to
// print: it would train something else than was planned.

#include "command/job_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "command/cli_job.h"
#include "command/cli_machines.h"
#include "command/cli_plan_file.h"
#include "command/cli_request.h"
#include "command/cli_runtimes.h"
#include "command/trainer_search.h"
#include "core/base/files.h"
#include "core/plan/torch_version.h"
#include "core/report/device_verdict.h"
#include "planner/advice/explained_search.h"
#include "planner/jobs/job_changes.h"
#include "planner/request/search_for.h"
#include "planner/search/predictors.h"
#include "planner/search/search.h"
#include "planner/search/ties.h"
#include "planner/space/plan_choices.h"
#include "render/choice_text.h"
#include "render/use_line.h"
#include "text/figures.h"
#include "text/progress_line.h"
#include "text/shell_text.h"
#include "text/unified_diff.h"

namespace fsdp::command {

namespace {

using planner::PlanChoice;

/// More variants take seconds, and are planned if someone asks for them alone.
constexpr std::size_t kMostBesideAnswer = 128;
constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

/// Options that say nothing about the files: machines, releases, the allocator, data.
bool is_outside_files(PlanChoice choice) {
  return planner::is_about_machines(choice) || choice == PlanChoice::Torch || choice == PlanChoice::AllocConf ||
         choice == PlanChoice::DocumentLength;
}

/// The choices that were typed and that no file makes as typed.
std::vector<PlanChoice> unsaid_choices(const CommandLine& given, const planner::Job& job) {
  std::vector<PlanChoice> unsaid;
  for (const PlanChoice choice : planner::plan_choices()) {
    if (!given.has(choice) || is_outside_files(choice)) continue;
    planner::PlanChoices typed;
    planner::PlanChoices said;
    const planner::JobWord* word = word_of(job, choice);
    const bool is_read = word != nullptr && render::read_choice(choice, given.all(choice), typed) &&
                         render::read_choice(choice, std::vector{word->text}, said);
    if (!is_read || !(typed == said)) unsaid.push_back(choice);
  }
  return unsaid;
}

/// What a job says about its model: all but what a plan of it may be.
std::string model_of(const planner::Job& job) {
  std::string text;
  for (const planner::JobWord& word : job.words) {
    if (!planner::is_about_plan(word.choice)) text += fmt::format("{} {}\n", planner::place_of(word.choice), word.text);
  }
  return text;
}

struct PlannedVariant {
  const planner::JobVariant* variant = nullptr;
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;
  Seconds step{0};
  Bytes device_peak;
  std::string environment;

  int rank() const { return verdict != Verdict::Fits ? 2 : is_tight ? 1 : 0; }
};

/// Plans variants of one job.
class VariantSearch {
 public:
  VariantSearch(const CommandLine& line, const Output& output)
      : given_(line.job->given), source_(line.job->source), output_(output) {}

  /// Plans no variant if there are more than `most`. Errors: those of the search, and options that no file has.
  Result<planner::JobUse> best(std::size_t most) {
    Errors errors;
    objective_ = search_objective_of(given_, errors);
    work_ = work_of_effort(given_, errors);
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    FSDP_TRY(const planner::Job job, source_.program->read(source_.launch));
    FSDP_TRY(const CommandLine line, line_of(job));
    FSDP_TRY(const Cluster cluster, read_machines(line, output_.console.library));
    FSDP_TRY(const std::vector<planner::JobVariant> all, planner::variants_of(source_, limits_of(cluster)));
    std::vector<const planner::JobVariant*> wanted;
    for (const planner::JobVariant& each : all) {
      if (unsaid_choices(given_, each.job).empty() && trains_on(cluster, each.job)) wanted.push_back(&each);
    }
    if (wanted.empty()) return tl::unexpected(not_in_files(cluster, job));
    if (wanted.size() > most) return planner::JobUse{.num_untried = wanted.size()};
    FSDP_TRY(std::vector<PlannedVariant> planned, plan_all(wanted, false));
    const bool runs = std::any_of(planned.begin(), planned.end(), [](const auto& each) { return each.rank() < 2; });
    if (!runs) {
      FSDP_TRY(planned, plan_all(wanted, true));
    }
    return chosen(std::move(planned));
  }

 private:
  Result<CommandLine> line_of(const planner::Job& job) const {
    FSDP_TRY(const LineOfJob line, line_of_job(given_, job));
    Errors errors;
    CommandLine meant = with_world_in_nodes(line.line, output_.console.library, errors);
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    return meant;
  }

  planner::VariantLimits limits_of(const Cluster& cluster) const {
    planner::VariantLimits limits{.num_gpus = world_size(cluster), .batch = {}, .accumulation = {}};
    planner::PlanChoices typed;
    for (const PlanChoice choice : {PlanChoice::Batch, PlanChoice::Accumulate}) {
      if (given_.has(choice)) static_cast<void>(render::read_choice(choice, given_.all(choice), typed));
    }
    limits.batch = typed.batch;
    limits.accumulation = typed.accumulation;
    return limits;
  }

  /// False if the files start another number of processes than is planned.
  static bool trains_on(const Cluster& cluster, const planner::Job& job) {
    const planner::JobWord* gpus = word_of(job, PlanChoice::Gpus);
    const planner::JobWord* nodes = word_of(job, PlanChoice::Nodes);
    if (gpus == nullptr) return true;
    return std::stoll(gpus->text) * (nodes == nullptr ? 1 : std::stoll(nodes->text)) == world_size(cluster);
  }

  Errors not_in_files(const Cluster& cluster, const planner::Job& job) const {
    if (const planner::JobWord* gpus = word_of(job, PlanChoice::Gpus); gpus != nullptr && !trains_on(cluster, job)) {
      return {{gpus->where,
               fmt::format("It starts another number of processes than {}.", text::counted(world_size(cluster), "GPU")),
               "Change it first, or plan with its number."}};
    }
    const std::vector<PlanChoice> unsaid = unsaid_choices(given_, job);
    const PlanChoice first = unsaid.empty() ? PlanChoice::Batch : unsaid.front();
    return {{std::string(planner::place_of(first)), "It counts before the configuration, whose keys do not say it.",
             "Change the configuration first, or leave the option out."}};
  }

  Result<std::vector<PlannedVariant>> plan_all(const std::vector<const planner::JobVariant*>& variants,
                                               bool may_expand) {
    text::ProgressLine progress(output_.console.err, output_.err, !output_.quiet, text::seconds_of_this_process,
                                text::InPipe::Lines);
    std::vector<PlannedVariant> planned;
    for (const planner::JobVariant* variant : variants) {
      progress.show(fmt::format("changes of the configuration: {} of {}", planned.size(), variants.size()));
      Result<PlannedVariant> one = plan(*variant, may_expand);
      if (!one && variant->settings.empty()) return tl::unexpected(one.error());
      if (one) planned.push_back(*std::move(one));
    }
    progress.erase();
    return planned;
  }

  Result<PlannedVariant> plan(const planner::JobVariant& variant, bool may_expand) {
    FSDP_TRY(CommandLine line, line_of(variant.job));
    Errors errors;
    std::optional<planner::TrainerRelease> release;
    if (line.has(Option::For)) {
      WantedTrainer wanted = wanted_trainer(line, errors);
      if (!wanted.is_by_itself()) release = wanted.release;
      line = std::move(wanted.line);
    }
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    FSDP_TRY(planner::ResolvedRequest request, read_request(line, output_.console.library));
    planner::set_objective(objective_, read_choices(line, errors).choices, request);
    request.space.explain = false;
    request.space.pareto_points = 0;
    request.space.may_expand_segments = request.space.may_expand_segments && may_expand;
    planner::SearchOptions options{.prices_trainer = false};
    set_effort(work_, options);
    // Variants of one model share its predictors.
    std::shared_ptr<planner::Predictors>& shared = predictors_[model_of(variant.job)];
    if (shared == nullptr) shared = std::make_shared<planner::Predictors>();
    options.predictors = shared;
    const auto search = [&] {
      return release ? planner::search_for(*release, request, options)
                     : planner::search(request.spec, request.workload, request.cluster, request.space, options);
    };
    FSDP_TRY(const planner::SearchResult result, search());
    const StepReport& report = result.report;
    const bool is_other = report.plan.runtime.allocator_settings != request.space.base.runtime.allocator_settings;
    return PlannedVariant{&variant,
                          report.verdict,
                          is_tight(report),
                          report.time.step,
                          report.memory.peaks.device,
                          is_other ? allocator_environment(report.plan.runtime) : std::string()};
  }

  double cost_of(const PlannedVariant& each) const {
    const bool wants_memory = objective_ == planner::SearchObjective::Memory || each.rank() == 2;
    return wants_memory ? static_cast<double>(each.device_peak.count()) : each.step.count();
  }

  /// The best that can be written.
  Result<planner::JobUse> chosen(std::vector<PlannedVariant> planned) const {
    const PlannedVariant given = planned.front();
    Errors errors;
    while (!planned.empty()) {
      const auto key_of = [&](const PlannedVariant& each) { return std::pair(each.rank(), cost_of(each)); };
      const auto best = std::min_element(planned.begin(), planned.end(),
                                         [&](const auto& a, const auto& b) { return key_of(a) < key_of(b); });
      if (best->rank() == 2) break;
      const auto [rank, cost] = key_of(*best);
      const auto order = [&, rank = rank, cost = cost](const PlannedVariant& each) {
        const bool is_equal = each.rank() == rank && cost_of(each) <= cost * (1 + planner::kTieShare);
        return std::tuple(!is_equal, each.variant->settings.size(), cost_of(each));
      };
      const auto simplest = std::min_element(planned.begin(), planned.end(),
                                             [&](const auto& a, const auto& b) { return order(a) < order(b); });
      Result<planner::EditedJob> edited = planner::edited(source_, *simplest->variant);
      if (edited) return use_of(*simplest, given, *std::move(edited));
      append(errors, edited.error());
      planned.erase(simplest);
    }
    if (errors.empty() || given.rank() < 2) return use_of(given, given, {});
    return tl::unexpected(std::move(errors));
  }

  static planner::JobUse use_of(const PlannedVariant& best, const PlannedVariant& given, planner::EditedJob edited) {
    return {.edited = std::move(edited),
            .verdict = best.verdict,
            .is_tight = best.is_tight,
            .step = best.step,
            .device_peak = best.device_peak,
            .step_before = given.rank() == 2 ? Seconds(0) : given.step,
            .environment = best.environment};
  }

  const CommandLine& given_;
  const planner::JobSource& source_;
  const Output& output_;
  planner::SearchObjective objective_ = planner::SearchObjective::Time;
  std::int64_t work_ = 0;
  std::map<std::string, std::shared_ptr<planner::Predictors>> predictors_;
};

/// A name that patch accepts: within this folder.
std::string name_in_diff(const std::string& file) {
  std::error_code failed;
  const std::filesystem::path relative = std::filesystem::path(file).is_absolute()
                                             ? std::filesystem::proximate(file, failed)
                                             : std::filesystem::path(file).lexically_normal();
  return failed || relative.empty() || *relative.begin() == ".." ? file : relative.string();
}

/// The line that starts the changed training; `renamed`: the file of --write in place of its own.
std::string line_text(std::vector<std::string> words, const std::string& file, const std::string& renamed) {
  if (!renamed.empty()) {
    for (std::string& word : words) {
      if (word == file) word = renamed;
      if (word.ends_with("=" + file)) word.replace(word.size() - file.size(), file.size(), renamed);
    }
  }
  return text::command_text(words);
}

/// The one file of --write: the changed one, or the job's own.
Result<planner::EditedFile> file_to_write(const planner::JobSource& source, const planner::EditedJob& edited) {
  if (edited.files.size() == 1) return edited.files.front();
  if (edited.files.size() > 1) {
    return failure("--write", fmt::format("Changes go to {} files.", edited.files.size()),
                   "--diff prints all of them, and patch -p0 writes them.");
  }
  if (!edited.words.empty()) return failure("--write", "Only the line changes.", "--diff prints it.");
  const std::optional<JsonDocument>& file = source.launch.file ? source.launch.file : source.launch.launcher;
  if (!file) return failure("--write", "The line names no file.", "--diff prints a changed line.");
  return planner::EditedFile{file->name, file->text, file->text};
}

tl::expected<void, Failure> write_file(const CommandLine& line, const Output& output, const std::string& text) {
  const std::string path = line.value(Option::Write).value_or("");
  if (path == "-") {
    output.console.out << text;
    return {};
  }
  const Overwrite overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  const Result<void> written = write_file_atomically(path, text, overwrite);
  if (!written) return tl::unexpected(not_written(written.error(), path, overwrite));
  return {};
}

Errors check_give_back(const CommandLine& line, const Output& output) {
  const std::string flag(flag_of(line.has(Option::Diff) ? Option::Diff : Option::Write));
  if (line.job == nullptr) {
    return {{flag, "It is for a trainer's own file or line.",
             "fsdp-plan sft.yaml --diff, or fsdp-plan --diff -- trl sft ...; export writes a file for a trainer."}};
  }
  Errors errors;
  if (!gives_back(line)) {
    errors.push_back(
        {flag, "It is for files of axolotl and TRL, on one machine, with one runtime, for the trainer of the file.",
         "Leave lists and --for out."});
  }
  for (const Option other : {Option::Output, Option::Lengths, Option::Phases}) {
    if (line.has(other))
      errors.push_back(
          {std::string(flag_of(other)), fmt::format("{} prints changes alone.", flag), "Plan the changed file."});
  }
  if (output.format != text::Format::Table) {
    errors.push_back({flag, "It prints no other format.", "--json alone has the changes, too."});
  }
  if (line.value(Option::Write) == "-" && line.has(Option::Diff)) {
    errors.push_back({"--write", "The difference goes there.", "Give the name of a file."});
  }
  append(errors, check_outputs(line, {Option::Write}));
  return errors;
}

}  // namespace

bool gives_back(const CommandLine& line) {
  return line.job != nullptr && !line.job->source.program->changes.empty() && !line.job->given.has(Option::For) &&
         !compares_machines(line) && !compares_runtimes(line);
}

std::optional<Result<planner::JobUse>> use_of_job(const CommandLine& line, const Output& output) {
  if (output.quiet || !gives_back(line)) return std::nullopt;
  const bool is_for_programs = output.format == text::Format::Json;
  return VariantSearch(line, output).best(is_for_programs ? kAnyNumber : kMostBesideAnswer);
}

CommandResult give_back(const CommandLine& line, const Output& output) {
  if (Errors errors = check_give_back(line, output); !errors.empty()) return input_failure(std::move(errors));
  const Result<planner::JobUse> use = VariantSearch(line, output).best(kAnyNumber);
  if (!use) return input_failure(use.error());
  const planner::EditedJob& edited = use->edited;
  if (use->verdict == Verdict::DoesNotFit) {
    output.note(fmt::format("{}.", render::use_line(*use)));
    return kExitNo;
  }
  std::string renamed;
  std::string file;
  if (line.has(Option::Write)) {
    const Result<planner::EditedFile> written = file_to_write(line.job->source, edited);
    if (!written) return input_failure(written.error());
    const auto done = write_file(line, output, written->after);
    if (!done) return tl::unexpected(done.error());
    renamed = line.value(Option::Write).value_or("");
    file = written->name;
  }
  output.note(render::use_line(*use));
  const bool runs_other_line = !edited.words.empty() || (line.job->source.is_line && !renamed.empty());
  if (runs_other_line) {
    const std::vector<std::string>& words = edited.words.empty() ? line.job->source.words : edited.words;
    const std::string text = line_text(words, file, renamed);
    renamed == "-" ? output.note("run: " + text) : void(output.console.out << "run: " << text << "\n");
  }
  if (!line.has(Option::Diff)) return kExitYes;
  for (const planner::EditedFile& each : edited.files) {
    output.console.out << text::unified_diff(name_in_diff(each.name), each.before, each.after);
  }
  return kExitYes;
}

}  // namespace fsdp::command
