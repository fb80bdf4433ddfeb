// The curves of a step: the recorded memory walk of the prediction, with the times of its timeline.
//
// The walk issues allocations in the CPU's order and knows no time; the timeline knows when the compute stream works on
// which instruction and never looks at memory. A moment gets the time of the compute stream, because on that stream one
// op's freed memory can serve the next:
//
//   forward     an op allocates its tensors when it begins: the running sum of the op times before it
//   backward    the same from the other end, after the recomputation, which runs forward through the call
//   others      spread evenly over the time that the compute stream spends on the instruction
//
// Frees go with the allocation before them, so that time never falls. A first step like all others uses the clock of a
// steady one; one with another order (ZeRO-3, FSDP1's forward_prefetch, passes) has instructions and a clock of its
// own. Peaks are those of the report, because it is the same walk through the same allocator.
//
// Not modeled: the CPU runs ahead of the device, so that the CPU takes an all-gather's buffer earlier than its moment
// in the curve.

#include "simulator/curves/step_curves.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <utility>

#include "simulator/curves/curve_builder.h"
#include "simulator/curves/tensor_formulas.h"
#include "simulator/curves/tensor_names.h"
#include "simulator/memory/curve_sink.h"
#include "simulator/memory/device_terms.h"

namespace fsdp::simulator {

namespace {

// Times of the moments of one step of a schedule.
class Clock {
 public:
  Clock(const PreparedPlan& prepared, const Schedule& schedule, const TimelineDetail& timeline)
      : prepared_(prepared), actions_(actions_of(schedule)), timeline_(timeline) {
    assert(actions_.size() == timeline_.instructions.size());
  }

  std::vector<Seconds> times(const std::vector<CurveMoment>& moments) {
    std::vector<Seconds> times(moments.size(), Seconds(0));
    for (std::size_t begin = 0; begin < moments.size();) {
      std::size_t end = begin + 1;
      while (end < moments.size() && moments[end].instruction == moments[begin].instruction) ++end;
      if (moments[begin].instruction >= 0) lay(moments, begin, end, times);
      begin = end;
    }
    return times;
  }

 private:
  void lay(const std::vector<CurveMoment>& moments, std::size_t begin, std::size_t end, std::vector<Seconds>& times) {
    const std::int32_t number = moments[begin].instruction;
    assert(static_cast<std::size_t>(number) < actions_.size());
    const Instruction& step = actions_[number];
    const TimelineDetail::Stretch& stretch = timeline_.instructions[number];
    const bool by_ops = step.kind == InstructionKind::Forward || step.kind == InstructionKind::Backward;
    Seconds now = stretch.begin;
    for (std::size_t i = begin; i < end; ++i) {
      const double share = static_cast<double>(i - begin) / static_cast<double>(end - begin);
      if (!by_ops) now = stretch.begin + share * (stretch.end - stretch.begin);
      if (by_ops && moments[i].change > 0) now = std::max(now, time_of_op(step, stretch, moments[i].tensor));
      times[i] = now;
    }
  }

  // When the op that makes a tensor of the call begins; the start of the call if no op makes it.
  Seconds time_of_op(const Instruction& step, const TimelineDetail::Stretch& stretch, std::int32_t id) {
    const CallTensor tensor = find_call(prepared_.ids, id);
    if (tensor.call != step.call) return stretch.begin;
    const Tape& tape = *prepared_.tapes[step.call];
    const int op = tape.storage_op[tensor.storage];
    if (op < 0) return stretch.begin;
    const CallTimes& times = *prepared_.times[step.call];
    const bool is_forward = step.kind == InstructionKind::Forward;
    if (!is_forward && stretch.recompute > Seconds(0) && is_recomputed(tape, tensor.storage)) {
      return stretch.begin + share_of(times.forward, 0, tape.recomputed.size(), op) * stretch.recompute;
    }
    if (op < step.op_begin || op >= step.op_end) return stretch.begin;
    const Seconds begin = stretch.begin + stretch.recompute;
    const Seconds length = stretch.end - begin;
    if (is_forward) return begin + share_of(times.forward, step.op_begin, step.op_end, op) * length;
    return begin + (1 - share_of(times.backward, step.op_begin, step.op_end, op + 1)) * length;
  }

  static double share_of(const std::vector<Seconds>& sums, std::size_t begin, std::size_t end, std::size_t op) {
    const Seconds whole = sums[end] - sums[begin];
    return whole > Seconds(0) ? std::clamp((sums[op] - sums[begin]) / whole, 0.0, 1.0) : 0;
  }

