// plan, simulate and explain: the three commands that predict.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "command/capture_first.h"
#include "command/cli_commands.h"
#include "command/cli_lengths.h"
#include "command/cli_machines.h"
#include "command/cli_phases.h"
#include "command/cli_plan_file.h"
#include "command/cli_request.h"
#include "command/cli_runtimes.h"
#include "command/cli_values.h"
#include "command/job_use.h"
#include "command/trainer_search.h"
#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/library/model_library.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan_file.h"
#include "core/plan/torch_version.h"
#include "core/report/device_verdict.h"
#include "core/report/report_json.h"
#include "core/spec/model_spec.h"
#include "planner/advice/explain.h"
#include "planner/advice/explained_search.h"
#include "planner/advice/plan_notes.h"
#include "planner/advice/remedies.h"
#include "planner/advice/time_changes.h"
#include "planner/request/larger_gpus.h"
#include "planner/request/length_answer.h"
#include "planner/request/machine_choice.h"
#include "planner/request/runtime_choice.h"
#include "planner/request/search_for.h"
#include "planner/search/predictors.h"
#include "planner/search/search.h"
#include "planner/space/space.h"
#include "render/render_lengths.h"
#include "render/render_machines.h"
#include "render/render_runtimes.h"
#include "render/render_search.h"
#include "render/render_time.h"
#include "render/result_json.h"
#include "render/train_line.h"
#include "render/use_line.h"
#include "text/progress_line.h"

