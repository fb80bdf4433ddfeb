// The measurements of a step.
//
//   op          its own marks, forward and backward (executor/calibrate/op_clock.h)
//   action      its time less the time that the computing thread waited in it for collectives
//   stretches   Forward and Backward less their ops: the graph that begins and ends there, evenly to all of them
//   collective  on a CPU, from its call, or the end of the one before it, until nobody waited for it any more; none if
//               it ended before anybody waited
//
// An op, copy or reduction has as many samples as steps and layers. Other programs make some of them longer, never
// shorter, so we take the mean of those between the quartiles.
//
// Not modeled: the first two steps; recomputation, whose ops are those of the forward.

#include "executor/calibrate/calibrator.h"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <numeric>

#include "executor/calibrate/collective_times.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kWarmUpSteps = 2;
constexpr double kLeastMicroseconds = 1e-3;
// Below this, the result was there already.
constexpr Seconds kLeastWait{20e-6};

double middle_mean(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto quarter = static_cast<std::ptrdiff_t>(samples.size() / 4);
  const double sum = std::accumulate(samples.begin() + quarter, samples.end() - quarter, 0.);
  return sum / static_cast<double>(static_cast<std::ptrdiff_t>(samples.size()) - 2 * quarter);
}

double microseconds(Seconds time) {
  return std::max(1e6 * time.count(), kLeastMicroseconds);
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

void WorkSamples::add(const NamedWork& work, Seconds forward) {
  points_[{work.work, work.depth}][work.size].forward.push_back(microseconds(forward));
}

void WorkSamples::add(const NamedWork& work, Seconds forward, Seconds backward) {
  add(work, forward);
  points_[{work.work, work.depth}][work.size].backward.push_back(microseconds(backward));
}

std::vector<WorkTimes> WorkSamples::tables() const {
  std::vector<WorkTimes> tables;
  for (const auto& [key, points] : points_) {
    WorkTimes times{.work = std::get<0>(key), .depth = std::get<1>(key)};
    const bool has_backward =
        std::all_of(points.begin(), points.end(), [](const auto& point) { return !point.second.backward.empty(); });
    for (const auto& [size, point] : points) {
      times.sizes.push_back(size);
      times.microseconds.push_back(middle_mean(point.forward));
      if (has_backward) times.backward_microseconds.push_back(middle_mean(point.backward));
    }
    tables.push_back(std::move(times));
  }
  return tables;
}

Calibrator::Calibrator(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule,
                       Trainer& trainer)
    : index_(index),
      plan_(plan),
      layout_(layout),
      schedule_(schedule),
      trainer_(trainer),
      activation_(activation_dtype(*index.model, plan)),
      implementations_(implementations_of(plan)),
      began_(std::chrono::steady_clock::now()),
      measured_at_(fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))),
      clock_(trainer.device()) {
  trainer_.listen_to_ops(&clock_);
}

Calibrator::~Calibrator() {
  trainer_.listen_to_ops(nullptr);
}

void Calibrator::take(const StepMeasurement& step) {
  const std::vector<OpSample> ops = clock_.take();
  if (++steps_ <= kWarmUpSteps) return;
  for (const OpSample& sample : ops) {
    const NamedWork work = work_of_op(index_, sample.call, sample.op, activation_, implementations_);
    const bool is_differentiated =
        index_.in_backward[static_cast<std::size_t>(index_.call_begin[sample.call] + sample.op)];
    if (is_differentiated) {
      ops_.add(work, sample.forward, sample.backward);
    } else {
      ops_.add(work, sample.forward);
    }
  }
  take_actions(step, ops);
  take_collectives(step);
}

void Calibrator::take_collectives(const StepMeasurement& step) {
  Seconds before{0};
  for (std::size_t c = 0; c < step.collective_times.size(); ++c) {
    const CollectiveTimes& times = step.collective_times[c];
    if (times.waited_to - times.waited_from <= kLeastWait) continue;
    // The wait for an earlier collective may come later; then this one's wait is unknown.
    const Seconds begin = before <= times.waited_to ? std::max(times.called, before) : times.called;
    before = times.waited_to;
    if (step.collectives[c].group_size == 1) continue;
    collectives_.add({.work = in_steps(name_of(step.collectives[c].kind)),
                      .size = static_cast<double>(step.collectives[c].payload.count())},
                     times.waited_to - begin);
  }
}