  bool is_recomputed(const Tape& tape, int storage) {
    std::vector<bool>& known = recomputed_[&tape];
    if (known.empty()) {
      known.assign(static_cast<std::size_t>(tape.num_storages) + 1, false);
      for (const TapeEvent& event : tape.recompute) {
        if (event.kind == TapeEvent::Kind::Alloc) known[event.storage] = true;
      }
    }
    return known[storage];
  }

  const PreparedPlan& prepared_;
  const std::vector<Instruction> actions_;
  const TimelineDetail& timeline_;
  std::map<const Tape*, std::vector<bool>> recomputed_;  // [num storages]
};

MemoryCurve curve_of(RunPhase phase, const std::vector<CurveMoment>& moments, const BytesByCategory& begin,
                     std::vector<Seconds> times) {
  MemoryCurve curve;
  curve.phase = phase;
  curve.time = std::move(times);
  const std::size_t n = moments.size();
  for (auto* column : {&curve.total, &curve.allocated, &curve.reserved, &curve.change}) column->resize(n);
  for (auto* column : {&curve.instruction, &curve.tensor}) column->resize(n);
  std::int64_t total = 0;
  for (const Bytes bytes : begin) total += bytes.count();
  for (std::size_t i = 0; i < n; ++i) {
    total += moments[i].change;
    curve.total[i] = total;
    curve.allocated[i] = moments[i].allocated;
    curve.reserved[i] = moments[i].reserved;
    curve.instruction[i] = moments[i].instruction;
    curve.tensor[i] = moments[i].tensor;
    curve.change[i] = moments[i].change;
  }
  for (std::size_t c = 0; c < curve.live.size(); ++c) {
    std::vector<std::int64_t>& column = curve.live[c];
    column.resize(n);
    std::int64_t live = begin[c].count();
    for (std::size_t i = 0; i < n; ++i) {
      if (static_cast<std::size_t>(moments[i].category) == c) live += moments[i].change;
      column[i] = live;
    }
  }
  return curve;
}

// "2 of 512 x 4 B (float32) + 2 of 512 x 2 B (bfloat16)". Empty if one of them is unknown, or there are too many.
std::string joined(const std::map<std::string, std::int64_t>& formulas) {
  constexpr std::size_t kMost = 4;
  if (formulas.size() == 1) return formulas.begin()->first;
  if (formulas.size() > kMost || formulas.contains("")) return {};
  std::string text;
  for (const auto& [formula, count] : formulas) {
    if (!text.empty()) text += " + ";
    text += std::to_string(count) + " of " + formula;
  }
  return text;
}

// Walks as predict_memory does, but through every micro-batch.
class CurveWalk {
 public:
  /// `first_timeline`: that of the first step, if it has a schedule of its own.
  CurveWalk(const PreparedPlan& prepared, const TimelineDetail& timeline,
            const std::optional<TimelineDetail>& first_timeline, CachingAllocator& allocator)
      : prepared_(prepared),
        sink_(prepared.ids.total, allocator),
        steady_clock_(prepared, prepared.schedule, timeline) {
    if (first_timeline) first_clock_.emplace(prepared, prepared.first_schedule, *first_timeline);
  }

  void run(StepCurves& curves) {
    MemoryWalk<CurveSink> walk(prepared_.walk_input(), sink_);
    begin(curves, 0);
    walk.initialize();
    const int done = walk.load_first_batch();
    end(curves, RunPhase::Initialization, nullptr);
    begin(curves, done);
    walk.step();
    end(curves, RunPhase::FirstStep, first_clock_ ? &*first_clock_ : &steady_clock_);
    std::optional<StepCurves> second;
    for (int step = 1; step < kNumSteps; ++step) {
      StepCurves one;
      begin(one, 0);
      walk.step();
      end(one, RunPhase::SteadyStep, &steady_clock_);
      const auto height = [](const StepCurves& each) {
        const MemoryCurve& curve = each.phases.front();
        return std::pair(*std::max_element(curve.allocated.begin(), curve.allocated.end()),
                         *std::max_element(curve.reserved.begin(), curve.reserved.end()));
      };
      if (!second || height(one) > height(*second)) second = std::move(one);
    }
    curves.phases.push_back(std::move(second->phases.front()));
    curves.at_begin.push_back(std::move(second->at_begin.front()));
    curves.category.push_back(std::move(second->category.front()));
  }