namespace fsdp::command {

namespace {

tl::expected<void, Failure> write_plan_file(const CommandLine& line, const Output& output, const StepReport& report,
                                            const Cluster& cluster) {
  const Overwrite overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
  if (!line.has(Option::Output)) return {};
  const std::string path = line.value(Option::Output).value_or("");
  const std::string text = to_text(PlanFile{report.plan, cluster});
  if (path == "-") {
    output.console.out << text;
    return {};
  }
  const Result<void> written = write_file_atomically(path, text, overwrite);
  if (!written) return tl::unexpected(not_written(written.error(), path, overwrite));
  return {};
}

/// True if the plan itself goes to the standard output, which must then have nothing else.
bool writes_to_stdout(const CommandLine& line) {
  return line.value(Option::Output) == "-";
}

ExitCode code_of(const CommandLine& line, const StepReport& report) {
  return code_of(line, report, std::nullopt);
}

/// The verdict of a report, or of its run with --lengths if that is worse.
Verdict worse_verdict(const StepReport& report, const std::optional<planner::LengthAnswer>& lengths) {
  const bool is_out = lengths && lengths->verdict().verdict == Verdict::DoesNotFit;
  return is_out ? Verdict::DoesNotFit : report.verdict;
}

/// The next commands. `plan_file` is empty if the plan was not written.
std::vector<std::string> next_commands(const Output& output, const std::string& plan_file, Verdict verdict) {
  std::vector<std::string> commands;
  if (!output.verbose) commands.emplace_back("--verbose has the rest");
  // For a plan that fits, the line about training has the option.
  if (plan_file.empty() && verdict == Verdict::DoesNotFit) commands.emplace_back("-o plan.json keeps the plan");
  if (!plan_file.empty()) commands.push_back(fmt::format("fsdp-plan explain {}", plan_file));
  if (verdict == Verdict::DoesNotFit) commands.emplace_back("fsdp-plan gpus");
  return commands;
}

/// How to train by the plan; empty if it does not fit. `predictors`: those of the search; may be null.
std::string train_line_of(const planner::ResolvedRequest& request, const StepReport& report,
                          const std::string& plan_file, planner::Predictors* predictors,
                          const std::optional<planner::TrainerRelease>& wanted) {
  if (report.verdict == Verdict::DoesNotFit) return {};
  if (predictors != nullptr) {
    for (const std::int64_t micro_batch : predictors->micro_batches()) {
      const Model& model = predictors->of(micro_batch).model();
      if (model.dimensions == report.plan.dimensions) return render::train_line(report.plan, model, plan_file, wanted);
    }
  }
  Workload workload = request.workload;
  Result<std::vector<Dimension>> sizes = own_sizes_of(report.plan, request.spec);
  if (!sizes) return {};
  workload.dimensions = *std::move(sizes);
  const Result<Model> model = build_model(request.spec, workload);
  return model ? render::train_line(report.plan, *model, plan_file, wanted) : std::string();
}

/// `no_plan_fits`: as for verdict_of.
void print_quietly(const Output& output, const StepReport& report, bool no_plan_fits = false,
                   const text::Document& further = {}, const std::optional<planner::LengthAnswer>& lengths = {}) {
  text::Document document = {render::verdict_of(report, no_plan_fits), render::summary_of(report)};
  if (lengths) document = render::with_lengths(std::move(document), *lengths);
  document.insert(document.end(), further.begin(), further.end());
  output.print(document);
}

/// Only the long answers print the Pareto front.
std::int64_t pareto_points_of(const planner::Space& space, const Output& output) {
  return output.quiet || (!output.verbose && output.format == text::Format::Table) ? 0 : space.pareto_points;
}

/// --explain explains an auto-wrap policy, and is an error without one.
Errors check_explain(const CommandLine& line, const Output& output) {
  if (!line.has(Option::Explain)) return {};
  const Result<planner::Wrap> wrap = planner::parse_wrap(line.value(Option::Wrap).value_or("blocks"));
  if (!wrap) return {};  // An error of the other choices.
  Errors errors;
  if (!planner::is_policy(*wrap)) {
    errors.push_back(
        {"--explain", "It shows how an auto-wrap policy of PyTorch chose the units, but none does here.",
         "Add --wrap size:100M or --wrap class:NAME. \"fsdp-plan explain PLAN\" shows what sets a plan's peak."});
  }
  if (output.quiet) errors.push_back({"--explain", "--quiet leaves out its output.", "Give one of the two."});
  return errors;
}

/// The part of an answer that is printed before the search ends, and the search's predictors.
struct Printed {
  std::size_t num_sections = 0;
  planner::Predictors* predictors = nullptr;           ///< May be null.
  std::optional<planner::TrainerRelease> wanted = {};  ///< From --for.
};

/// The result of plan, and how to print it.
struct PlanAnswer {
  const planner::SearchResult& result;
  const planner::ResolvedRequest& request;
  std::function<std::string(const planner::LengthAnswer*, const planner::JobUse*)> json;
  text::Document further;  ///< The lines that --quiet prints after the plan.
  std::function<text::Document(const render::AnswerContext&)> document;
  Printed printed = {};
};

/// `verdict`: of the whole answer. The changes of a job's files replace the line about training.
render::AnswerContext context_of(const CommandLine& line, const Output& output, const planner::SearchResult& result,
                                 const planner::ResolvedRequest& request, const Printed& printed, Verdict verdict) {
  const std::string kept = line.value(Option::Output).value_or("");
  const bool trains = verdict != Verdict::DoesNotFit && !gives_back(line);
  return {.batch_origin = request.batch_origin,
          .train = trains ? train_line_of(request, result.report, kept, printed.predictors, printed.wanted) : "",
          .commands = next_commands(output, kept, verdict),
          .may_suggest = printed.predictors != nullptr,
          .explains_units = line.has(Option::Explain)};
}

/// The common end of plan: writes the plan if requested, and prints the answer in the requested format.
CommandResult finish_plan(const CommandLine& line, const Output& output, const PlanAnswer& answer) {
  const StepReport& report = answer.result.report;
  const auto lengths = answer_lengths(line, output, answer.request.spec, answer.request.cluster, report);
  if (!lengths) return input_failure(lengths.error());
  const auto written = write_plan_file(line, output, report, answer.request.cluster);
  // Completes an answer that has begun.
  if (!written && answer.printed.num_sections == 0) return tl::unexpected(written.error());
  const std::vector<JobPhaseNeed>& phases = answer.result.explanation.phases;
  const ExitCode code = with_phases(code_of(line, report, *lengths), phases);
  if (writes_to_stdout(line)) return code;
  const std::optional<Result<planner::JobUse>> use = use_of_job(line, output);
  if (output.format == text::Format::Json) {
    if (use && !*use) output.note(to_string(use->error().front()));
    output.console.out << answer.json(*lengths ? &**lengths : nullptr, use && *use ? &**use : nullptr);
  } else if (output.quiet) {
    text::Document further = answer.further;
    if (const std::string misfit = first_misfit(phases, report.memory.budget); !misfit.empty()) {
      further.push_back(text::Entry{.label = "phases", .lines = {misfit}});
    }
    // An unproven claim is among the notes, and belongs to the verdict.
    const std::string& doubt = answer.result.proof.doubt;
    if (!doubt.empty()) further.push_back(text::Entry{.label = "note", .lines = {doubt}});
    // Settings that were not requested and are not in the verdict.
    const std::string& settings = report.plan.runtime.allocator_settings;
    if (settings != answer.request.space.base.runtime.allocator_settings) {
      further.push_back(text::Entry{.label = "note", .lines = {"with " + allocator_environment(report.plan.runtime)}});
    }
    print_quietly(output, report, no_plan_fits(answer.result), further, *lengths);
  } else {
    render::AnswerContext context =
        context_of(line, output, answer.result, answer.request, answer.printed, worse_verdict(report, *lengths));
    if (use) context.train = *use ? render::use_line(**use) : to_string(use->error().front());
    text::Document document = answer.document(context);
    if (*lengths) document = render::with_lengths(std::move(document), **lengths);
    const std::size_t first = answer.printed.num_sections;
    first > 0 ? output.print_from(document, first) : output.print(document);
  }
  return written ? CommandResult(code) : tl::unexpected(written.error());
}

/// plan with several machines.
CommandResult plan_on_machines(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output});
  append(errors, check_explain(line, output));
  append(errors, check_phases(line));
  const MachineWords words = read_machine_words(line, errors);
  const std::int64_t work = work_of_effort(line, errors);
  planner::PlanRequest request = read_choices(words.rest, errors);
  request.model = line.arguments.front();
  const auto rank = read_rank(line);
  if (!rank) append(errors, rank.error());
  if (!errors.empty()) {
    request.unread.push_back(
        planner::PlanChoice::Gpus);  // Prints errors of the rest of the request, but not of its machines.
    append(errors, planner::check_request(request, output.console.library));
    return input_failure(std::move(errors));
  }
  note_decimal_sizes(line, output);
  text::ProgressLine progress(output.console.err, output.err, !output.quiet, text::seconds_of_this_process,
                              text::InPipe::Lines);
  std::string machine;
  planner::CompareOptions options{.objective = words.objective, .prices = words.prices, .explain = !output.quiet};
  options.pareto_points = pareto_points_of(planner::Space(), output);
  options.search.rank = *rank;
  set_effort(work, options.search);
  options.search.counts_work_alone = line.has(Option::Effort);
  options.search.on_progress = [&](const planner::SearchProgress& now) {
    progress.show(machine + ": " + render::text_of(now));
  };
  options.on_machine = [&](const std::string& name) { machine = name; };
  auto found = planner::compare_machines(request, words.range, output.console.library, options);
  progress.erase();
  if (!found) return input_failure(found.error());
  if (Errors wrong = add_phases(line, found->request, found->result); !wrong.empty()) return input_failure(wrong);

