// The traffic of a plan: one entry per collective, in issue order, read off the schedule.
//
// Payload is the size of the full tensor (all-gather output, reduce-scatter input, all-reduce buffer), padding
// included, as the collective API is called. Sent bytes are those of a ring; a ring over several nodes crosses the
// network once per node and direction, so the worst-placed rank sends all of its bytes over the network.
//
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, torch/nn/utils/clip_grad.py, torch 2.11.

#include "simulator/report_traffic.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/frameworks/ddp/ddp_buckets.h"
#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/frameworks/zero/zero_partition.h"
#include "core/frameworks/zero/zero_quantization.h"
#include "core/plan/parameter_part.h"
#include "simulator/nccl/collective_cost.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/time/plan_times.h"

namespace fsdp::simulator {

namespace {

class TrafficCounter {
 public:
  TrafficCounter(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& time,
                 const LiveAtCollectives& live)
      : prepared_(prepared), mesh_(mesh), time_(time), live_(live), gathers_less_later_(gathers_less_later(prepared)) {}

  TrafficReport count() {
    if (precomputes_scales(prepared_.plan)) reduce_scales();
    for (const Instruction& step : prepared_.schedule.instructions) {
      if (layout().mesh.ep > 1) exchange_tokens(step);
      if (step.kind == InstructionKind::Unshard) gather(step);
      if (step.kind == InstructionKind::ReduceGrads) reduce(step);
      if (step.kind == InstructionKind::SyncBuffers) broadcast(step);
      if (step.kind == InstructionKind::ReduceBucket) reduce_any_bucket(step);
      if (step.kind == InstructionKind::CheckOverflow) agree(step, Dtype::UInt8, ReduceOp::Max);
      if (step.kind == InstructionKind::GatherParameters) gather_any_parameters(step);
      if (step.kind == InstructionKind::FetchParameters) fetch(step);
      if (step.kind == InstructionKind::ReduceUsedMap) reduce_used_map(step);
      if (step.kind == InstructionKind::ClipGradNorm) clip(step);
      if (step.kind == InstructionKind::OptimizerStep && prepared_.muon) step_muon(step);
      if (step.kind == InstructionKind::RunOther) run_other(step);
    }
    return std::move(report_);
  }

 private:
  const ShardedUnit& unit_of(const Instruction& step) const { return layout().units[step.unit]; }

  Seconds next_exposed() {
    const std::size_t slot = next_slot_++;
    return slot < time_.exposed_of_collective.size() ? time_.exposed_of_collective[slot] : Seconds(0);
  }

  const Layout& layout() const { return prepared_.layout; }

  // _get_gradient_divide_factors: NCCL divides, except for dtypes that could overflow before it does.
  ReduceOp reduce_op(const ShardedUnit& unit) const {
    const Dtype dtype = unit.reduce_dtype;
    // Gradients of experts are summed, and divided afterwards.
    if (layout().has_flat_units() || unit.of_experts) return ReduceOp::Sum;
    const bool may_overflow = dtype != Dtype::Float32 && dtype != Dtype::BFloat16;
    return may_overflow || layout().mesh.world_size() == 1 ? ReduceOp::Sum : ReduceOp::Avg;
  }

  // Another model's gathers, of its own units.
  void run_other(const Instruction& step) {
    const PreparedOther& other = prepared_.others->models[static_cast<std::size_t>(step.part)];
    TrafficCounter counter(*other.forward, *other.mesh, other.time, live_);
    counter.next_call_ = next_call_;
    counter.gathers_less_later_ = gathers_less_later_;
    const TrafficReport of_other = counter.count();
    next_call_ = counter.next_call_;
    for (std::size_t kind = 0; kind < of_other.totals.size(); ++kind) {
      report_.totals[kind].count += of_other.totals[kind].count;
      report_.totals[kind].payload += of_other.totals[kind].payload;
      report_.totals[kind].sent_per_rank += of_other.totals[kind].sent_per_rank;
    }
    report_.sent_inside_node += of_other.sent_inside_node;
    report_.sent_between_nodes += of_other.sent_between_nodes;
    for (Collective collective : of_other.collectives) {
      collective.unit = other.name + ": " + (collective.unit.empty() ? "root" : collective.unit);
      collective.micro_batch = step.micro_batch;
      report_.collectives.push_back(std::move(collective));
    }
  }

