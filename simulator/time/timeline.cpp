// The timeline of one step.
//
// The CPU issues instructions in order and runs ahead; each goes to a stream and starts when the stream is free, the
// CPU has issued it, and its dependencies are done:
//
// * copy-in(i): the root's first one waits for the optimizer; others for the copy-outs of the freed buffers.
// * all-gather(i): after copy-in(i) and the collective before it, because all-gathers and reduce-scatters share one
//   communicator.
//   If reduce-scatters have one of their own, the two share the wire: the time of a collective beyond its latency
//   follows that of the one before it, and latencies overlap.
// * copy-out(i): on the compute stream, after all-gather(i); this wait is exposed communication.
// * compute(i): after copy-out(i).
// * reduce(i): compute copies gradients in, then reduce-scatter(i) runs in parallel with compute(i - 1); with HSDP
//   all-reduce(i) follows on its own stream.
// * free: compute waits for the reduce-scatter whose input is freed.
// * end: compute waits for all reductions.
// * FSDP1: compute uses the all-gather's output, so nothing is copied out; gradients are flattened on the compute
//   stream, and cast and divided on that of the reduction, for which nothing waits before the end; the CPU waits until
//   the unit before the last one is freed.
// * experts of several ranks: compute waits for each exchange of tokens, and the CPU for the number of tokens, so that
//   it does not run ahead of them.
// * SimpleFSDP: each collective begins when everything before it is done, and compute waits for it.
// * fetch(i) of ZeRO-3: after the collective before it; the first user of one of its parameters waits, and copies out.
// * bucket(i) of DDP: compute copies gradients in, then its all-reduce follows those before it on their one stream; at
//   the end compute waits for each in turn and copies it out.
//
// On a measured CPU (`on_host`) one thread does everything but the collectives: its work beside ops comes before the
// start of an instruction's collective, and after the waits; the copies of units take no further time. While a
// collective runs, its thread has part of the cores: compute gets longer by `compute_shares` of the collective's time,
// which is 0 if compute waits for it anyway.
//
// Every start is the maximum of some ends, every end a start plus a duration, so that longer durations never make a
// step shorter. The planner's bounds rest on that.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (streams and events of FSDPCommContext), torch
// 2.11.
//
// Not modeled: slowdown of compute while collectives run (a few percent), the data loader, garbage collection; the
// first gathers of a backward also wait for the last copy-out of the forward (_root_post_forward); a unit that is
// reduced twice in one backward waits for its first all-reduce.

#include "simulator/time/timeline.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "simulator/time/plan_times.h"
#include "simulator/time/shared_wire.h"
#include "simulator/time/streams.h"

namespace fsdp::simulator {

namespace {

class Timeline : Streams {
 public:
  Timeline(const TimelineInput& input, TimelineDetail* detail)
      : Streams(input, detail),
        gathered_(input.layout->units.size()),
        gather_slot_(gathered_.size()),
        wire_(input.reduces_apart),
        has_accumulated_(gathered_.size(), false),
        reduced_of_(gathered_.size()),
        gather_event_(gathered_.size(), -1),
        copied_out_(gathered_.size() * kNumSlots),
        fetched_(input.schedule->groups.size()) {}

  TimelineResult run() {
    const std::vector<Instruction>& steps = in_.schedule->instructions;
    for (std::size_t begin = 0; begin < steps.size();) {
      const Action action = action_at(steps, begin);
      main_ = &steps[action.main];
      if (detail_ != nullptr) detail_->instructions.push_back({compute_, compute_, Seconds(0)});
      const bool waits = waits_first(main_->kind);
      if (!waits) work_on_host(action.main);
      for (; begin < action.end; ++begin) run(steps[begin]);
      if (waits) work_on_host(action.main);
      if (detail_ != nullptr) detail_->instructions.back().end = compute_;
    }
    result_.step = std::max(compute_, cpu_);
    return std::move(result_);
  }

 private:
  static bool waits_first(InstructionKind kind) {
    return kind == InstructionKind::WaitForUnshard || kind == InstructionKind::FinishReduce;
  }