  return finish_plan(line, output,
                     {.result = found->result,
                      .request = found->request,
                      .json = [&](const planner::LengthAnswer* lengths,
                                  const planner::JobUse*) { return render::to_json(*found, lengths); },
                      .further = {render::entry_of(*found, words.objective)},
                      .document =
                          [&](const render::AnswerContext& context) {
                            return render::document_of(*found, words.objective, output.view(), context);
                          }});
}

/// Whether another framework may be suggested. Not if a trainer is named, because it has its own framework.
enum class OtherFrameworks : std::uint8_t { Suggest, LeaveOut };

void keep_framework(OtherFrameworks others, planner::SearchResult& result) {
  if (others == OtherFrameworks::Suggest) return;
  std::erase_if(result.explanation.remedies,
                [](const planner::Remedy& remedy) { return remedy.change.runtime.has_value(); });
}

/// plan with several frameworks.
CommandResult plan_for_runtimes(const CommandLine& line, const Output& output, OtherFrameworks others) {
  Errors errors = check_outputs(line, {Option::Output});
  append(errors, check_explain(line, output));
  append(errors, check_phases(line));
  const std::vector<Framework> runtimes = runtimes_of(line, errors);
  const std::int64_t work = work_of_effort(line, errors);
  CommandLine rest = without_lists(line);
  rest.values[static_cast<std::size_t>(Option::Runtime)].clear();
  planner::PlanRequest request = read_choices(rest, errors);
  request.model = line.arguments.front();
  const auto rank = read_rank(line);
  if (!rank) append(errors, rank.error());
  if (compares_machines(line)) {
    errors.push_back({std::string(flag_of(Option::Runtime)), "Several machines are compared for one runtime.",
                      "Name one runtime, or one machine."});
  }
  if (search_objective_of(line, errors) != planner::SearchObjective::Time) {
    errors.push_back({std::string(flag_of(Option::Objective)), "Runtimes are compared by the time of a step.",
                      "Leave it out, or name one runtime."});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  text::ProgressLine progress(output.console.err, output.err, !output.quiet, text::seconds_of_this_process,
                              text::InPipe::Lines);
  std::string runtime;
  planner::CompareRuntimesOptions options{.explain = !output.quiet};
  options.pareto_points = pareto_points_of(planner::Space(), output);
  options.search.rank = *rank;
  set_effort(work, options.search);
  options.search.counts_work_alone = line.has(Option::Effort);
  options.search.on_progress = [&](const planner::SearchProgress& now) {
    progress.show(runtime + ": " + render::text_of(now));
  };
  options.on_runtime = [&](Framework framework) { runtime = traits_of(framework).title; };
  auto found = planner::compare_runtimes(request, runtimes, output.console.library, options);
  progress.erase();
  if (!found) return input_failure(found.error());
  keep_framework(others, found->result);
  if (Errors wrong = add_phases(line, found->request, found->result); !wrong.empty()) return input_failure(wrong);

  return finish_plan(
      line, output,
      {.result = found->result,
       .request = found->request,
       .json = [&](const planner::LengthAnswer* lengths,
                   const planner::JobUse*) { return render::to_json(*found, lengths); },
       .further = {render::entry_of(*found)},
       .document =
           [&](const render::AnswerContext& context) { return render::document_of(*found, output.view(), context); }});
}

/// The answer of one search.
CommandResult finish_search(const CommandLine& line, const Output& output, const planner::ResolvedRequest& request,
                            const planner::SearchResult& result, const Printed& printed = {}) {
  return finish_plan(
      line, output,
      {.result = result,
       .request = request,
       .json = [&](const planner::LengthAnswer* lengths,
                   const planner::JobUse* use) { return render::to_json(result, &request.cluster, lengths, use); },
       .further = {},
       .document =
           [&](const render::AnswerContext& context) { return render::document_of(result, output.view(), context); },
       .printed = printed});
}

/// plan --for accelerate, trainer or torchtitan.
CommandResult plan_for_trainer(const planner::TrainerRelease& release, const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output});
  append(errors, check_explain(line, output));
  append(errors, check_phases(line));
  Result<planner::ResolvedRequest> request = read_request(line, output.console.library);
  if (!request) append(errors, request.error());
  const planner::SearchObjective objective = search_objective_of(line, errors);
  const std::int64_t work = work_of_effort(line, errors);
  const auto rank = read_rank(line);
  if (!rank) append(errors, rank.error());
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  Errors none;  // The earlier reading reported them.
  planner::set_objective(objective, read_choices(line, none).choices, *request);
  request->space.explain = !output.quiet;
  text::ProgressLine progress(output.console.err, output.err, !output.quiet, text::seconds_of_this_process,
                              text::InPipe::Lines);
  planner::SearchOptions options{
      .rank = *rank, .on_progress = [&](const planner::SearchProgress& now) { progress.show(render::text_of(now)); }};
  options.larger_gpus = request->larger_gpus;
  set_effort(work, options);
  limit_by_effort_alone(line, request->space);
  auto result = planner::search_for(release, *request, options);
  progress.erase();
  if (!result) return input_failure(result.error());
  if (Errors wrong = add_phases(line, *request, *result); !wrong.empty()) return input_failure(wrong);
  return finish_search(line, output, *request, *result, {.wanted = release});
}