 private:
  void begin(StepCurves& curves, std::int32_t instructions_done) {
    sink_.begin_phase(instructions_done);
    live_at_begin_ = {};
    std::vector<StepCurves::Held>& held = curves.at_begin.emplace_back();
    for (int id = 0; id < sink_.num_ids(); ++id) {
      if (sink_.bytes_of(id) == 0) continue;
      held.push_back({id, sink_.category_of(id), sink_.bytes_of(id)});
      live_at_begin_[static_cast<std::size_t>(sink_.category_of(id))] += Bytes(sink_.bytes_of(id));
    }
  }

  void end(StepCurves& curves, RunPhase phase, Clock* clock) {
    const std::vector<CurveMoment>& moments = sink_.moments();
    std::vector<Seconds> times =
        clock != nullptr ? clock->times(moments) : std::vector<Seconds>(moments.size(), Seconds(0));
    curves.phases.push_back(curve_of(phase, moments, live_at_begin_, std::move(times)));
    std::vector<MemoryCategory>& category = curves.category.emplace_back();
    for (const CurveMoment& moment : moments) category.push_back(moment.category);
  }

  const PreparedPlan& prepared_;
  CurveSink sink_;
  Clock steady_clock_;
  std::optional<Clock> first_clock_;
  BytesByCategory live_at_begin_{};
};

// [actions] The charted part of a schedule with its times.
std::vector<CurveInstruction> instructions_of_schedule(const PreparedPlan& prepared, const Schedule& schedule,
                                                       const TimelineDetail& timeline) {
  std::vector<CurveInstruction> instructions;
  const std::vector<Instruction>& steps = schedule.instructions;
  for (Action action; action.end < steps.size();) {
    action = action_at(steps, action.end);
    const Instruction& step = steps[action.main];
    const PlaceInStep place = place_of(prepared, step);
    const TimelineDetail::Stretch& stretch = timeline.instructions[instructions.size()];
    CurveInstruction& shown = instructions.emplace_back(CurveInstruction{
        step.kind, step.phase, place.instruction, place.unit, step.micro_batch, stretch.begin, stretch.end});
    for (std::size_t i = action.begin; i < action.end; ++i) {
      if (i != action.main) shown.freed.push_back(steps[i].buffer);
    }
  }
  return instructions;
}

}  // namespace

class CurveNames {
 public:
  CurveNames(PreparedPlan prepared, std::shared_ptr<const void> keeps)
      : prepared_(std::move(prepared)), keeps_(std::move(keeps)) {}
  const PreparedPlan& prepared() const { return prepared_; }