  // Whether another model gathers more in the first step, so that its collectives are not those of a steady one.
  static bool gathers_less_later(const PreparedPlan& prepared) {
    if (prepared.others == nullptr) return false;
    const std::vector<OtherWalk>& walks = prepared.others->walks;
    return std::any_of(walks.begin(), walks.end(), [](const OtherWalk& walk) {
      return walk.first->instructions.size() != walk.steady->instructions.size();
    });
  }

  // The maxima of weights that are cast to 8 bits, before the gather.
  void reduce_maxima(const Instruction& step) {
    if (precomputes_scales(prepared_.plan)) return;
    for (const ShardedParameter& p : unit_of(step).parameters) {
      if (!p.in_float8) continue;
      send(step, step.ranks,
           {.kind = CollectiveKind::AllReduce,
            .unit = unit_of(step).name,
            .dtype = layout().parameter_dtype[p.parameter],
            .elements = 1,
            .reduce_op = ReduceOp::Max,
            .micro_batch = step.micro_batch});
    }
  }

  // The scales of all of them at once, after the update: a step begins with those of the last one, as torchtitan's
  // optimizers compute them in a hook of their step.
  void reduce_scales() {
    std::int64_t weights = 0;
    Dtype dtype = Dtype::Float32;
    for (const ShardedUnit& unit : layout().units) {
      weights += unit.num_in_float8();
      if (unit.num_in_float8() > 0) dtype = unit.original_dtype;
    }
    send({.kind = InstructionKind::OptimizerStep, .phase = StepPhase::Optimizer},
         layout().mesh.group_along(MeshAxis::DpShard),
         {.kind = CollectiveKind::AllReduce, .dtype = dtype, .elements = weights, .reduce_op = ReduceOp::Max});
  }

  void gather(const Instruction& step) {
    reduce_maxima(step);
    const ShardedUnit& unit = unit_of(step);
    const Bytes payload = unit.gather_shard_bytes * unit.shards;
    const Dtype dtype = unit.mixed_gather ? Dtype::UInt8 : unit.param_dtype;
    const UnitTimes& times = prepared_.unit_times[step.unit];
    add(step, step.ranks,
        {.kind = CollectiveKind::AllGather,
         .unit = unit.name,
         .dtype = dtype,
         .elements = payload.count() / size_of(dtype).count(),
         .micro_batch = step.micro_batch,
         .time = gathers_smaller_shard(layout(), step) ? times.small_gather : times.all_gather,
         .exposed = next_exposed()});
  }

  void reduce(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    const ReducedElements elements = elements_of_reduction(layout(), step);
    const UnitTimes& times = prepared_.unit_times[index_of_times(layout(), step)];
    Collective collective{.kind = CollectiveKind::ReduceScatter,
                          .unit = unit.name,
                          .dtype = unit.reduce_dtype,
                          .elements = elements.full,
                          .reduce_op = reduce_op(unit),
                          .micro_batch = step.micro_batch,
                          .time = times.reduce_scatter,
                          .exposed = next_exposed()};
    // A flat unit of one rank has no reduce-scatter.
    const bool is_whole = layout().has_flat_units() && layout().mesh.dp_shard() == 1;
    if (!is_whole) add(step, step.ranks, collective);
    if (step.copies.empty()) return;
    collective.kind = CollectiveKind::AllReduce;
    collective.elements = elements.shard;
    collective.time = times.all_reduce;
    collective.exposed = layout().mesh.size(step.copies) > 1 ? next_exposed() : Seconds(0);
    add(step, step.copies, collective);
  }

