#include "command/cli_request.h"
#include "command/cli_values.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "planner/request/plan_machines.h"
#include "render/choice_text.h"

namespace fsdp::command {

planner::PlanRequest read_choices(const CommandLine& line, Errors& errors, bool (*is_wanted)(planner::PlanChoice)) {
  planner::PlanRequest request;
  // Errors of the work come before errors of the machines.
  std::vector<planner::PlanChoice> order(planner::plan_choices().begin(), planner::plan_choices().end());
  std::stable_partition(order.begin(), order.end(), std::not_fn(planner::is_about_machines));
  for (const planner::PlanChoice choice : order) {
    if (is_wanted != nullptr && !is_wanted(choice)) continue;
    const Result<void> read = render::read_choice(choice, line.all(choice), request.choices);
    if (read) continue;
    append(errors, read.error());
    request.unread.push_back(choice);
  }
  return request;
}

Result<planner::ResolvedRequest> read_request(const CommandLine& line, const std::string& library) {
  Errors errors;
  planner::PlanRequest request = read_choices(line, errors);
  request.model = line.arguments.front();
  if (errors.empty()) return planner::resolve(request, library);
  append(errors, planner::check_request(request, library));
  return tl::unexpected(std::move(errors));
}

Result<Cluster> read_machines(const CommandLine& line, const std::string& library) {
  Errors errors;
  const planner::PlanRequest request = read_choices(line, errors, planner::is_about_machines);
  if (errors.empty()) return planner::resolve_machines(request.choices, library);
  append(errors, planner::check_machines(request.choices, library));
  return tl::unexpected(std::move(errors));
}

std::int64_t work_of_effort(const CommandLine& line, Errors& errors) {
  const auto seconds = OptionReader(line, errors).count(Option::Effort, 0);
  return seconds ? *seconds * planner::kWorkOfSecond : planner::kMostWork;
}

void set_effort(std::int64_t work, planner::SearchOptions& options) {
  options.most_work = work;
  options.most_work_of_remedies = work / (planner::kMostWork / planner::kMostWorkOfRemedies);
}

void limit_by_effort_alone(const CommandLine& line, planner::Space& space) {
  if (line.has(Option::Effort)) space.max_predictions = 0;
}

bool names_machines(const CommandLine& line) {
  return std::any_of(planner::plan_choices().begin(), planner::plan_choices().end(), [&](planner::PlanChoice choice) {
    return planner::is_about_machines(choice) && line.has(choice);
  });
}

Result<Cluster> override_machines(const CommandLine& line, const Cluster& cluster, const std::string& library) {
  if (line.has(Option::ClusterFile) || line.has(Option::GpuName)) return read_machines(line, library);
  Errors errors;
  const planner::PlanRequest request = read_choices(line, errors, planner::is_about_machines);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return override_machines(request.choices, cluster, library);
}

}  // namespace fsdp::command