CommandResult plan_as_asked(const CommandLine& line, const Output& output, OtherFrameworks others);

/// plan --for: a plan that the trainer can express.
CommandResult plan_for(const CommandLine& line, const Output& output) {
  Errors errors;
  const WantedTrainer wanted = wanted_trainer(line, errors);
  if (!wanted.is_by_itself() && (compares_runtimes(wanted.line) || compares_machines(wanted.line))) {
    errors.push_back({std::string(flag_of(Option::For)),
                      "Plans for a trainer are searched on one machine, of one runtime.",
                      "Name one machine and one runtime."});
  }
  if (!errors.empty()) return input_failure(std::move(errors));
  const auto others = wanted.trainer ? OtherFrameworks::LeaveOut : OtherFrameworks::Suggest;
  return wanted.is_by_itself() ? plan_as_asked(wanted.line, output, others)
                               : plan_for_trainer(*wanted.release, wanted.line, output);
}

CommandResult plan_as_asked(const CommandLine& line, const Output& output, OtherFrameworks others) {
  if (!line.script.empty()) {
    if (Errors errors = check_outputs(line, {Option::Output}); !errors.empty()) return input_failure(std::move(errors));
    return after_capture(line, output, plan_command);
  }
  if (Errors errors = check_no_script(line); !errors.empty()) return input_failure(std::move(errors));
  if (compares_runtimes(line)) return plan_for_runtimes(line, output, others);
  if (compares_machines(line)) return plan_on_machines(line, output);
  Errors errors = check_outputs(line, {Option::Output});
  append(errors, check_explain(line, output));
  append(errors, check_phases(line));
  Result<planner::ResolvedRequest> request = read_request(line, output.console.library);
  if (!request) append(errors, request.error());
  const planner::SearchObjective objective = search_objective_of(line, errors);
  const std::int64_t work = work_of_effort(line, errors);
  const auto rank = read_rank(line);
  if (!rank) append(errors, rank.error());
  if (!errors.empty()) return input_failure(std::move(errors));
  note_decimal_sizes(line, output);
  Errors none;  // The earlier reading reported them.
  planner::set_objective(objective, read_choices(line, none).choices, *request);
  request->space.explain = !output.quiet;
  request->space.pareto_points = pareto_points_of(request->space, output);
  text::ProgressLine progress(output.console.err, output.err, !output.quiet, text::seconds_of_this_process,
                              text::InPipe::Lines);
  planner::SearchOptions options{
      .rank = *rank, .on_progress = [&](const planner::SearchProgress& now) { progress.show(render::text_of(now)); }};
  options.larger_gpus = request->larger_gpus;
  set_effort(work, options);
  limit_by_effort_alone(line, request->space);
  options.predictors = std::make_shared<planner::Predictors>();
  Printed printed{.predictors = options.predictors.get()};
  // Suggestions take longer than the verdict.
  const bool is_last = line.has(Option::Lengths);  // Then the verdict is known at the end.
  if (output.view().brief && output.format == text::Format::Table && !output.quiet && !writes_to_stdout(line) &&
      !is_last) {
    options.on_best = [&](const planner::SearchResult& found) {
      progress.erase();
      const text::Document document =
          render::document_of(found, output.view(), context_of(line, output, found, *request, printed, found.verdict));
      printed.num_sections = render::sections_of_verdict(document);
      output.print_up_to(document, printed.num_sections);
    };
  }
  auto result = planner::search(request->spec, request->workload, request->cluster, request->space, options);
  progress.erase();
  if (!result) return input_failure(result.error());
  keep_framework(others, *result);
  if (Errors wrong = add_phases(line, *request, *result); !wrong.empty()) return input_failure(wrong);

  return finish_search(line, output, *request, *result, printed);
}

}  // namespace