  void broadcast(const Instruction& step) {
    std::map<Dtype, std::int64_t> elements;
    for (const Buffer& buffer : prepared_.index->model->buffers) {
      if (buffer.registered) elements[buffer.dtype] += num_elements(buffer.shape);
    }
    Seconds exposed = next_exposed();
    for (const auto& [dtype, count] : elements) {
      send(step, step.ranks,
           {.kind = CollectiveKind::Broadcast, .dtype = dtype, .elements = count, .micro_batch = step.micro_batch},
           std::exchange(exposed, Seconds(0)));
    }
  }

  void reduce_bucket(const Instruction& step) {
    const GradientBucket& bucket = layout().bucket(step.bucket);
    send(step, step.ranks, sum_of(step, bucket.dtype, bucket.elements), next_exposed());
  }

  // A sum over ranks in a micro-batch.
  static Collective sum_of(const Instruction& step, Dtype dtype, std::int64_t elements,
                           CollectiveKind kind = CollectiveKind::AllReduce) {
    return {.kind = kind,
            .dtype = dtype,
            .elements = elements,
            .reduce_op = ReduceOp::Sum,
            .micro_batch = step.micro_batch};
  }

  void gather_any_parameters(const Instruction& step) {
    if (layout().gathers_by_module()) return gather_persistent(step);
    layout().gathers_each_read ? gather_read(step) : gather_parts(step);
  }

  // SimpleFSDP gathers a parameter for one read.
  void gather_read(const Instruction& step) {
    const int p = group_of(step).front();
    const Dtype dtype = read_dtype(prepared_.plan.mixed_precision, layout().parameter_dtype[p]);
    const Shape& shape = prepared_.index->model->parameters[p].shape;
    const std::int64_t elements = part_of(shape, CutBy::Rows, layout().mesh.size(step.ranks)).full;
    send(step, step.ranks, sum_of(step, dtype, elements, CollectiveKind::AllGather), next_exposed());
  }

  // It sums the gradient of that read over copies, whole, before it shards it.
  void reduce_read(const Instruction& step) {
    const GradientBucket& bucket = layout().bucket(step.bucket);
    if (!step.copies.empty()) {
      const std::int64_t elements = num_elements(prepared_.index->model->parameters[bucket.parameters.front()].shape);
      send(step, step.copies, sum_of(step, bucket.dtype, elements), next_exposed());
    }
    if (step.ranks.empty()) return;
    send(step, step.ranks, sum_of(step, bucket.dtype, bucket.elements, CollectiveKind::ReduceScatter), next_exposed());
  }

  void reduce_any_bucket(const Instruction& step) {
    if (layout().gathers_each_read) return reduce_read(step);
    if (layout().gathers_by_module()) return scatter_bucket(step);
    layout().updates_parts() ? reduce_slices(step) : reduce_bucket(step);
  }

  const std::vector<int>& group_of(const Instruction& step) const {
    return prepared_.schedule.groups[step.group].parameters;
  }
  std::int64_t padded(int parameter) const { return padded_elements(parameter, layout(), *prepared_.index->model); }

  void fetch(const Instruction& step) {
    std::int64_t elements = 0;
    for (const int p : group_of(step)) elements += padded(p);
    const bool is_quantized = prepared_.plan.zero.quantized_weights;
    const Dtype dtype = is_quantized ? Dtype::Int8 : layout().parameter_dtype[group_of(step).front()];
    const FetchTimes& times = prepared_.fetch_times[static_cast<std::size_t>(step.group)];
    Collective gather = sum_of(step, dtype, elements, CollectiveKind::AllGather);
    gather.time = times.all_gather;
    gather.exposed = next_exposed();
    add(step, step.ranks, gather);
    if (!is_quantized) return;
    Collective scales = sum_of(step, Dtype::Float32, times.num_scales, CollectiveKind::AllGather);
    scales.time = times.scales;
    add(step, step.ranks, scales);
  }

