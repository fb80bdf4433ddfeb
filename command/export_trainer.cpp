#include "command/export_trainer.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/base/files.h"
#include "core/base/printable.h"
#include "render/trainer_config.h"

namespace fsdp::command {

namespace {

Errors refusal(const planner::TrainerRelease& trainer, const planner::SaidPlan& nearest,
               const PlanPrediction& prediction) {
  const std::string& path = prediction.given.path;
  Errors errors = in_plan_file(nearest.changes, path);
  errors.push_back(
      {path,
       fmt::format("The closest plan that {} can express needs {} (predicted); this one needs {}.", name_of(trainer),
                   render::predicted_of(nearest.report), render::predicted_of(prediction.report)),
       "Add --nearest FILE to export it and save it as a plan."});
  return errors;
}

/// "/units, /mixed_precision"
std::string places_of(const planner::SaidPlan& nearest) {
  std::string places;
  for (const Error& change : nearest.changes) places += (places.empty() ? "" : ", ") + change.where;
  return places;
}

}  // namespace

tl::expected<std::string, Failure> trainer_text(const planner::TrainerRelease& trainer, PlanPrediction& prediction,
                                                const CommandLine& line, const Output& output) {
  const runs::Given& given = prediction.given;
  const Result<planner::SaidPlan> said =
      planner::said_by(trainer, given.file.plan, prediction.report, prediction.predictor);
  if (!said) return input_failure(in_plan_file(said.error(), given.path));
  const std::optional<std::string> file = line.value(Option::Nearest);
  if (!said->changes.empty()) {
    if (!file) return input_failure(refusal(trainer, *said, prediction));
    output.note(fmt::format("The closest plan needs {} (predicted); {} needs {}.", render::predicted_of(said->report),
                            given.path, render::predicted_of(prediction.report)));
    if (said->report.time.step < prediction.report.time.step) {
      output.note(fmt::format("The closest plan is the faster one, because it differs in: {}.", places_of(*said)));
    }
  }
  if (file) {
    const Overwrite overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
    const auto written = write_file_atomically(*file, to_text(PlanFile{said->plan, given.cluster, {}}), overwrite);
    if (!written) return tl::unexpected(not_written(written.error(), *file, overwrite));
  }
  const std::string source = std::filesystem::path(file.value_or(given.path)).filename().string();
  const render::TrainerConfig config{trainer, *said, given.model, given.cluster, fsdp::printable(source)};
  for (const std::string& note : render::notes_beside(config)) output.note(note);
  return to_text(config);
}

}  // namespace fsdp::command