  void run(const Instruction& step) {
    switch (step.kind) {
      case InstructionKind::Unshard:
        return unshard(step);
      case InstructionKind::WaitForUnshard:
        return wait(step);
      case InstructionKind::Forward:
        return forward(step);
      case InstructionKind::Backward:
        return backward(step);
      case InstructionKind::ReduceGrads:
        return reduce(step);
      case InstructionKind::AccumulateGrads:
        return accumulate(step);
      case InstructionKind::FinishReduce:
        return finish();
      case InstructionKind::SyncBuffers:
        return sync_buffers();
      case InstructionKind::ReduceBucket:
        return reduce_bucket(step);
      case InstructionKind::ReduceUsedMap:
        // A few bytes for each parameter, after the last bucket.
        new_collective();
        communicator_ += in_.used_map;
        return;
      case InstructionKind::Free:
        return free(step);
      case InstructionKind::CheckOverflow:
        return on_compute(in_.zero.check_overflow, in_.launch, "look for overflows");
      case InstructionKind::GatherParameters:
        return in_.layout->gathers_each_read ? gather_read(step) : gather_parameters();
      case InstructionKind::ClipGradNorm:
        return on_compute(in_.clip, in_.launch, "clip_grad_norm");
      case InstructionKind::OptimizerStep:
        return step_optimizer(step.part);
      case InstructionKind::LoadInputs:
        last_call_ = -1;
        return;
      case InstructionKind::Reshard:
        if (in_.limits_gathers) freed_.push_back(compute_);
        return;
      case InstructionKind::LimitGathers:
        return pass_unshard(step);
      case InstructionKind::FlattenGrads:
        return on_compute((*in_.units)[step.unit].flatten, 2 * in_.launch,
                          has_names() ? "flatten " + unit_of(step).name : std::string());
      case InstructionKind::FetchParameters:
        return fetch(step);
      case InstructionKind::WaitForParameters:
        return wait_for_fetch(step);
      case InstructionKind::RunOther:
        return run_other((*in_.others)[static_cast<std::size_t>(step.part)]);
      case InstructionKind::LeaveRoot:
      case InstructionKind::PrepareReduce:
      case InstructionKind::DropFetched:
      case InstructionKind::ReleaseParameters:
      case InstructionKind::ZeroGrad:
        return;
    }
  }

  // The forward of another model, with the waits for its own gathers.
  void run_other(const OtherTime& other) {
    on_compute(other.compute, in_.launch, other.name);
    const Seconds waits = std::max(Seconds(0), other.step - other.compute);
    result_.exposed += std::min(waits, other.exposed);
    compute_ += waits;
  }

  // Each of several optimizers takes its share of the elements.
  void step_optimizer(int optimizer) {
    Seconds time = in_.optimizer;
    if (optimizer >= 0) {
      std::int64_t own = 0;
      std::int64_t all = 0;
      for (const ShardedUnit& unit : in_.layout->units) {
        const bool is_own = optimizer_of(*in_.index->model, unit.modules.front()) == optimizer;
        all += unit.reduced_shard_elements;
        own += is_own ? unit.reduced_shard_elements : 0;
      }
      time = all > 0 ? in_.optimizer * (static_cast<double>(own) / static_cast<double>(all)) : Seconds(0);
    }
    result_.optimizer += time;
    on_compute(time, in_.launch, "optimizer");
  }

  // Copy of a gather's output, for the next owner of its memory.
  struct CopyOut {
    Seconds end{0};
    int event = -1;
  };
  CopyOut& copied_out(const Instruction& step) { return copied_out_[step.unit * kNumSlots + step.slot]; }