  void gather_persistent(const Instruction& step) {
    Seconds exposed = next_exposed();
    for (const int p : group_of(step)) {
      send(step, step.ranks, sum_of(step, layout().parameter_dtype[p], padded(p), CollectiveKind::AllGather),
           std::exchange(exposed, Seconds(0)));
    }
  }

  // The gradients of a bucket with qgZ: each a reduce-scatter, or four exchanges.
  void exchange_bucket(const Instruction& step) {
    const std::int64_t ranks = layout().zero.ranks;
    const std::int64_t in_node = prepared_.cluster->gpus_per_node;
    const RankGroup node = ranks_of_node(*prepared_.cluster);
    const RankGroup nodes = ranks_across_nodes(*prepared_.cluster, ranks);
    const CollectiveCost across = collective_cost(group_shape(*prepared_.cluster, layout().mesh, nodes));
    Seconds exposed = next_exposed();
    const auto exchange = [&](Dtype dtype, std::int64_t elements, const RankGroup& group, const CollectiveCost& cost) {
      Collective collective = sum_of(step, dtype, elements, CollectiveKind::AllToAll);
      collective.time = collective_time(cost, CollectiveKind::AllToAll, size_of(dtype) * elements);
      collective.exposed = std::exchange(exposed, Seconds(0));
      add(step, group, collective);
    };
    const GradientBucket& bucket = layout().bucket(step.bucket);
    for (const GradientExchange& gradient : exchanges_of(bucket, layout(), *prepared_.index->model)) {
      if (gradient.groups == 0) {
        send(step, step.ranks, sum_of(step, bucket.dtype, gradient.elements, CollectiveKind::ReduceScatter),
             std::exchange(exposed, Seconds(0)));
        continue;
      }
      exchange(Dtype::Int8, gradient.elements / 2, node, mesh_.node);
      exchange(Dtype::Float32, gradient.groups, node, mesh_.node);
      exchange(Dtype::Int8, gradient.elements / 2 / in_node, nodes, across);
      exchange(Dtype::Float32, gradient.groups / in_node, nodes, across);
    }
  }

  void scatter_bucket(const Instruction& step) {
    if (exchanges_gradients(prepared_.plan, prepared_.cluster->gpus_per_node)) return exchange_bucket(step);
    const GradientBucket& bucket = layout().bucket(step.bucket);
    const std::int64_t elements = padded_elements(bucket, layout(), *prepared_.index->model);
    send(step, step.ranks, sum_of(step, bucket.dtype, elements, CollectiveKind::ReduceScatter), next_exposed());
  }

  // ZeRO's all-reduces of its buffer.
  void reduce_slices(const Instruction& step) {
    const GradientBucket& bucket = layout().bucket(step.bucket);
    Seconds exposed = next_exposed();
    for (const ZeroReduction& sent : reductions_of(bucket, layout(), prepared_.plan)) {
      send(step, step.ranks, sum_of(step, bucket.dtype, sent.elements), std::exchange(exposed, Seconds(0)));
    }
  }

  // An all-reduce of one number.
  void agree(const Instruction& step, Dtype dtype, ReduceOp op) {
    send(step, step.ranks, {.kind = CollectiveKind::AllReduce, .dtype = dtype, .elements = 1, .reduce_op = op});
  }

  // The updated part of one buffer on each rank.
  void gather_parts(const Instruction& step) {
    const ZeroBuffer& buffer = layout().zero;
    send(step, step.ranks, {.kind = CollectiveKind::AllGather, .dtype = buffer.dtype, .elements = buffer.elements},
         next_exposed());
  }

