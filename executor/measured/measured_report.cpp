#include "executor/measured/measured_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/model/call_name.h"

namespace fsdp::executor {

namespace {

constexpr Bytes kUnknown{-1};

MemoryPeaks peaks_of(const LivePeak& peak) {
  return {.live = peak.bytes, .allocated = peak.allocated, .reserved = peak.reserved, .device = peak.device};
}

MemoryPeaks higher(const MemoryPeaks& a, const MemoryPeaks& b) {
  return {.live = std::max(a.live, b.live),
          .allocated = std::max(a.allocated, b.allocated),
          .reserved = std::max(a.reserved, b.reserved),
          .device = std::max(a.device, b.device)};
}

Seconds median(std::vector<Seconds> times) {
  if (times.empty()) return Seconds(0);
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

PeakMoment moment_of(const Instruction& step, const ModelIndex& index, const Layout& layout) {
  PeakMoment moment{.phase = step.phase, .instruction = std::string(name_of(step.kind)), .unit = {}, .op = {}};
  if (step.unit >= 0) {
    moment.unit = layout.units[step.unit].name;
    moment.instruction += " " + moment.unit;
  }
  if (step.call >= 0) {
    moment.instruction += " " + name_of_call(*index.model, index.model->calls[step.call]);
  }
  return moment;
}

void add_traffic(TrafficReport& traffic, const Collective& collective) {
  TrafficTotal& total = traffic.totals[static_cast<std::size_t>(collective.kind)];
  ++total.count;
  total.payload += collective.payload;
  const std::int64_t ranks = collective.group_size;
  const std::int64_t passes = collective.kind == CollectiveKind::AllReduce ? 2 : 1;
  total.sent_per_rank += Bytes(passes * (ranks - 1) * collective.payload.count() / ranks);
}

// The median, as for every action.
Seconds optimizer_time(const std::vector<StepMeasurement>& steps, std::size_t first) {
  Seconds sum{0};
  const Schedule& schedule = *steps.back().schedule;
  const std::vector<Instruction> actions = actions_of(schedule);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != InstructionKind::OptimizerStep) continue;
    std::vector<Seconds> times;
    for (std::size_t s = first; s < steps.size(); ++s) {
      if (steps[s].schedule == &schedule) times.push_back(steps[s].instruction_times[i]);
    }
    sum += median(std::move(times));
  }
  return sum;
}

}  // namespace

StepReport measured_report(const ModelIndex& index, const Plan& plan, const Layout& layout,
                           const std::vector<StepMeasurement>& steps, const RunFacts& facts) {
  const Model& model = *index.model;
  StepReport report;
  report.kind = "measured";
  report.runtime = "fsdp-exec";
  report.runtime_version = plan.runtime.version;
  report.verdict = Verdict::Unknown;
  report.model = model.name;
  report.parameters = num_parameters(model);
  report.trainable_parameters = num_trainable_parameters(model);
  report.receives_gradient_parameters = num_gradient_parameters(model);
  report.buffers = kUnknown;
  report.gpu = facts.device;
  report.gpus_per_node = plan.mesh.world_size();
  report.plan = plan;

  const StepMeasurement& steady = steps.back();
  // All steps but the first: a caching allocator's answer depends on its earlier requests.
  MemoryPeaks later = peaks_of(steady.peak);
  for (std::size_t s = 1; s < steps.size(); ++s) later = higher(later, peaks_of(steps[s].peak));
  report.memory.peaks = higher(later, peaks_of(steps.front().peak));
  report.memory.peak = moment_of(steady.schedule->instructions[steady.peak.moment], index, layout);
  report.memory.at_peak = steady.peak.at_peak;
  report.memory.phases = {{RunPhase::Initialization, peaks_of(steps.front().before)},
                          {RunPhase::FirstStep, peaks_of(steps.front().peak)}};
  if (steps.size() > 1) report.memory.phases.push_back({RunPhase::SteadyStep, later});

  report.traffic.collectives = steady.collectives;
  for (std::size_t i = 0; i < steady.collectives.size(); ++i) {
    add_traffic(report.traffic, steady.collectives[i]);
    if (steps.front().schedule != steady.schedule) continue;
    Bytes first{0};
    for (const Bytes bytes : steps.front().collectives[i].live) first += bytes;
    report.traffic.collectives[i].first_step_live = first;
  }
  report.traffic.sent_inside_node = kUnknown;

  const std::size_t first = std::min(static_cast<std::size_t>(facts.warm_up), steps.size() - 1);
  std::vector<Seconds> walls;
  std::vector<Seconds> exposed;
  for (std::size_t s = first; s < steps.size(); ++s) {
    walls.push_back(steps[s].wall);
    exposed.push_back(steps[s].exposed);
  }
  report.time.step = median(walls);
  report.time.low = *std::min_element(walls.begin(), walls.end());
  report.time.high = *std::max_element(walls.begin(), walls.end());
  if (report.time.step > Seconds(0)) {
    report.time.tokens_per_second_per_gpu =
        static_cast<double>(model.tokens_per_step * plan.accumulation) / report.time.step.count();
  }
  report.time.optimizer = optimizer_time(steps, first);
  report.time.exposed_communication = median(std::move(exposed));
  report.time.compute = std::max(Seconds(0), report.time.step - report.time.exposed_communication);
  return report;
}

}  // namespace fsdp::executor