CommandResult plan_command(const CommandLine& given, const Output& output) {
  const Result<CommandLine> planned = planned_at_longest(given, output.console.library);
  if (!planned) return input_failure(planned.error());
  const CommandLine& line = *planned;
  if (line.has(Option::Diff) || line.has(Option::Write)) return give_back(line, output);
  if (line.has(Option::For)) return plan_for(line, output);
  if (line.has(Option::TrainerVersion)) {
    return input_failure({{std::string(flag_of(Option::TrainerVersion)), "It is the release of a trainer.",
                           "Add --for accelerate, trainer, torchtitan or deepspeed."}});
  }
  return plan_as_asked(line, output, OtherFrameworks::Suggest);
}

CommandResult simulate_command(const CommandLine& line, const Output& output) {
  if (Errors errors = check_phases(line); !errors.empty()) return input_failure(std::move(errors));
  auto prediction = predict_plan_file(line, output);
  if (!prediction) return tl::unexpected(std::move(prediction).error());
  auto& [given, predictor, report] = *prediction;
  const auto lengths = answer_lengths(line, output, given.spec, given.cluster, report);
  if (!lengths) return input_failure(lengths.error());
  auto phases = phases_of(line, given.spec, given.workload, given.cluster, report);
  if (!phases) return input_failure(phases.error());
  if (output.format == text::Format::Json) {
    output.console.out << render::to_json(report, &given.cluster, nullptr, *lengths ? &**lengths : nullptr, *phases);
  } else if (output.quiet) {
    print_quietly(output, report, false, {}, *lengths);
  } else {
    const planner::Explanation explanation{.notes = planner::plan_notes(report.plan, report, predictor),
                                           .phases = *phases};
    const Verdict verdict = worse_verdict(report, *lengths);
    text::Document document = render::document_of(
        report, explanation, output.view(),
        {.facts = planner::facts_of(given.model),
         .batch_origin = {},
         .train = verdict == Verdict::DoesNotFit ? std::string()
                                                 : render::train_line(given.file.plan, given.model, given.path),
         .commands = next_commands(output, given.path, verdict)});
    if (*lengths) document = render::with_lengths(std::move(document), **lengths);
    output.print(document);
  }
  return with_phases(code_of(line, report, *lengths), *phases);
}