  void reduce_used_map(const Instruction& step) {
    const std::int64_t elements = used_map_bytes(*prepared_.index->model).count() / size_of(Dtype::Int32).count();
    send(step, step.ranks, sum_of(step, Dtype::Int32, elements), next_exposed());
  }

  // In the order of the tapes, as the walk plays them. The first backward of a call plays what runs again.
  void exchange_tokens(const Instruction& step) {
    if (step.kind == InstructionKind::LoadInputs) last_call_ = -1;
    if (step.kind != InstructionKind::Forward && step.kind != InstructionKind::Backward) return;
    const Tape& tape = *prepared_.tapes[static_cast<std::size_t>(step.call)];
    if (step.kind == InstructionKind::Forward) {
      return exchange(step, tape.forward,
                      {tape.forward_of_op[step.op_begin].first, tape.forward_of_op[step.op_end - 1].last});
    }
    if (std::exchange(last_call_, step.call) != step.call) {
      exchange(step, tape.recompute, {0, static_cast<std::int32_t>(tape.recompute.size())});
    }
    exchange(step, tape.backward,
             {tape.backward_of_op[step.op_end - 1].first, tape.backward_of_op[step.op_begin].last});
  }

  void exchange(const Instruction& step, const std::vector<TapeEvent>& events, Tape::Range range) {
    for (std::int32_t e = range.first; e < range.last; ++e) {
      const TapeEvent& event = events[static_cast<std::size_t>(e)];
      if (event.kind != TapeEvent::Kind::Exchange) continue;
      const auto dtype = static_cast<Dtype>(event.storage);
      send(step, layout().mesh.expert_group(),
           sum_of(step, dtype, event.bytes / size_of(dtype).count(), CollectiveKind::AllToAll), next_exposed());
    }
  }

  // Each rank computes the norm of gradients that it holds whole.
  void clip(const Instruction& step) {
    if (layout().gathers_by_module()) {
      // One for each sub-group.
      const std::size_t num_groups = layout().zero.num_groups();
      const Dtype dtype = prepared_.plan.cpu_offload ? Dtype::Float32 : Dtype::Float64;
      for (std::size_t g = 0; g < num_groups; ++g) agree(step, dtype, ReduceOp::Sum);
      return;
    }
    if (layout().updates_parts()) return agree(step, Dtype::Float32, ReduceOp::Sum);
    if (layout().has_whole_gradients()) return;
    if (layout().mesh.ep == 1) return sum_norms(step, {step.ranks}, layout().units);
    // Those of experts are on a mesh of two axes, and summed along each.
    std::vector<ShardedUnit> units = layout().units;
    const auto experts = std::stable_partition(units.begin(), units.end(), [](const auto& u) { return !u.of_experts; });
    sum_norms(step, {step.ranks}, {units.begin(), experts});
    sum_norms(step, {layout().mesh.expert_shard_group(), step.copies}, {experts, units.end()});
  }

  void sum_norms(const Instruction& step, const std::vector<RankGroup>& groups, const std::vector<ShardedUnit>& units) {
    std::int64_t norms = 0;
    std::optional<Dtype> common;
    for (const ShardedUnit& unit : units) {
      for (const ShardedParameter& p : unit.parameters) norms += p.receives_gradient ? 1 : 0;
      const auto is_trained = [](const ShardedParameter& p) { return p.receives_gradient; };
      if (std::none_of(unit.parameters.begin(), unit.parameters.end(), is_trained)) continue;
      // Norms of several dtypes are stacked in the widest.
      common = common.value_or(unit.original_dtype) == unit.original_dtype ? unit.original_dtype : Dtype::Float32;
    }
    const Dtype dtype = layout().has_flat_units() ? Dtype::Float32 : common.value_or(Dtype::Float32);
    for (const RankGroup& ranks : groups) {
      if (ranks.empty() && groups.size() > 1) continue;
      send(step, ranks,
           {.kind = CollectiveKind::AllReduce,
            .dtype = step.reduces_in_float64 ? Dtype::Float64 : dtype,
            .elements = step.reduces_each_norm ? norms : 1,
            .reduce_op = ReduceOp::Sum});
    }
  }

