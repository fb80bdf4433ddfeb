// The curves against the report of the same plan, which is made by other walks.

#include "simulator/curves/step_curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/cluster/cluster_library.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan_names.h"
#include "simulator/predictor.h"
#include "tests/support/spec_models.h"

namespace fsdp::simulator {
namespace {

struct Case {
  std::string name;
  std::string model;
  std::vector<Dimension> sizes;
  Plan plan;
};

Plan wrapped(const Model& model, Mesh mesh) {
  Plan plan;
  plan.mesh = mesh;
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) {
      const int module = model.calls[call].module;
      plan.units.push_back({{model.modules[module].name}, {}});
    }
  }
  plan.units.push_back({{""}, {}});
  return plan;
}

/// Its arguments as they are by default, with the units that it takes: DDP and DeepSpeed have none of their own.
void of_framework(Framework framework, Plan& plan) {
  plan.runtime.framework = framework;
  if (traits_of(plan).zero_stage > 0) plan.zero = default_zero_options(framework);
  if (traits_of(plan).zero_stage > 0) plan.parameter_dtype = Dtype::Float32;
  if (framework == Framework::Ddp) plan.mesh = {plan.mesh.world_size(), 1};
  if (!traits_of(plan).wraps_units) plan.units = {{{""}, {}}};
}

Model read(const Case& one) {
  Workload workload;
  workload.dimensions = one.sizes;
  return model_of(one.model + ".json", workload);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::string model, std::vector<Dimension> sizes, Mesh mesh, auto change) {
    Case one{std::move(name), std::move(model), std::move(sizes), {}};
    one.plan = wrapped(read(one), mesh);
    change(one.plan);
    all.push_back(std::move(one));
  };
  const std::vector<Dimension> small = {{"batch", 2}, {"seq", 256}};
  const auto mixed = [](Plan& plan) {
    plan.parameter_dtype = Dtype::Float32;
    plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  };
  add("plain", "gpt2", small, {1, 4}, [](Plan&) {});
  add("mixed", "gpt2", small, {1, 4}, mixed);
  add("hybrid", "gpt2", small, {2, 2}, mixed);
  add("checkpointed", "qwen3_0_6b", small, {1, 4}, [&](Plan& plan) {
    mixed(plan);
    for (const Unit& unit : plan.units) {
      if (!unit.modules.front().empty())
        plan.checkpointing.entries.push_back({unit.modules.front(), CheckpointMode::Full});
    }
  });
  add("offloaded", "gpt2", small, {1, 4}, [](Plan& plan) { plan.cpu_offload = true; });
  add("accumulating", "gpt2", small, {1, 4}, [&](Plan& plan) {
    mixed(plan);
    plan.accumulation = 5;
  });
  add("small groups", "gpt2", small, {1, 8}, [](Plan& plan) {
    for (Unit& unit : plan.units) {
      if (!unit.modules.front().empty()) unit.reshard_after_forward = {ReshardAfterForward::Kind::Smaller, 2};
    }
  });
  add("reduced once a step", "gpt2", small, {1, 4}, [&](Plan& plan) {
    mixed(plan);
    plan.accumulation = 3;
    plan.sync_every_micro_batch = false;
  });
  for (const EnumName<Framework>& framework : kFrameworks) {
    add(std::string(framework.name), "gpt2", small, {1, 4}, [&](Plan& plan) { of_framework(framework.value, plan); });
  }
  add("flat, prefetched", "gpt2", small, {1, 4}, [](Plan& plan) {
    of_framework(Framework::Fsdp1, plan);
    plan.fsdp1.forward_prefetch = true;
  });
  add("zero3, accumulating", "gpt2", small, {1, 4}, [&](Plan& plan) {
    of_framework(Framework::Zero3, plan);
    mixed(plan);
    plan.mixed_precision.reduce_dtype = Dtype::BFloat16;
    plan.accumulation = 3;
  });
  add("eight bit", "gpt2", small, {1, 3}, [](Plan& plan) { plan.optimizer.kind = OptimizerKind::BnbAdamW8bit; });
  return all;
}

struct Answer {
  StepReport report;
  StepCurves curves;
};

Answer answer_to(const Case& one) {
  const auto library = read_cluster_library("model_specs/clusters");
  const auto gpus = static_cast<int>(one.plan.mesh.world_size());
  Predictor predictor(read(one), *make_cluster(*find_gpu("A100-80", library->gpus, "gpu"), gpus, 1));
  auto report = predictor.report(one.plan);
  EXPECT_TRUE(report.has_value()) << one.name << ": " << (report ? "" : to_string(report.error().front()));
  // As exports ask for them.
  auto curves = predictor.curves(one.plan, report ? report->memory.rank : 0);
  EXPECT_TRUE(curves.has_value());
  return {report.value_or(StepReport{}), curves ? *std::move(curves) : StepCurves{}};
}

