#include "render/result_json.h"
#include "core/plan/plan_names.h"

#include <limits>
#include <optional>
#include <utility>

#include "core/plan/plan_names.h"
#include "core/report/report_json.h"
#include "planner/advice/remedy_kind.h"
#include "planner/search/objective.h"
#include "planner/space/batches.h"
#include "render/choice_words.h"
#include "render/render_phases.h"

namespace fsdp::render {

namespace {

OtherPlan plan_of(const planner::Candidate& candidate) {
  return {candidate.label, candidate.device_peak, candidate.step};
}

SearchAddition search_of(const planner::SearchResult& result) {
  const planner::Proof& proof = result.proof;
  SearchAddition search{.space = proof.space, .evaluated = proof.evaluated};
  for (const planner::RuledOut& reason : proof.ruled_out) search.ruled_out.push_back({reason.reason, reason.plans});
  search.optimality_gap = proof.is_proven ? proof.optimality_gap : std::numeric_limits<double>::quiet_NaN();
  search.best = result.best.label;
  for (const planner::Candidate& candidate : result.pareto) search.pareto.push_back(plan_of(candidate));
  search.notes = result.notes;
  search.stopped_early = proof.stopped_early;
  search.compared_ties = proof.compared_ties;
  if (!result.refinement.empty()) search.refinement = result.refinement;
  search.saved = proof.saved;
  search.objective = name_of(planner::kSearchObjectiveTable, result.objective);
  search.samples_per_second = static_cast<double>(planner::samples_of(result.best.plan)) / result.best.step.count();
  return search;
}

PolicyAddition policy_of(const planner::PolicyExplanation& explanation) {
  PolicyAddition policy{.policy = explanation.policy};
  for (const planner::PolicyRow& row : explanation.rows) {
    policy.visited.push_back({.modules = row.modules,
                              .class_name = row.class_name,
                              .count = row.count,
                              .elements = row.elements,
                              .remaining = row.remaining,
                              .is_unit = row.is_unit,
                              .why = row.why});
  }
  policy.root_elements = explanation.root_elements;
  policy.in_root = explanation.in_root;
  return policy;
}

std::string_view word_of(planner::RemedyKind kind) {
  switch (kind) {
    case planner::RemedyKind::Free:
      return "free";
    case planner::RemedyKind::ChangesTraining:
      return "training";
    case planner::RemedyKind::OtherMachine:
      return "machine";
  }
  return "";
}

ExplainAddition explain_of(const planner::Explanation& explanation) {
  ExplainAddition explain{.binding = explanation.binding};
  for (const planner::Candidate& candidate : explanation.rejected) {
    explain.rejected.push_back({plan_of(candidate), candidate.missing});
  }
  for (const planner::Remedy& remedy : explanation.remedies) {
    std::optional<PriceAddition> same_plan;
    if (const auto& price = remedy.same_plan) {
      same_plan = {price->delta_bytes.count(), price->delta_time.count(), price->verdict, price->is_tight};
    }
    explain.remedies.push_back({.what = remedy.what,
                                .flag = flags_of(remedy.change),
                                .delta_bytes = remedy.delta_bytes.count(),
                                .delta_seconds = remedy.delta_time.count(),
                                .verdict = remedy.verdict,
                                .is_tight = remedy.is_tight,
                                .priced = remedy.is_searched ? "search" : "same plan",
                                .kind = std::string(word_of(planner::kind_of(remedy))),
                                .same_plan = same_plan});
  }
  if (explanation.wrap) explain.wrap = policy_of(*explanation.wrap);
  return explain;
}

MachineAddition addition_of(const planner::ComparedMachine& machine) {
  MachineAddition addition{.machine = machine.name, .gpus = machine.gpus, .why_not = machine.why_not};
  if (!machine.why_not.empty()) return addition;
  addition.verdict = machine.verdict;
  addition.is_tight = machine.is_tight;
  addition.step = machine.step;
  addition.samples = machine.samples;
  addition.device_peak = machine.device_peak;
  addition.samples_per_second = machine.samples_per_second();
  addition.gpu_seconds_per_sample = machine.gpu_seconds_per_sample();
  addition.price_per_hour = machine.price_per_hour;
  addition.price_per_sample = machine.price_per_sample();
  return addition;
}

RuntimeAddition addition_of(const planner::ComparedRuntime& runtime) {
  RuntimeAddition addition{.runtime = std::string(name_of(kRuntimeTable, runtime.framework)),
                           .why_not = runtime.why_not};
  if (!runtime.why_not.empty()) return addition;
  addition.verdict = runtime.verdict;
  addition.is_tight = runtime.is_tight;
  addition.plan = runtime.label;
  addition.step = runtime.step;
  addition.samples = runtime.samples;
  addition.device_peak = runtime.device_peak;
  addition.needed = runtime.needed;
  addition.sent_per_gpu = runtime.sent;
  addition.collectives = runtime.collectives;
  addition.host = runtime.host;
  return addition;
}

UseAddition addition_of(const planner::JobUse& use) {
  UseAddition addition{.verdict = use.verdict,
                       .is_tight = use.is_tight,
                       .step = use.step,
                       .device_peak = use.device_peak,
                       .environment = use.environment,
                       .line = use.edited.words};
  for (const planner::KeyEdit& edit : use.edited.edits) {
    addition.changes.push_back({edit.file, edit.key, edit.before, edit.after});
  }
  return addition;
}

SpreadAddition addition_of(const planner::LengthSpread& spread) {
  return {spread.least, spread.median, spread.p95, spread.most};
}

LengthRowAddition addition_of(const planner::LengthRow& row, std::int64_t steps) {
  return {.what = row.what,
          .how = row.how,
          .verdict = row.device.verdict,
          .is_tight = row.device.tightness != Tightness::None,
          .reserved = row.peak_reserved,
          .allocated = row.peak_allocated,
          .flushes = row.flushes,
          .flushes_per_100 = 100 * static_cast<double>(row.flushes) / static_cast<double>(steps),
          .num_out = row.num_out,
          .first_out = row.first_out,
          .padding = row.padding};
}

void add_lengths(ReportAdditions& additions, const planner::LengthAnswer* answer) {
  if (answer == nullptr) return;
  const DeviceVerdict device = answer->verdict();
  LengthsAddition lengths{.verdict = device.verdict,
                          .is_tight = device.tightness != Tightness::None,
                          .samples = answer->samples,
                          .limit = answer->limit,
                          .num_cut = answer->num_cut,
                          .steps = answer->steps,
                          .seed = answer->seed,
                          .batch = answer->batch,
                          .accumulation = answer->accumulation,
                          .drawn_gpus = answer->drawn_gpus,
                          .probability = answer->probability(),
                          .sample_tokens = addition_of(answer->sample_tokens),
                          .batch_tokens = addition_of(answer->batch_tokens),
                          .reserved = addition_of(answer->reserved),
                          .allocated = addition_of(answer->allocated),
                          .longest = answer->longest,
                          .at_longest = answer->at_longest,
                          .longest_is_out = answer->longest_is_out,
                          .outside = answer->outside,
                          .margin = answer->margin,
                          .planned = addition_of(answer->planned, answer->steps)};
  for (const planner::LengthRow& row : answer->rows) lengths.changes.push_back(addition_of(row, answer->steps));
  additions.lengths = std::move(lengths);
}

ReportAdditions additions_of(const planner::SearchResult& result, const planner::LengthAnswer* lengths) {
  ReportAdditions additions;
  add_lengths(additions, lengths);
  additions.search = search_of(result);
  additions.explain = explain_of(result.explanation);
  if (!result.explanation.phases.empty()) additions.job_phases = phase_additions(result.explanation.phases);
  return additions;
}

}  // namespace

std::string to_json(const planner::SearchResult& result, const Cluster* cluster, const planner::LengthAnswer* lengths,
                    const planner::JobUse* use) {
  ReportAdditions additions = additions_of(result, lengths);
  if (use != nullptr) additions.use = addition_of(*use);
  return fsdp::to_json(result.report, additions, cluster);
}

std::string to_json(const planner::MachineComparison& comparison, const planner::LengthAnswer* lengths) {
  ReportAdditions additions = additions_of(comparison.result, lengths);
  additions.machines.emplace();
  for (const planner::ComparedMachine& machine : comparison.machines)
    additions.machines->push_back(addition_of(machine));
  return fsdp::to_json(comparison.result.report, additions, &comparison.request.cluster);
}

std::string to_json(const planner::RuntimeComparison& comparison, const planner::LengthAnswer* lengths) {
  ReportAdditions additions = additions_of(comparison.result, lengths);
  additions.runtimes.emplace();
  for (const planner::ComparedRuntime& runtime : comparison.runtimes)
    additions.runtimes->push_back(addition_of(runtime));
  return fsdp::to_json(comparison.result.report, additions, &comparison.request.cluster);
}

std::string to_json(const StepReport& report, const Cluster* cluster, const planner::Explanation* explanation,
                    const planner::LengthAnswer* lengths, const std::vector<JobPhaseNeed>& phases) {
  ReportAdditions additions;
  add_lengths(additions, lengths);
  if (explanation != nullptr) additions.explain = explain_of(*explanation);
  if (!phases.empty()) additions.job_phases = phase_additions(phases);
  return fsdp::to_json(report, additions, cluster);
}

}  // namespace fsdp::render