namespace {

/// explain --time: the step's time instead of its peak.
CommandResult explain_time(const CommandLine& line, const Output& output, const planner::RemedyRequest& request,
                           const StepReport& report) {
  const Result<planner::TimeExplanation> explanation = explain_time(request);
  if (!explanation) return input_failure(explanation.error());
  const auto written = write_plan_file(line, output, report, request.cluster);
  if (!written) return tl::unexpected(written.error());
  if (writes_to_stdout(line)) return code_of(line, report);
  if (output.format == text::Format::Json) {
    output.console.out << render::to_json(report, *explanation);
  } else if (output.quiet) {
    print_quietly(output, report);
  } else {
    output.print(render::document_of(report, *explanation));
  }
  return code_of(line, report);
}

}  // namespace

CommandResult explain_command(const CommandLine& line, const Output& output) {
  if (Errors errors = check_phases(line); !errors.empty()) return input_failure(std::move(errors));
  auto prediction = predict_plan_file(line, output);
  if (!prediction) return tl::unexpected(std::move(prediction).error());
  auto& [given, predictor, report] = *prediction;

  planner::Candidate candidate{.plan = given.file.plan,
                               .label = given.path,
                               .step = report.time.step,
                               .device_peak = report.memory.peaks.device};
  candidate.missing = missing_room(report.memory);
  // A remedy changes a size that the user may choose; sizes that depend on it follow.
  Workload workload = given.workload;
  Result<std::vector<Dimension>> sizes = own_sizes_of(given.file.plan, given.spec);
  if (!sizes) return input_failure(sizes.error());
  workload.dimensions = *std::move(sizes);
  Errors none;  // The earlier reading reported them.
  const planner::PlanChoices choices = read_choices(line, none).choices;
  const Cluster& cluster = given.cluster;  // A lambda may not capture a structured binding.
  const auto larger = [&] { return planner::larger_gpus(choices, cluster, true, output.console.library); };
  const planner::RemedyRequest request{.spec = given.spec,
                                       .workload = workload,
                                       .cluster = cluster,
                                       .predictor = predictor,
                                       .best = candidate,
                                       .verdict = has_room(report) ? Verdict::Fits : Verdict::DoesNotFit,
                                       .larger_gpus = larger,
                                       .most_work = planner::kMostWork};  // The user requested suggestions.
  if (line.has(Option::Time)) return explain_time(line, output, request, report);
  Result<std::vector<planner::Remedy>> remedies = planner::remedies_for(request);
  if (!remedies) return input_failure(remedies.error());
  auto phases = phases_of(line, given.spec, given.workload, given.cluster, report);
  if (!phases) return input_failure(phases.error());
  const planner::Explanation explanation{.binding = planner::binding_of(report),
                                         .remedies = std::move(*remedies),
                                         .notes = planner::plan_notes(report.plan, report, predictor),
                                         .phases = *phases};

  const auto written = write_plan_file(line, output, report, given.cluster);
  if (!written) return tl::unexpected(written.error());
  const ExitCode code = with_phases(code_of(line, report), *phases);
  if (writes_to_stdout(line)) return code;
  if (output.format == text::Format::Json) {
    output.console.out << render::to_json(report, &given.cluster, &explanation, nullptr, *phases);
    return code;
  }
  if (output.quiet) {
    print_quietly(output, report);
  } else {
    output.print(render::document_of(report, explanation, output.view(),
                                     {.facts = planner::facts_of(given.model),
                                      .batch_origin = {},
                                      .commands = {"--verbose has the rest"},
                                      .explains = true}));
  }
  return code;
}

}  // namespace fsdp::command