/// All cases, answered once. The predictors are gone by then: the curves must not need them.
const std::vector<std::pair<Case, Answer>>& answers() {
  static const std::vector<std::pair<Case, Answer>> all = [] {
    std::vector<std::pair<Case, Answer>> made;
    for (const Case& one : cases()) made.emplace_back(one, answer_to(one));
    return made;
  }();
  return all;
}

std::int64_t highest(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

TEST(StepCurves, PeaksMatchTheReportInEveryPhase) {
  for (const auto& [one, answer] : answers()) {
    ASSERT_EQ(answer.curves.phases.size(), answer.report.memory.phases.size()) << one.name;
    for (std::size_t p = 0; p < answer.curves.phases.size(); ++p) {
      const MemoryCurve& curve = answer.curves.phases[p];
      const PhasePeaks& phase = answer.report.memory.phases[p];
      EXPECT_EQ(curve.phase, phase.phase);
      EXPECT_EQ(highest(curve.total), phase.peaks.live.count()) << one.name << " " << name_of(phase.phase);
      EXPECT_EQ(highest(curve.allocated), phase.peaks.allocated.count()) << one.name << " " << name_of(phase.phase);
      EXPECT_EQ(highest(curve.reserved), phase.peaks.reserved.count()) << one.name << " " << name_of(phase.phase);
      EXPECT_EQ(highest(curve.reserved) + answer.curves.context.count(), phase.peaks.device.count()) << one.name;
    }
  }
}

// What a terminal draws is as high as the peak that it illustrates, also where that lies within an instruction.
TEST(StepCurves, CurveOfTheReportReachesItsPeak) {
  for (const auto& [one, answer] : answers()) {
    const MemoryReport& memory = answer.report.memory;
    ASSERT_FALSE(memory.live_over_step.empty()) << one.name;
    const Bytes highest = *std::max_element(memory.live_over_step.begin(), memory.live_over_step.end());
    EXPECT_EQ(highest, memory.phases.back().peaks.live) << one.name;
  }
}

TEST(StepCurves, CategoriesAtThePeakMatchTheReport) {
  for (const auto& [one, answer] : answers()) {
    const std::size_t phase = answer.curves.peak_phase();
    const std::size_t moment = answer.curves.phases[phase].peak();
    EXPECT_EQ(answer.curves.phases[phase].live_at(moment), answer.report.memory.at_peak) << one.name;
    const PeakMoment place = answer.curves.moment_at(phase, moment);
    EXPECT_EQ(place, answer.report.memory.peak) << one.name << ": " << place.instruction << " " << place.op;
    std::map<std::pair<MemoryCategory, std::string>, std::pair<std::int64_t, Bytes>> ours;
    for (const LiveTensorDetail& each : answer.curves.live_tensors_at(phase, moment)) {
      ours[{each.tensor.category, each.tensor.name}] = {each.tensor.count, each.tensor.bytes};
    }
    ASSERT_EQ(ours.size(), answer.report.memory.live_at_peak.size()) << one.name;
    for (const LiveTensor& tensor : answer.report.memory.live_at_peak) {
      const auto& mine = ours[{tensor.category, tensor.name}];
      EXPECT_EQ(mine.first, tensor.count) << tensor.name;
      EXPECT_EQ(mine.second, tensor.bytes) << tensor.name;
    }
  }
}

TEST(StepCurves, EqualTheSumOfTheirTensorsAtAnyMoment) {
  const Answer& answer = answers()[1].second;
  for (std::size_t phase = 0; phase < answer.curves.phases.size(); ++phase) {
    const MemoryCurve& curve = answer.curves.phases[phase];
    for (std::size_t moment = 0; moment < curve.size(); moment += 1 + curve.size() / 7) {
      BytesByCategory sum{};
      for (const LiveTensorDetail& each : answer.curves.live_tensors_at(phase, moment)) {
        sum[static_cast<std::size_t>(each.tensor.category)] += each.tensor.bytes;
      }
      EXPECT_EQ(sum, curve.live_at(moment)) << name_of(curve.phase) << " " << moment;
    }
  }
}

// "ceil(11008 / 4) x 4096 x 4 B (float32)"
std::int64_t value_of(const std::string& formula) {
  std::istringstream words(formula.substr(0, formula.find(" B (")));
  std::int64_t value = 1;
  std::string sign;
  for (std::string word; words >> word;) {
    if (word == "x" || word == "/") {
      sign = word;
      continue;
    }
    if (word.starts_with("ceil(")) {
      std::string slash;
      std::int64_t divisor = 1;
      words >> slash >> divisor;
      words.ignore(1);
      value *= (std::stoll(word.substr(5)) + divisor - 1) / divisor;
      continue;
    }
    value = sign == "/" ? value / std::stoll(word) : value * std::stoll(word);
  }
  return value;
}

/// Sum of all tensors of a line: "2 of 512 x 4 B (float32) + 1 of 256 x 4 B (float32)".
std::int64_t value_of_line(const std::string& line, std::int64_t count) {
  if (line.find(" of ") == std::string::npos) return count * value_of(line);
  std::int64_t sum = 0;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t of = line.find(" of ", begin);
    const std::size_t end = std::min(line.find(" + ", begin), line.size());
    sum += std::stoll(line.substr(begin, of - begin)) * value_of(line.substr(of + 4, end - of - 4));
    begin = end == line.size() ? end : end + 3;
  }
  return sum;
}

