// Durations of the ops of a call.
//
// On a measured machine, an op takes its measured time: the table of its work (core/plan/workload.h), log-log between
// sizes. Beyond the measured sizes, the time of the nearest one grows as the roofline does between the two: its traffic
// and FLOPs with the size, its kernels' floors not at all,
//
//   t(s) = t(s0) f(s) / f(s0),   f(s0) = floors + (f(s) - floors) s0 / s.
//
// An op without a measurement takes the roofline's time. On a CPU, an op's time is that of the computing thread, which
// issues nothing ahead; on a GPU the host takes the measured time of a launch for each kernel.
//
// Sources: core/cluster/machine_tables.h, simulator/time/roofline.cpp.
//
// Not modeled: recomputed ops build their graph in one piece.

#include <algorithm>

#include "core/cluster/machine_tables.h"
#include "simulator/time/timeline.h"

namespace fsdp::simulator {

namespace {

Seconds time_of(const NamedWork& work, WorkDirection direction, const OpWork::Part& part, const ComputeCosts& costs,
                std::vector<std::string>& not_measured) {
  const Seconds formula = device_time(part, costs);
  const MachineTables* tables = costs.tables();
  if (tables == nullptr) return formula;
  const auto found = look_up(tables->ops, work.work, work.depth, work.size, direction);
  if (!found) {
    // Without a backward there is nothing to measure.
    const bool is_needed = direction == WorkDirection::Forward || part.num_kernels > 0;
    const bool is_new = std::find(not_measured.begin(), not_measured.end(), work.work) == not_measured.end();
    if (is_needed && is_new) not_measured.push_back(work.work);
    return formula;
  }
  if (found->beyond == 1 || formula == Seconds(0)) return found->time;
  const Seconds floors = part.num_kernels * costs.kernel_floor;
  const Seconds at_edge = floors + (formula - floors) / found->beyond;
  return at_edge > Seconds(0) ? found->time * (formula / at_edge) : found->time;
}

// Counts of tokens are integers, which the host reads to size what follows.
std::vector<CallTimes::Exchange> exchanges_of(const std::vector<TapeEvent>& events,
                                              const std::vector<Tape::Range>& of_op) {
  std::vector<CallTimes::Exchange> exchanges;
  for (std::size_t e = 0; e < events.size(); ++e) {
    if (events[e].kind != TapeEvent::Kind::Exchange) continue;
    const auto event = static_cast<std::int32_t>(e);
    const auto range = std::find_if(of_op.begin(), of_op.end(),
                                    [&](const Tape::Range& of) { return of.first <= event && event < of.last; });
    exchanges.push_back({.op = static_cast<int>(range - of_op.begin()),
                         .bytes = Bytes(events[e].bytes),
                         .is_read_by_host = !is_floating_point(static_cast<Dtype>(events[e].storage))});
  }
  return exchanges;
}

}  // namespace

CallTimes call_times(const Tape& tape, const ComputeCosts& costs, const std::vector<NamedWork>& works) {
  CallTimes times;
  for (auto* sums : {&times.forward, &times.backward, &times.cpu_forward, &times.cpu_backward})
    sums->push_back(Seconds(0));
  const NamedWork unknown;
  for (std::size_t o = 0; o < tape.work.size(); ++o) {
    const OpWork& work = tape.work[o];
    const bool is_named = o < works.size() && costs.tables() != nullptr;
    const NamedWork& named = is_named ? works[o] : unknown;
    const Seconds forward = is_named ? time_of(named, WorkDirection::Forward, work.forward, costs, times.not_measured)
                                     : device_time(work.forward, costs);
    const Seconds backward = is_named
                                 ? time_of(named, WorkDirection::Backward, work.backward, costs, times.not_measured)
                                 : device_time(work.backward, costs);
    const Seconds cpu = work.forward.num_kernels * costs.launch;
    times.forward.push_back(times.forward.back() + forward);
    const bool runs_inside = !tape.recomputed_inside.empty() && tape.recomputed_inside[o];
    times.backward.push_back(times.backward.back() + backward + (runs_inside ? forward : Seconds(0)));
    times.cpu_forward.push_back(times.cpu_forward.back() + cpu);
    times.cpu_backward.push_back(times.cpu_backward.back() + work.backward.num_kernels * costs.launch +
                                 (runs_inside ? cpu : Seconds(0)));
    if (tape.recomputed[o]) {
      times.recompute += forward;
      times.cpu_recompute += cpu;
    }
  }
  times.forward_exchanges = exchanges_of(tape.forward, tape.forward_of_op);
  times.recompute_exchanges = exchanges_of(tape.recompute, tape.recompute_of_op);
  times.backward_exchanges = exchanges_of(tape.backward, tape.backward_of_op);
  for (const std::int64_t bytes : tape.on_host) times.inputs_to_host += Bytes(bytes) / costs.host_link;
  return times;
}

}  // namespace fsdp::simulator