  void unshard(const Instruction& step) {
    const UnitTimes& times = (*in_.units)[step.unit];
    limit_gathers();
    cpu_ += 2 * in_.launch;
    const Seconds copied = std::max({copy_in_, cpu_, gate_.end}) + times.copy_in;
    const int copy = record(Stream::Copy, has_names() ? "copy-in " + unit_of(step).name : std::string(),
                            copied - times.copy_in, copied, {gate_.event});
    copy_in_ = copied;
    const Seconds duration = gathers_smaller_shard(*in_.layout, step) ? times.small_gather : times.all_gather;
    Seconds& gathers = in_.reduces_apart ? gathers_ : communicator_;
    wire_.occupy(gathers, copied, duration, times.latency);
    const Seconds start = gathers - duration;
    gathered_[step.unit] = gathers;
    gather_slot_[step.unit] = new_collective();
    const int event = record(Stream::AllGather, has_names() ? unit_of(step).name : std::string(), start, gathers,
                             {copy, last_reduce_event_});
    carry(event, gather_payload(step));
    gather_event_[step.unit] = event;
    last_gather_event_ = event;
    last_reduce_event_ = -1;
    share_cores(CollectiveKind::AllGather, duration);
  }

  // FSDP1's rate limiter: the CPU waits until the one before the last has been freed.
  void limit_gathers() {
    if (freed_.size() < 2) return;
    cpu_ = std::max(cpu_, freed_.front());
    freed_.pop_front();
  }

  // For a unit that is still gathered. With CPU offload its shard is copied anyway, one unit ahead.
  void pass_unshard(const Instruction& step) {
    if (in_.limits_gathers) limit_gathers();
    if (!in_.copies_kept) return;
    wait_for_event(passed_.event);
    compute_ = std::max(compute_, passed_.end);
    const Seconds time = (*in_.units)[step.unit].copy_in;
    const Seconds start = std::max(copy_in_, cpu_);
    copy_in_ = start + time;
    const int event = record(Stream::Copy, has_names() ? "copy-in " + unit_of(step).name : std::string(), start,
                             copy_in_, {passed_.event});
    passed_ = {copy_in_, event};
  }

  void wait(const Instruction& step) {
    if (gate_after_root_) gate_ = *std::exchange(gate_after_root_, std::nullopt);
    expose(gathered_[step.unit], gather_slot_[step.unit], gather_event_[step.unit]);
    on_compute((*in_.units)[step.unit].copy_out, 2 * in_.launch,
               has_names() ? "copy-out " + unit_of(step).name : std::string());
    copied_out(step) = {compute_, compute_event_};
  }

  void free(const Instruction& step) {
    if (in_.layout->has_flat_units()) return;
    if (step.buffer == BufferKind::ReduceInput) {
      const Reduced& reduced = reduced_of_[step.unit];
      return expose(reduced.end, reduced.slot, reduced.event);
    }
    if (step.buffer != BufferKind::AllGatherOutput) return;
    // Its memory goes to gathers after the copy-out.
    if (main_->kind == InstructionKind::WaitForUnshard) gate_ = copied_out(step);
    if (main_->kind == InstructionKind::LeaveRoot) gate_after_root_ = copied_out(step);
  }

  StreamPayload gather_payload(const Instruction& step) const {
    const ShardedUnit& unit = unit_of(step);
    return payload(CollectiveKind::AllGather, unit.mixed_gather ? Dtype::UInt8 : unit.param_dtype,
                   unit.gather_shard_bytes * unit.shards, step.ranks);
  }

  StreamPayload reduce_payload(const Instruction& step, CollectiveKind kind) const {
    const ShardedUnit& unit = unit_of(step);
    const bool scatters = kind == CollectiveKind::ReduceScatter;
    const ReducedElements elements = elements_of_reduction(*in_.layout, step);
    return payload(kind, unit.reduce_dtype, size_of(unit.reduce_dtype) * (scatters ? elements.full : elements.shard),
                   scatters ? step.ranks : step.copies);
  }

  std::string_view name_of_call(const Instruction& step) const {
    const Call& call = in_.index->model->calls[step.call];
    return call.module < 0 ? "loss" : std::string_view(in_.index->model->modules[call.module].name);
  }

  void forward(const Instruction& step) {
    const CallTimes& times = *(*in_.calls)[step.call];
    if (step.op_begin == 0 && times.inputs_to_host > Seconds(0)) {
      on_compute(times.inputs_to_host, in_.launch, "inputs to the host");
      cpu_ = std::max(cpu_, compute_);
    }
    on_compute(times.forward[step.op_end] - times.forward[step.op_begin],
               times.cpu_forward[step.op_end] - times.cpu_forward[step.op_begin], name_of_call(step));
    exchange(times.forward_exchanges, step.op_begin, step.op_end);
  }