TEST(StepCurves, FormulasExplainNearlyEveryByte) {
  EXPECT_EQ(value_of("ceil(10 / 4) x 5 x 2 B (bfloat16)"), 30);
  EXPECT_EQ(value_of_line("2 of 5 x 4 B (float32) + 1 of 8 / 4 x 2 B (bfloat16)", 3), 44);
  for (const auto& [one, answer] : answers()) {
    const std::size_t phase = answer.curves.peak_phase();
    Bytes explained;
    Bytes all;
    std::string missing;
    for (const LiveTensorDetail& each : answer.curves.live_tensors_at(phase, answer.curves.phases[phase].peak())) {
      all += each.tensor.bytes;
      if (each.formula.empty()) {
        missing += each.tensor.name + " " + std::to_string(each.tensor.bytes.count()) + "\n";
        continue;
      }
      explained += each.tensor.bytes;
      EXPECT_EQ(value_of_line(each.formula, each.tensor.count), each.tensor.bytes.count())
          << each.tensor.name << ": " << each.formula;
    }
    // Buckets and the parts of flat parameters have no shape of their own.
    if (one.plan.runtime.framework != Framework::Fsdp2) continue;
    EXPECT_GT(ratio(explained, all), 0.9) << one.name << "\n" << missing;
  }
}

// For frameworks whose first step has an order of its own, each phase has the instructions that it ran.
TEST(StepCurves, HaveAnInstructionForEachMoment) {
  int others = 0;
  for (const auto& [one, answer] : answers()) {
    const StepCurves& curves = answer.curves;
    others += curves.first_instructions.empty() ? 0 : 1;
    for (std::size_t p = 0; p < curves.phases.size(); ++p) {
      const MemoryCurve& curve = curves.phases[p];
      EXPECT_TRUE(std::is_sorted(curve.time.begin(), curve.time.end())) << one.name << " " << name_of(curve.phase);
      EXPECT_TRUE(std::is_sorted(curve.instruction.begin(), curve.instruction.end())) << one.name;
      if (curve.phase == RunPhase::Initialization) continue;
      const auto steps = static_cast<std::int32_t>(curves.instructions_of(p).size());
      ASSERT_LT(curve.instruction.back(), steps) << one.name << " " << name_of(curve.phase);
      EXPECT_GE(curve.instruction.back(), steps - 3) << one.name << " ends in the optimizer's turn";
      for (std::size_t i = 1; i < curve.size(); ++i) {
        const CurveInstruction* step = curves.instruction_at(p, i);
        if (step == nullptr) continue;
        ASSERT_GE(curve.time[i], step->begin) << one.name << " " << name_of(curve.phase) << " " << step->name;
        ASSERT_LE(curve.time[i], step->end) << one.name << " " << name_of(curve.phase) << " " << step->name;
        ASSERT_EQ(curves.moment_at(p, i).instruction, step->name);
      }
    }
  }
  EXPECT_EQ(others, 4) << "Both of ZeRO-3, FSDP1 with forward_prefetch, and DDP.";
}

TEST(StepCurves, TimesMatchTheTimeline) {
  for (const auto& [one, answer] : answers()) {
    // A report has the step of the first rank, and these curves are of the one that needs most memory.
    const double other = traits_of(one.plan).gathers_each_read ? 1e-5 * answer.curves.step.count() : 0;
    EXPECT_NEAR(answer.curves.step.count(), answer.report.time.step.count(), other) << one.name;
    const MemoryCurve& steady = *answer.curves.find(RunPhase::SteadyStep);
    EXPECT_TRUE(std::is_sorted(steady.time.begin(), steady.time.end())) << one.name;
    EXPECT_LE(steady.time.back(), answer.curves.step) << one.name;
    const std::set<Seconds> times(steady.time.begin(), steady.time.end());
    EXPECT_GT(times.size(), answer.curves.instructions.size() / 2) << one.name << ": ops have times of their own";
    for (std::size_t i = 0; i < steady.size(); ++i) {
      if (steady.instruction[i] < 0) continue;
      const CurveInstruction& step = answer.curves.instructions[steady.instruction[i]];
      ASSERT_GE(steady.time[i], step.begin) << one.name << " " << step.name;
      ASSERT_LE(steady.time[i], step.end) << one.name << " " << step.name;
    }
  }
}