 private:
  PreparedPlan prepared_;
  std::shared_ptr<const void> keeps_;  // Keeps its referents alive.
};

Result<StepCurves> build_curves(PreparedPlan prepared, const MeshCosts& mesh, CachingAllocator& allocator,
                                std::shared_ptr<const void> keeps) {
  FSDP_TRY(const AllocatorSettings settings, parse_allocator_settings(prepared.plan.runtime.allocator_settings));
  allocator.reset({.total = kEndlessMemory}, settings);
  TimelineDetail timeline;
  StepCurves curves;
  curves.step = prepared.timeline(mesh, &timeline).step;
  const std::optional<TimelineDetail> first_timeline = prepared.first_step_timeline(mesh);
  CurveWalk(prepared, timeline, first_timeline, allocator).run(curves);
  for (const DeviceTerm& term : outside_terms(*prepared.cluster, prepared.plan)) curves.context += term.bytes;
  curves.instructions = instructions_of_schedule(prepared, prepared.schedule, timeline);
  if (first_timeline) {
    curves.first_instructions = instructions_of_schedule(prepared, prepared.first_schedule, *first_timeline);
  }
  curves.events = std::move(timeline.events);
  for (StreamEvent& event : curves.events) {
    // The root's own work is named by its op: "cross_entropy".
    if (!event.name.empty() || event.stream != Stream::Compute) continue;
    const std::string& name = curves.instructions[event.instruction].name;
    event.name = name.substr(name.find(' ') + 1);
  }
  curves.names = std::make_shared<CurveNames>(std::move(prepared), std::move(keeps));
  return curves;
}

BytesByCategory MemoryCurve::live_at(std::size_t moment) const {
  BytesByCategory bytes{};
  for (std::size_t c = 0; c < live.size(); ++c) bytes[c] = Bytes(live[c][moment]);
  return bytes;
}

std::size_t MemoryCurve::peak() const {
  return static_cast<std::size_t>(std::max_element(total.begin(), total.end()) - total.begin());
}

const MemoryCurve* StepCurves::find(RunPhase phase) const {
  for (const MemoryCurve& curve : phases) {
    if (curve.phase == phase) return &curve;
  }
  return nullptr;
}

std::size_t StepCurves::peak_phase() const {
  std::size_t best = 0;
  for (std::size_t i = 1; i < phases.size(); ++i) {
    if (phases[i].total[phases[i].peak()] > phases[best].total[phases[best].peak()]) best = i;
  }
  return best;
}

std::vector<LiveTensorDetail> StepCurves::live_tensors_at(std::size_t phase, std::size_t moment) const {
  struct Alive {
    MemoryCategory category = MemoryCategory::Temp;
    std::int64_t bytes = 0;
  };
  std::map<std::int32_t, Alive> alive;
  for (const Held& held : at_begin[phase]) alive[held.tensor] = {held.category, held.bytes};
  const MemoryCurve& curve = phases[phase];
  for (std::size_t i = 1; i <= moment; ++i) {
    if (curve.change[i] > 0) alive[curve.tensor[i]] = {category[phase][i], curve.change[i]};
    if (curve.change[i] < 0) alive.erase(curve.tensor[i]);
  }
  struct Alike {
    LiveTensor tensor;
    std::map<std::string, std::int64_t> formulas;  // With how many tensors have it.
  };
  std::map<std::pair<MemoryCategory, std::string>, Alike> merged;
  TensorFormulas formulas(names->prepared());
  for (const auto& [id, tensor] : alive) {
    Alike& alike = merged[{tensor.category, tensor_name(names->prepared(), id)}];
    ++alike.formulas[formulas.of(id, tensor.bytes)];
    ++alike.tensor.count;
    alike.tensor.bytes += Bytes(tensor.bytes);
  }
  std::vector<LiveTensorDetail> list;
  for (auto& [key, alike] : merged) {
    alike.tensor.category = key.first;
    alike.tensor.name = key.second;
    list.push_back({std::move(alike.tensor), joined(alike.formulas)});
  }
  std::stable_sort(list.begin(), list.end(), [](const LiveTensorDetail& a, const LiveTensorDetail& b) {
    return a.tensor.bytes > b.tensor.bytes;
  });
  return list;
}

std::string StepCurves::tensor_at(std::size_t phase, std::size_t moment) const {
  const std::int32_t id = phases[phase].tensor[moment];
  return id < 0 ? std::string() : name_of(id);
}

std::string StepCurves::name_of(std::int32_t tensor) const {
  return tensor_name(names->prepared(), tensor);
}

std::string StepCurves::formula_of(std::int32_t tensor, std::int64_t bytes) const {
  return tensor_formula(names->prepared(), tensor, bytes);
}

std::string StepCurves::op_at(std::size_t phase, std::size_t moment) const {
  const std::int32_t id = phases[phase].tensor[moment];
  return id < 0 ? std::string() : op_name(names->prepared(), id);
}

const std::vector<CurveInstruction>& StepCurves::instructions_of(std::size_t phase) const {
  const bool is_other = phases[phase].phase == RunPhase::FirstStep && !first_instructions.empty();
  return is_other ? first_instructions : instructions;
}

const CurveInstruction* StepCurves::instruction_at(std::size_t phase, std::size_t moment) const {
  const MemoryCurve& curve = phases[phase];
  assert(moment < curve.size());
  const std::int32_t number = curve.instruction[moment];
  if (number < 0 || curve.phase == RunPhase::Initialization) return nullptr;
  const std::vector<CurveInstruction>& steps = instructions_of(phase);
  assert(static_cast<std::size_t>(number) < steps.size());
  return &steps[static_cast<std::size_t>(number)];
}

PeakMoment StepCurves::moment_at(std::size_t phase, std::size_t moment) const {
  const CurveInstruction* step = instruction_at(phase, moment);
  if (step == nullptr) return {StepPhase::Initialization, "", "", ""};
  const bool runs_ops = step->kind == InstructionKind::Forward || step->kind == InstructionKind::Backward;
  return {step->phase, step->name, step->unit, runs_ops ? op_at(phase, moment) : std::string()};
}

}  // namespace fsdp::simulator