void Calibrator::take_actions(const StepMeasurement& step, const std::vector<OpSample>& ops) {
  const std::vector<Instruction> actions = actions_of(schedule_);
  Seconds forward{0}, backward{0};
  for (const OpSample& sample : ops) {
    forward += sample.forward;
    backward += sample.backward;
  }
  std::array<Seconds, 2> beyond{-forward, -backward};
  std::array<std::int64_t, 2> stretches{0, 0};
  Seconds begin{0};
  for (std::size_t i = 0; i < actions.size() && i < step.instruction_times.size(); ++i) {
    const Seconds end = begin + step.instruction_times[i];
    Seconds own = step.instruction_times[i];
    for (const CollectiveTimes& each : step.collective_times) {
      own -= std::max(Seconds(0), std::min(end, each.waited_to) - std::max(begin, each.waited_from));
    }
    const bool is_backward = actions[i].kind == InstructionKind::Backward;
    if (is_backward || actions[i].kind == InstructionKind::Forward) {
      beyond[is_backward ? 1 : 0] += own;
      ++stretches[is_backward ? 1 : 0];
    } else if (const NamedWork work = work_of_action(actions[i], *index_.model, layout_, plan_); !work.work.empty()) {
      actions_.add(work, own);
    }
    begin = end;
  }
  for (const InstructionKind kind : {InstructionKind::Forward, InstructionKind::Backward}) {
    const std::size_t i = kind == InstructionKind::Backward ? 1 : 0;
    if (stretches[i] > 0) actions_.add(work_of_stretch({.kind = kind}), beyond[i] / static_cast<double>(stretches[i]));
  }
}

void Calibrator::measure_collectives() {
  if (layout_.mesh.dp_shard() == 1) return;
  Bytes largest{0};
  for (const ShardedUnit& unit : layout_.units) {
    largest = std::max({largest, unit.gather_shard_bytes * layout_.mesh.dp_shard(),
                        size_of(unit.reduce_dtype) * unit.reduced_full_elements});
  }
  const ShardedUnit& unit = layout_.units.back();
  const CollectiveSettings settings{.largest = largest,
                                    .gathered = scalar_type(unit.param_dtype),
                                    .reduced = scalar_type(unit.reduce_dtype),
                                    .device = trainer_.device()};
  measured_.collectives = time_collectives(trainer_.shard_group(), settings);
  if (trainer_.device().is_cpu()) measured_.compute_share = compute_share(trainer_.shard_group(), settings);
}

void Calibrator::measure_copies() {
  if (trainer_.device().is_cpu()) return;
  const auto [to_gpu, to_host] = time_copies(trainer_.device());
  measured_.host_to_gpu = to_gpu;
  measured_.gpu_to_host = to_host;
  measured_.launch_microseconds = 1e6 * time_launch(trainer_.device()).count();
}

MachineTables Calibrator::tables(const std::string& device, const std::string& libraries) const {
  MachineTables tables = measured_;
  tables.ranks = static_cast<int>(plan_.mesh.world_size());
  tables.threads = trainer_.device().is_cpu() ? at::get_num_threads() : 1;
  tables.device = device;
  tables.processor = processor();
  tables.libraries = fmt::format("PyTorch {}, {}", TORCH_VERSION, libraries);
  tables.model = index_.model->name;
  tables.measured_at = measured_at_;
  tables.spent = std::chrono::steady_clock::now() - began_;
  tables.ops = ops_.tables();
  tables.actions = actions_.tables();
  for (WorkTimes& times : collectives_.tables()) tables.collectives.push_back(std::move(times));
  std::sort(tables.collectives.begin(), tables.collectives.end(),
            [](const WorkTimes& a, const WorkTimes& b) { return a.work < b.work; });
  return tables;
}

}  // namespace fsdp::executor