  // In the order of the walk, which is that of the parameters.
  void step_muon(const Instruction& step) {
    const MuonStep& muon = *prepared_.muon;
    for (const int update : muon.of_parameter) {
      if (update < 0) continue;
      const MuonUpdate& of = muon.updates[static_cast<std::size_t>(update)];
      for (const auto* events : {&of.making, &of.changing}) {
        for (const MuonEvent& event : *events) {
          if (event.what == MuonEvent::What::Collective) send_of_muon(step, event);
        }
      }
    }
  }

  // As for clipping, the time is part of the optimizer's.
  void send_of_muon(const Instruction& step, const MuonEvent& event) {
    send(step, ranks_of(event, prepared_.muon->mesh, layout().mesh),
         {.kind = event.collective,
          .dtype = Dtype::BFloat16,
          .elements = event.bytes / size_of(Dtype::BFloat16).count(),
          .reduce_op = ReduceOp::Sum});
  }

  // A collective of all ranks along an axis, in the time that its payload takes.
  void send(const Instruction& step, const RankGroup& ranks, Collective collective, Seconds exposed = Seconds(0)) {
    const Bytes payload = size_of(collective.dtype) * collective.elements;
    collective.time = collective_time(mesh_.along(ranks), collective.kind, payload);
    collective.exposed = exposed;
    add(step, ranks, std::move(collective));
  }

  void add(const Instruction& step, const RankGroup& ranks, Collective collective) {
    const std::size_t call = next_call_++;
    if (ranks.empty()) return;
    collective.phase = step.phase;
    collective.payload = size_of(collective.dtype) * collective.elements;
    collective.group = dimension_of(ranks);
    collective.group_size = layout().mesh.size(ranks);
    const Bytes sent = ring_bytes_sent(collective.kind, collective.payload, static_cast<int>(collective.group_size));
    TrafficTotal& total = report_.totals[static_cast<std::size_t>(collective.kind)];
    ++total.count;
    total.payload += collective.payload;
    total.sent_per_rank += sent;
    const Bytes between(sent.count() / ranks_per_exit(ranks));
    report_.sent_between_nodes += between;
    report_.sent_inside_node += sent - between;
    if (call < live_.steady_step.size()) {
      collective.live = live_.steady_step[call];
    }
    if (call < live_.first_step.size() && !gathers_less_later_ && prepared_.first_schedule.instructions.empty()) {
      const BytesByCategory& first = live_.first_step[call];
      collective.first_step_live = std::accumulate(first.begin(), first.end(), Bytes(0));
    }
    report_.collectives.push_back(std::move(collective));
  }

  // NCCL makes one ring that leaves the node at each of its GPUs, so each GPU sends an equal part over the network.
  std::int64_t ranks_per_exit(const RankGroup& ranks) const {
    const std::int64_t per_node = prepared_.cluster->gpus_per_node;
    const std::int64_t stride = layout().mesh.stride(ranks);
    const std::int64_t span = stride * layout().mesh.size(ranks);
    if (span <= per_node && per_node % span == 0) return std::numeric_limits<std::int64_t>::max();
    return std::max<std::int64_t>(1, per_node / stride);
  }

  const PreparedPlan& prepared_;
  const MeshCosts& mesh_;
  const TimelineResult& time_;
  const LiveAtCollectives& live_;
  bool gathers_less_later_;
  TrafficReport report_;
  std::size_t next_slot_ = 0;
  std::size_t next_call_ = 0;
  int last_call_ = -1;  // The last one with a backward in this micro-batch.
};

}  // namespace

TrafficReport count_traffic(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& time,
                            const LiveAtCollectives& live) {
  return TrafficCounter(prepared, mesh, time, live).count();
}

}  // namespace fsdp::simulator