  // Compute waits for tokens of other ranks, and the host for the numbers of them.
  void exchange(const std::vector<CallTimes::Exchange>& all, int op_begin, int op_end) {
    for (const CallTimes::Exchange& one : all) {
      if (one.op < op_begin || one.op >= op_end) continue;
      const std::size_t slot = new_collective();
      cpu_ += in_.launch;
      const Seconds start = std::max(compute_, cpu_);
      const Seconds end = start + collective_time(*in_.experts, CollectiveKind::AllToAll, one.bytes);
      expose(end, slot, record(Stream::Compute, "exchange of tokens", start, end, {compute_event_}));
      if (one.is_read_by_host) cpu_ = std::max(cpu_, compute_);
    }
  }

  void backward(const Instruction& step) {
    const CallTimes& times = *(*in_.calls)[step.call];
    const Seconds before = compute_;
    if (step.call != last_call_) on_compute(times.inputs_to_host + times.recompute, times.cpu_recompute, "recompute");
    if (step.call != last_call_) exchange(times.recompute_exchanges, 0, std::numeric_limits<int>::max());
    if (detail_ != nullptr) detail_->instructions.back().recompute = compute_ - before;
    last_call_ = step.call;
    on_compute(times.backward[step.op_end] - times.backward[step.op_begin],
               times.cpu_backward[step.op_end] - times.cpu_backward[step.op_begin], name_of_call(step));
    exchange(times.backward_exchanges, step.op_begin, step.op_end);
  }

  void accumulate(const Instruction& step) {
    const UnitTimes& times = (*in_.units)[step.unit];
    const Seconds time = has_accumulated_[step.unit] ? times.add_gradients : times.keep_gradients;
    has_accumulated_[step.unit] = true;
    if (time == Seconds(0)) return;
    on_compute(time, times.num_gradients * in_.launch,
               has_names() ? "accumulate " + unit_of(step).name : std::string());
  }

  bool sums_copies(const Instruction& step) const { return in_.layout->mesh.size(step.copies) > 1; }

  void reduce(const Instruction& step) {
    const UnitTimes& times = (*in_.units)[index_of_times(*in_.layout, step)];
    const std::string name = has_names() ? unit_of(step).name : std::string();
    if (has_accumulated_[step.unit]) accumulate(step);
    has_accumulated_[step.unit] = false;
    on_compute(times.reduce_copy, 3 * in_.launch, has_names() ? "copy-in " + name : std::string());
    wire_.occupy(communicator_, compute_ + times.divide, times.reduce_scatter, times.latency);
    const Seconds start = communicator_ - times.reduce_scatter;
    reduced_ = communicator_;
    reduce_slot_ = new_collective();
    has_reduce_ = true;
    reduce_event_ = record(Stream::ReduceScatter, name, start, communicator_, {compute_event_, last_gather_event_});
    carry(reduce_event_, reduce_payload(step, CollectiveKind::ReduceScatter));
    last_gather_event_ = -1;
    last_reduce_event_ = reduce_event_;
    reduced_of_[step.unit] = {reduced_, reduce_slot_, reduce_event_, step.unit};
    if (sums_copies(step)) {
      const Seconds begin = std::max(all_reduce_, reduced_);
      all_reduce_ = begin + times.all_reduce;
      all_reduce_slot_ = new_collective();
      all_reduce_event_ = record(Stream::AllReduce, name, begin, all_reduce_, {reduce_event_});
      carry(all_reduce_event_, reduce_payload(step, CollectiveKind::AllReduce));
    }
    const Seconds ready = std::max({to_host_, reduced_, all_reduce_});
    to_host_ = ready + times.to_host;
    const int sent = record(Stream::ToHost, has_names() ? "gradients of " + name : std::string(), ready, to_host_,
                            {all_reduce_event_ >= 0 ? all_reduce_event_ : reduce_event_});
    if (sent >= 0) to_host_event_ = sent;
    share_cores(CollectiveKind::ReduceScatter, times.reduce_scatter);
    if (sums_copies(step)) share_cores(CollectiveKind::AllReduce, times.all_reduce);
    // The backward of only some modules of a unit waits for what it reduces (FSDPParamGroup.post_backward).
    if (step.reduces_loss()) expose(reduced_, reduce_slot_, reduce_event_);
  }

