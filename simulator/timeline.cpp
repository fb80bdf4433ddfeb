// The timeline of one step.
//
// The CPU issues instructions in order and runs ahead; each goes to a stream and starts when the stream is free, the
// CPU has issued it, and what it waits for is done:
//
//   copy-in(i)     the root's first one waits for the optimizer; others for the copy-out of the unit whose buffer is
//   dropped all-gather(i)  copy-in(i), and the collective before it: all-gathers and reduce-scatters share one
//   communicator copy-out(i)    on the compute stream, after all-gather(i): waiting here is exposed communication
//   compute(i)     after copy-out(i)
//   reduce(i)      compute waits for reduce-scatter(i + 1), copies gradients in, then reduce-scatter(i) runs beside
//                  compute(i - 1); with HSDP all-reduce(i) follows on its own stream
//   end            compute waits for all reductions
//
// Every start is the maximum of some ends, every end a start plus a duration, so that longer durations never make a
// step shorter. The planner's bounds rest on that.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (streams and events of FSDPCommContext),
// torch 2.11.
//
// Not modelled: slow-down of compute while collectives run (a few per cent), the data loader, garbage collection.

#include "simulator/timeline.h"

#include <algorithm>

namespace fsdp::simulator {

namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

class Timeline {
 public:
  Timeline(const TimelineInput& input, bool with_events)
      : in_(input), with_events_(with_events), gathered_(input.layout->units.size()), gather_slot_(gathered_.size()) {}

  TimelineResult run() {
    for (const Instruction& step : in_.schedule->instructions) run(step);
    result_.step = std::max(compute_, cpu_);
    return std::move(result_);
  }

 private:
  void run(const Instruction& step) {
    switch (step.what) {
      case Do::Unshard:
        return unshard(step);
      case Do::WaitForUnshard:
        return wait(step);
      case Do::Forward:
        return forward(step);
      case Do::Backward:
        return backward(step);
      case Do::ReduceGrads:
        return reduce(step);
      case Do::FinishReduce:
        return finish();
      case Do::ClipGradNorm:
        return on_compute(in_.clip, in_.launch, "clip_grad_norm");
      case Do::OptimizerStep:
        result_.optimizer = in_.optimizer;
        return on_compute(in_.optimizer, in_.launch, "optimizer");
      case Do::LoadInputs:
        last_call_ = -1;
        return;
      case Do::DropAllGather:
      case Do::Reshard:
      case Do::AccumulateGrads:
      case Do::ZeroGrad:
        return;
    }
  }

  const ShardedUnit& unit_of(const Instruction& step) const { return in_.layout->units[at(step.unit)]; }

  void note(std::string_view stream, std::string name, Seconds start, Seconds end) {
    if (with_events_ && end > start) result_.events.push_back({std::string(stream), std::move(name), start, end});
  }

  // Work on the compute stream that the CPU needs `cpu` to issue.
  void on_compute(Seconds device, Seconds cpu, const std::string& name) {
    const Seconds start = std::max(compute_, cpu_);
    cpu_ += cpu;
    compute_ = std::max(start + device, cpu_);
    result_.compute += device;
    note("compute", name, start, compute_);
  }

  void expose(Seconds until, std::size_t slot) {
    if (until <= compute_) return;
    result_.exposed += until - compute_;
    result_.exposed_of_collective[slot] += until - compute_;
    compute_ = until;
  }

  std::size_t new_collective() {
    result_.exposed_of_collective.push_back(Seconds(0));
    return result_.exposed_of_collective.size() - 1;
  }

  void unshard(const Instruction& step) {
    const UnitTimes& times = (*in_.units)[at(step.unit)];
    cpu_ += 2 * in_.launch;
    const Seconds copied = std::max({copy_in_, cpu_, gate_}) + times.copy_in;
    const Seconds start = std::max(communicator_, copied);
    copy_in_ = copied;
    communicator_ = start + (step.smaller_group ? times.small_gather : times.all_gather);
    gathered_[at(step.unit)] = communicator_;
    gather_slot_[at(step.unit)] = new_collective();
    if (with_events_) note("all_gather", unit_of(step).name, start, communicator_);
  }