TEST(StepCurves, EventsRespectTheirWaitsAndMatchTheReportsTimes) {
  for (const auto& [one, answer] : answers()) {
    std::map<Stream, Seconds> free_at;
    Seconds exposed{0}, computed{0};
    for (std::size_t i = 0; i < answer.curves.events.size(); ++i) {
      const StreamEvent& event = answer.curves.events[i];
      if (event.stream == Stream::Compute) computed += event.end - event.start;
      EXPECT_LE(free_at[event.stream].count(), event.start.count() + 1e-12) << one.name << " " << event.name;
      free_at[event.stream] = event.end;
      exposed += event.exposed;
      for (const std::int32_t other : event.waits_for) {
        ASSERT_LT(static_cast<std::size_t>(other), i);
        EXPECT_LE(answer.curves.events[other].end.count(), event.start.count() + 1e-12)
            << one.name << ": " << event.name << " waits";
      }
    }
    if (traits_of(one.plan).gathers_each_read) continue;  // Its times are those of another rank.
    EXPECT_NEAR(exposed.count(), answer.report.time.exposed_communication.count(), 1e-9) << one.name;
    // An op waits for the CPU that launches it, and the report has the device's share of it.
    EXPECT_GE(computed.count(), answer.report.time.compute.count() - 1e-9) << one.name;
    EXPECT_LE((computed + exposed).count(), answer.report.time.step.count() + 1e-9) << one.name;
  }
}

TEST(StepCurves, CarryThePayloadsOfTheTraffic) {
  for (const auto& [one, answer] : answers()) {
    // For the others a trace has the time of each collective, but the bytes of some only.
    if (one.plan.optimizer.clip_grad_norm || traits_of(one.plan).zero_stage > 0 ||
        traits_of(one.plan).gathers_each_read)
      continue;
    std::vector<const StreamEvent*> ours;
    for (const StreamEvent& event : answer.curves.events) {
      if (event.payload) ours.push_back(&event);
    }
    ASSERT_EQ(ours.size(), answer.report.traffic.collectives.size()) << one.name;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Collective& collective = answer.report.traffic.collectives[i];
      EXPECT_EQ(ours[i]->payload->kind, collective.kind) << one.name << " " << i;
      EXPECT_EQ(ours[i]->payload->bytes, collective.payload) << one.name << " " << i;
      EXPECT_EQ(ours[i]->payload->group_size, collective.group_size) << one.name << " " << i;
      EXPECT_EQ(ours[i]->unit, collective.unit) << one.name << " " << i;
      // A report counts the wait for a copy to the host as one for the reduction before it.
      if (one.plan.cpu_offload) continue;
      EXPECT_NEAR(ours[i]->exposed.count(), collective.exposed.count(), 1e-9) << one.name << " " << i;
    }
  }
}

TEST(StepCurves, EventsNameTheEventsThatTheyAwait) {
  const Answer& answer = answers()[1].second;
  int copies = 0;
  for (const StreamEvent& event : answer.curves.events) {
    if (event.stream != Stream::Compute || !event.name.starts_with("copy-out")) continue;
    ++copies;
    ASSERT_EQ(event.waits_for.size(), 1u) << event.name;
    const StreamEvent& gather = answer.curves.events[event.waits_for.front()];
    EXPECT_EQ(gather.stream, Stream::AllGather);
    EXPECT_EQ(gather.unit, event.unit);
  }
  EXPECT_GT(copies, 10);
}

TEST(StepCurves, GradientsReducedOncePerStepAreCastThenAccumulated) {
  for (const auto& [one, answer] : answers()) {
    std::vector<double> seconds;  // For the root, whose table makes them longer than their launches.
    std::int64_t units = 0;
    for (const StreamEvent& event : answer.curves.events) {
      if (!event.name.starts_with("accumulate")) continue;
      EXPECT_EQ(event.stream, Stream::Compute);
      if (event.unit.empty()) seconds.push_back((event.end - event.start).count());
      ++units;
    }
    if (one.plan.sync_every_micro_batch) {
      EXPECT_EQ(units, 0) << one.name;
      continue;
    }
    EXPECT_EQ(units, 3 * static_cast<std::int64_t>(one.plan.units.size()));
    ASSERT_EQ(seconds.size(), 3U);
    // An element is read as bf16 and written as fp32; later both are read and the sum is written.
    EXPECT_NEAR(seconds[1], seconds[0] * (2 + 4 + 4) / (2 + 4), 1e-12);
    EXPECT_NEAR(seconds[2], seconds[1], 1e-12);
  }
}

}  // namespace
}  // namespace fsdp::simulator