  // The forward reads them, so it waits.
  void sync_buffers() {
    const std::size_t slot = new_collective();
    cpu_ += in_.launch;
    const Seconds start = std::max({communicator_, compute_, cpu_});
    communicator_ = start + in_.sync_buffers;
    expose(communicator_, slot, record(Stream::AllReduce, "buffers", start, communicator_, {compute_event_}));
  }

  // The update is over when all ranks have it.
  void gather_parameters() {
    const std::size_t slot = new_collective();
    cpu_ += in_.launch;
    const Seconds start = std::max({communicator_, compute_, cpu_});
    communicator_ = start + in_.zero.gather_parameters;
    expose(communicator_, slot, record(Stream::AllGather, "parameters", start, communicator_, {compute_event_}));
  }

  // SimpleFSDP: a collective on the latest result, for which compute waits.
  void wait_for(Stream stream, const std::string& name, Seconds duration, const StreamPayload& payload) {
    const std::size_t slot = new_collective();
    cpu_ += in_.launch;
    const Seconds start = std::max(compute_, cpu_);
    const int event = record(stream, name, start, start + duration, {compute_event_});
    carry(event, payload);
    expose(start + duration, slot, event);
  }

  void gather_read(const Instruction& step) {
    const FetchTimes& times = (*in_.fetches)[step.group];
    wait_for(Stream::AllGather, name_of_group(step), times.all_gather,
             payload(CollectiveKind::AllGather, times.dtype, times.payload, step.ranks));
  }

  void reduce_read(const Instruction& step) {
    const GradientBucket& bucket = in_.layout->bucket(step.bucket);
    const BucketTimes& times = (*in_.buckets)[step.bucket];
    const Parameter& parameter = in_.index->model->parameters[bucket.parameters.front()];
    const std::string name = has_names() ? parameter.name : std::string();
    if (!step.copies.empty()) {
      wait_for(Stream::AllReduce, name, times.all_reduce,
               payload(CollectiveKind::AllReduce, bucket.dtype, size_of(bucket.dtype) * num_elements(parameter.shape),
                       step.copies));
    }
    if (step.ranks.empty()) return;
    wait_for(Stream::ReduceScatter, name, times.reduce_scatter,
             payload(CollectiveKind::ReduceScatter, bucket.dtype, bucket.bytes(), step.ranks));
  }

  // A gather of ZeRO-3: only the rank's own part is copied in.
  void fetch(const Instruction& step) {
    const FetchTimes& times = (*in_.fetches)[step.group];
    cpu_ += 2 * in_.launch;
    const Seconds start = std::max(communicator_, cpu_);
    communicator_ = start + times.all_gather + times.scales;
    Fetched& fetched = fetched_[step.group];
    fetched = {communicator_, new_collective(),
               record(Stream::AllGather, name_of_group(step), start, communicator_, {last_reduce_event_})};
    carry(fetched.event, payload(CollectiveKind::AllGather, times.dtype, times.payload, step.ranks));
  }

  void wait_for_fetch(const Instruction& step) {
    const Fetched& fetched = fetched_[step.group];
    expose(fetched.end, fetched.slot, fetched.event);
    const FetchTimes& times = (*in_.fetches)[step.group];
    if (times.copy_out == Seconds(0)) return;
    on_compute(times.copy_out, times.num_kernels * in_.launch, "copy-out " + name_of_group(step));
  }

  // "q_proj.weight and 3 more"
  std::string name_of_group(const Instruction& step) const {
    if (!has_names()) return {};
    const std::vector<int>& parameters = in_.schedule->groups[step.group].parameters;
    std::string name = in_.index->model->parameters[parameters.front()].name;
    if (parameters.size() > 1) name += " and " + std::to_string(parameters.size() - 1) + " more";
    return name;
  }