  void wait(const Instruction& step) {
    expose(gathered_[at(step.unit)], gather_slot_[at(step.unit)]);
    on_compute((*in_.units)[at(step.unit)].copy_out, 2 * in_.launch,
               with_events_ ? "copy-out " + unit_of(step).name : std::string());
    // In forward a buffer is dropped one unit later.
    gate_ = step.phase == StepPhase::Forward ? last_copy_out_ : compute_;
    last_copy_out_ = compute_;
  }

  std::string name_of_call(const Instruction& step) const {
    if (!with_events_) return {};
    const Call& call = in_.index->model->calls[at(step.call)];
    return call.module < 0 ? "outside" : in_.index->model->modules[at(call.module)].name;
  }

  void forward(const Instruction& step) {
    const CallTimes& times = *(*in_.calls)[at(step.call)];
    on_compute(times.forward[at(step.op_end)] - times.forward[at(step.op_begin)],
               times.cpu_forward[at(step.op_end)] - times.cpu_forward[at(step.op_begin)], name_of_call(step));
  }

  void backward(const Instruction& step) {
    const CallTimes& times = *(*in_.calls)[at(step.call)];
    if (step.call != last_call_) on_compute(times.recompute, times.cpu_recompute, "recompute");
    last_call_ = step.call;
    on_compute(times.backward[at(step.op_end)] - times.backward[at(step.op_begin)],
               times.cpu_backward[at(step.op_end)] - times.cpu_backward[at(step.op_begin)], name_of_call(step));
  }

  void reduce(const Instruction& step) {
    const UnitTimes& times = (*in_.units)[at(step.unit)];
    if (has_reduce_) expose(reduced_, reduce_slot_);
    on_compute(times.reduce_copy, 3 * in_.launch, with_events_ ? "copy-in " + unit_of(step).name : std::string());
    const Seconds start = std::max(communicator_, compute_);
    communicator_ = start + times.reduce_scatter;
    reduced_ = communicator_;
    reduce_slot_ = new_collective();
    has_reduce_ = true;
    if (with_events_) note("reduce_scatter", unit_of(step).name, start, communicator_);
    if (in_.layout->mesh.replicate > 1) {
      const Seconds begin = std::max(all_reduce_, reduced_);
      all_reduce_ = begin + times.all_reduce;
      all_reduce_slot_ = new_collective();
      if (with_events_) note("all_reduce", unit_of(step).name, begin, all_reduce_);
    }
    to_host_ = std::max({to_host_, reduced_, all_reduce_}) + times.to_host;
  }

  void finish() {
    if (!has_reduce_) return;
    expose(reduced_, reduce_slot_);
    if (in_.layout->mesh.replicate > 1) expose(all_reduce_, all_reduce_slot_);
    expose(to_host_, reduce_slot_);
    has_reduce_ = false;
  }

  const TimelineInput& in_;
  const bool with_events_;
  TimelineResult result_;
  std::vector<Seconds> gathered_;         // [num units] End of the last all-gather.
  std::vector<std::size_t> gather_slot_;  // [num units]
  Seconds cpu_{0}, compute_{0}, copy_in_{0}, communicator_{0}, all_reduce_{0}, to_host_{0};
  Seconds gate_{0}, last_copy_out_{0}, reduced_{0};
  std::size_t reduce_slot_ = 0;
  std::size_t all_reduce_slot_ = 0;
  bool has_reduce_ = false;
  int last_call_ = -1;
};

}  // namespace

CallTimes call_times(const Tape& tape, const ComputeCosts& costs) {
  CallTimes times;
  for (auto* sums : {&times.forward, &times.backward, &times.cpu_forward, &times.cpu_backward})
    sums->push_back(Seconds(0));
  for (std::size_t o = 0; o < tape.work.size(); ++o) {
    const OpWork& work = tape.work[o];
    const Seconds forward = device_time(work.forward, costs);
    const Seconds cpu = work.forward.num_kernels * costs.launch;
    times.forward.push_back(times.forward.back() + forward);
    times.backward.push_back(times.backward.back() + device_time(work.backward, costs));
    times.cpu_forward.push_back(times.cpu_forward.back() + cpu);
    times.cpu_backward.push_back(times.cpu_backward.back() + work.backward.num_kernels * costs.launch);
    if (tape.recomputed[o]) {
      times.recompute += forward;
      times.cpu_recompute += cpu;
    }
  }
  return times;
}

TimelineResult lay_out(const TimelineInput& input, bool with_events) {
  return Timeline(input, with_events).run();
}

}  // namespace fsdp::simulator