  void reduce_bucket(const Instruction& step) {
    if (in_.layout->gathers_each_read) return reduce_read(step);
    // ZeRO-1 and 2: the backward goes on when the bucket before has been reduced, or this one.
    const bool scatters = in_.layout->gathers_by_module();
    if (in_.layout->updates_parts() && !scatters) finish_buckets();
    const BucketTimes& times = (*in_.buckets)[step.bucket];
    const std::string name = has_names() ? "bucket " + std::to_string(step.bucket) : std::string();
    on_compute(times.copy, times.num_gradients * in_.launch, has_names() ? "copy into " + name : std::string());
    const Seconds start = std::max(communicator_, compute_);
    communicator_ = start + times.all_reduce;
    buckets_.push_back(
        {communicator_, new_collective(),
         record(scatters ? Stream::ReduceScatter : Stream::AllReduce, name, start, communicator_, {compute_event_}),
         step.bucket});
    const GradientBucket& bucket = in_.layout->bucket(step.bucket);
    carry(buckets_.back().event, payload(scatters ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                                         bucket.dtype, bucket.bytes(), step.ranks));
    if (!in_.overlaps_buckets) finish_buckets();
  }

  void finish_buckets() {
    for (const Reduced& bucket : buckets_) {
      const BucketTimes& times = (*in_.buckets)[bucket.number];
      expose(bucket.end, bucket.slot, bucket.event);
      if (times.copy_back == Seconds(0)) continue;
      on_compute(times.copy_back, times.num_gradients * in_.launch, "copy out of buckets");
    }
    buckets_.clear();
  }

  void finish() {
    finish_buckets();
    if (!has_reduce_) return;
    if (in_.layout->has_flat_units()) expose(reduced_, reduce_slot_, reduce_event_);
    if (in_.layout->mesh.dp_replicate() > 1) expose(all_reduce_, all_reduce_slot_, all_reduce_event_);
    expose(to_host_, reduce_slot_, to_host_event_);
    has_reduce_ = false;
  }

  std::deque<Seconds> freed_;             // Freed units that the CPU has not waited for, with its limit of gathers.
  std::vector<Seconds> gathered_;         // [num units] End of the last all-gather.
  std::vector<std::size_t> gather_slot_;  // [num units]
  Seconds copy_in_{0}, communicator_{0}, all_reduce_{0}, to_host_{0};
  Seconds gathers_{0};  // Time of the gathers' communicator, if reductions run apart.
  SharedWire wire_;
  Seconds reduced_{0};
  std::size_t reduce_slot_ = 0;
  std::size_t all_reduce_slot_ = 0;
  bool has_reduce_ = false;
  std::vector<bool> has_accumulated_;  // [num units] True if unsharded gradients of earlier micro-batches are kept.
  int last_call_ = -1;
  struct Reduced {
    Seconds end{0};
    std::size_t slot = 0;
    int event = -1;
    int number = 0;  // Number of the bucket.
  };
  std::vector<Reduced> buckets_;     // Those of this backward so far.
  std::vector<Reduced> reduced_of_;  // [num units] The last reduction of each.
  // Indices of the detail's events; -1 for none, or for one that took no time.
  std::vector<int> gather_event_;  // [num units]
  int reduce_event_ = -1, all_reduce_event_ = -1, to_host_event_ = -1;
  CopyOut passed_;                          // The last copy for an already gathered unit.
  CopyOut gate_;                            // Copies into the next gather come after it,
  std::optional<CopyOut> gate_after_root_;  // and after this one from the next copy-out on.
  std::vector<CopyOut> copied_out_;         // [num units, slots]
  struct Fetched {
    Seconds end{0};
    std::size_t slot = 0;
    int event = -1;
  };
  std::vector<Fetched> fetched_;                         // [groups]
  int last_gather_event_ = -1, last_reduce_event_ = -1;  // The latest event on the communicator, if it was of that
                                                         // kind.
};

}  // namespace

TimelineResult lay_out(const TimelineInput& input, TimelineDetail* detail) {
  return Timeline(input, detail).run();
}

}  // namespace fsdp::simulator
