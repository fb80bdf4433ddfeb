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

#include "core/plan/ddp_buckets.h"
#include "core/plan/parameter_reads.h"
#include "core/plan/zero_partition.h"
#include "core/plan/zero_quantization.h"
#include "simulator/nccl/collective_cost.h"
#include "simulator/time/plan_times.h"

namespace fsdp::simulator {

namespace {

class TrafficCounter {
 public:
  TrafficCounter(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& time,
                 const LiveAtCollectives& live)
      : prepared_(prepared), mesh_(mesh), time_(time), live_(live) {}

  TrafficReport count() {
    for (const Instruction& step : prepared_.schedule.instructions) {
      if (step.kind == InstructionKind::Unshard) gather(step);
      if (step.kind == InstructionKind::ReduceGrads) reduce(step);
      if (step.kind == InstructionKind::SyncBuffers) broadcast(step);
      if (step.kind == InstructionKind::ReduceBucket) reduce_any_bucket(step);
      if (step.kind == InstructionKind::CheckOverflow) agree(step, Dtype::UInt8, ReduceOp::Max);
      if (step.kind == InstructionKind::GatherParameters) {
        is_zero3() ? gather_persistent(step) : gathers_reads() ? gather_read(step) : gather_parameters(step);
      }
      if (step.kind == InstructionKind::FetchParameters) fetch(step);
      if (step.kind == InstructionKind::ReduceUsedMap) reduce_used_map(step);
      if (step.kind == InstructionKind::ClipGradNorm) clip(step);
      if (step.kind == InstructionKind::OptimizerStep && prepared_.muon) step_muon(step);
    }
    return std::move(report_);
  }

 private:
  const ShardedUnit& unit_of(const Instruction& step) const { return prepared_.layout.units[step.unit]; }

  Seconds next_exposed() {
    const std::size_t slot = next_slot_++;
    return slot < time_.exposed_of_collective.size() ? time_.exposed_of_collective[slot] : Seconds(0);
  }

  // _get_gradient_divide_factors: NCCL divides, except for dtypes that could overflow before it does.
  ReduceOp reduce_op(Dtype dtype) const {
    if (prepared_.layout.flat != FlatParameters::None) return ReduceOp::Sum;
    const bool may_overflow = dtype != Dtype::Float32 && dtype != Dtype::BFloat16;
    return may_overflow || prepared_.layout.mesh.world_size() == 1 ? ReduceOp::Sum : ReduceOp::Avg;
  }

  void gather(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    const Seconds exposed = next_exposed();
    const std::int64_t shard = prepared_.layout.mesh.dp_shard();
    const std::int64_t group = step.smaller_group ? unit.reshard.world_size : shard;
    const Bytes payload = unit.gather_shard_bytes * shard;
    const Dtype dtype = unit.mixed_gather ? Dtype::UInt8 : unit.param_dtype;
    const UnitTimes& times = prepared_.unit_times[step.unit];
    add(step, {.kind = CollectiveKind::AllGather,
               .unit = unit.name,
               .phase = step.phase,
               .dtype = dtype,
               .elements = payload.count() / size_of(dtype).count(),
               .payload = payload,
               .group = MeshDimension::Shard,
               .group_size = group,
               .micro_batch = step.micro_batch,
               .time = step.smaller_group ? times.small_gather : times.all_gather,
               .exposed = exposed});
  }

  void reduce(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    const UnitTimes& times = prepared_.unit_times[step.unit];
    const Mesh& mesh = prepared_.layout.mesh;
    Collective collective{.kind = CollectiveKind::ReduceScatter,
                          .unit = unit.name,
                          .phase = step.phase,
                          .dtype = unit.reduce_dtype,
                          .elements = unit.reduced_full_elements,
                          .payload = size_of(unit.reduce_dtype) * unit.reduced_full_elements,
                          .group = MeshDimension::Shard,
                          .group_size = mesh.dp_shard(),
                          .reduce_op = reduce_op(unit.reduce_dtype),
                          .micro_batch = step.micro_batch,
                          .time = times.reduce_scatter,
                          .exposed = next_exposed()};
    // NO_SHARD has no reduce-scatter, and also calls its all-reduce for one rank.
    const bool is_whole = prepared_.layout.flat != FlatParameters::None && mesh.dp_shard() == 1;
    if (!is_whole) add(step, collective);
    if (mesh.dp_replicate() == 1 && !is_whole) return;
    collective.kind = CollectiveKind::AllReduce;
    collective.elements = unit.reduced_shard_elements;
    collective.payload = size_of(unit.reduce_dtype) * unit.reduced_shard_elements;
    collective.group = MeshDimension::Replicate;
    collective.group_size = mesh.dp_replicate();
    collective.time = times.all_reduce;
    collective.exposed = mesh.dp_replicate() > 1 ? next_exposed() : Seconds(0);
    add(step, collective);
  }

  void broadcast(const Instruction& step) {
    std::map<Dtype, std::int64_t> elements;
    for (const Buffer& buffer : prepared_.index->model->buffers) elements[buffer.dtype] += num_elements(buffer.shape);
    Seconds exposed = next_exposed();
    for (const auto& [dtype, count] : elements) {
      const Bytes payload = size_of(dtype) * count;
      add(step, {.kind = CollectiveKind::Broadcast,
                 .unit = "",
                 .phase = step.phase,
                 .dtype = dtype,
                 .elements = count,
                 .payload = payload,
                 .group = MeshDimension::Replicate,
                 .group_size = prepared_.layout.mesh.dp_replicate(),
                 .micro_batch = step.micro_batch,
                 .time = collective_time(mesh_.replicate, CollectiveKind::Broadcast, payload),
                 .exposed = std::exchange(exposed, Seconds(0))});
    }
  }

  void reduce_bucket(const Instruction& step) {
    const GradientBucket& bucket = prepared_.layout.buckets[step.bucket];
    add(step, {.kind = CollectiveKind::AllReduce,
               .unit = "",
               .phase = step.phase,
               .dtype = bucket.dtype,
               .elements = bucket.elements,
               .payload = bucket.bytes(),
               .group = MeshDimension::Replicate,
               .group_size = prepared_.layout.mesh.dp_replicate(),
               .reduce_op = ReduceOp::Sum,
               .micro_batch = step.micro_batch,
               .time = prepared_.bucket_times[step.bucket].all_reduce,
               .exposed = next_exposed()});
  }

  bool is_zero() const { return prepared_.layout.zero.ranks > 0; }
  bool is_zero3() const { return !prepared_.layout.hooked.empty(); }

  bool gathers_reads() const { return prepared_.layout.gathers_each_read; }

  // SimpleFSDP gathers a parameter for one read.
  void gather_read(const Instruction& step) {
    const int p = group_of(step).front();
    const Mesh& mesh = prepared_.layout.mesh;
    const Dtype dtype = read_dtype(prepared_.plan.mixed_precision, prepared_.layout.parameter_dtype[p]);
    const Shape& shape = prepared_.index->model->parameters[p].shape;
    add_of_all(step, CollectiveKind::AllGather, dtype, cut_parameter(shape, mesh.dp_shard(), 0).full, next_exposed());
  }

  // It sums the gradient of that read over copies, whole, before it shards it.
  void reduce_read(const Instruction& step) {
    const GradientBucket& bucket = prepared_.layout.buckets[step.bucket];
    const Mesh& mesh = prepared_.layout.mesh;
    if (mesh.dp_replicate() > 1) {
      const std::int64_t elements = num_elements(prepared_.index->model->parameters[bucket.parameters.front()].shape);
      const Bytes payload = size_of(bucket.dtype) * elements;
      add(step, {.kind = CollectiveKind::AllReduce,
                 .unit = "",
                 .phase = step.phase,
                 .dtype = bucket.dtype,
                 .elements = elements,
                 .payload = payload,
                 .group = MeshDimension::Replicate,
                 .group_size = mesh.dp_replicate(),
                 .reduce_op = ReduceOp::Sum,
                 .micro_batch = step.micro_batch,
                 .time = collective_time(mesh_.replicate, CollectiveKind::AllReduce, payload),
                 .exposed = next_exposed()});
    }
    if (mesh.dp_shard() > 1)
      add_of_all(step, CollectiveKind::ReduceScatter, bucket.dtype, bucket.elements, next_exposed());
  }

  void reduce_any_bucket(const Instruction& step) {
    if (gathers_reads()) return reduce_read(step);
    if (is_zero3()) return scatter_bucket(step);
    is_zero() ? reduce_slices(step) : reduce_bucket(step);
  }

  // A collective of ZeRO-3 over all ranks.
  void add_of_all(const Instruction& step, CollectiveKind kind, Dtype dtype, std::int64_t elements, Seconds exposed) {
    const Bytes payload = size_of(dtype) * elements;
    add_of_group(step, kind, dtype, elements, prepared_.layout.mesh.dp_shard(),
                 collective_time(mesh_.shard, kind, payload), exposed);
  }

  // Over a group of `ranks` neighbors.
  void add_of_group(const Instruction& step, CollectiveKind kind, Dtype dtype, std::int64_t elements,
                    std::int64_t group_size, Seconds time, Seconds exposed) {
    add(step, {.kind = kind,
               .unit = "",
               .phase = step.phase,
               .dtype = dtype,
               .elements = elements,
               .payload = size_of(dtype) * elements,
               .group = MeshDimension::Shard,
               .group_size = group_size,
               .reduce_op = ReduceOp::Sum,
               .micro_batch = step.micro_batch,
               .time = time,
               .exposed = exposed});
  }

  const std::vector<int>& group_of(const Instruction& step) const {
    return prepared_.schedule.groups[step.group].parameters;
  }
  std::int64_t padded(int parameter) const {
    return padded_elements(parameter, prepared_.layout, *prepared_.index->model);
  }

  void fetch(const Instruction& step) {
    std::int64_t elements = 0;
    for (const int p : group_of(step)) elements += padded(p);
    const bool is_quantized = prepared_.plan.zero.quantized_weights;
    const Dtype dtype = is_quantized ? Dtype::Int8 : prepared_.layout.parameter_dtype[group_of(step).front()];
    const FetchTimes& times = prepared_.fetch_times[static_cast<std::size_t>(step.group)];
    add_of_group(step, CollectiveKind::AllGather, dtype, elements, times.group_size, times.all_gather, next_exposed());
    if (!is_quantized) return;
    add_of_group(step, CollectiveKind::AllGather, Dtype::Float32, times.num_scales, times.group_size, times.scales,
                 Seconds(0));
  }

  void gather_persistent(const Instruction& step) {
    Seconds exposed = next_exposed();
    for (const int p : group_of(step)) {
      add_of_all(step, CollectiveKind::AllGather, prepared_.layout.parameter_dtype[p], padded(p),
                 std::exchange(exposed, Seconds(0)));
    }
  }

  // The gradients of a bucket with qgZ: each a reduce-scatter, or four exchanges.
  void exchange_bucket(const Instruction& step) {
    const std::int64_t in_node = prepared_.cluster->gpus_per_node;
    const std::int64_t nodes = prepared_.layout.zero.ranks / in_node;
    Seconds exposed = next_exposed();
    const auto send = [&](Dtype dtype, std::int64_t elements, std::int64_t group_size, const CollectiveCost& cost) {
      add_of_group(step, CollectiveKind::AllToAll, dtype, elements, group_size,
                   collective_time(cost, CollectiveKind::AllToAll, size_of(dtype) * elements),
                   std::exchange(exposed, Seconds(0)));
    };
    const GradientBucket& bucket = prepared_.layout.buckets[step.bucket];
    const CollectiveCost across = cost_across_nodes(*prepared_.cluster, prepared_.layout.zero.ranks);
    for (const GradientExchange& gradient : exchanges_of(bucket, prepared_.layout, *prepared_.index->model)) {
      if (gradient.groups == 0) {
        add_of_all(step, CollectiveKind::ReduceScatter, bucket.dtype, gradient.elements,
                   std::exchange(exposed, Seconds(0)));
        continue;
      }
      send(Dtype::Int8, gradient.elements / 2, in_node, mesh_.node);
      send(Dtype::Float32, gradient.groups, in_node, mesh_.node);
      send(Dtype::Int8, gradient.elements / 2 / in_node, nodes, across);
      send(Dtype::Float32, gradient.groups / in_node, nodes, across);
    }
  }

  void scatter_bucket(const Instruction& step) {
    if (exchanges_gradients(prepared_.plan, prepared_.cluster->gpus_per_node)) return exchange_bucket(step);
    const GradientBucket& bucket = prepared_.layout.buckets[step.bucket];
    const std::int64_t elements = padded_elements(bucket, prepared_.layout, *prepared_.index->model);
    add_of_all(step, CollectiveKind::ReduceScatter, bucket.dtype, elements, next_exposed());
  }

  // ZeRO's all-reduces of its buffer.
  void reduce_slices(const Instruction& step) {
    const GradientBucket& bucket = prepared_.layout.buckets[step.bucket];
    Seconds exposed = next_exposed();
    for (const ZeroReduction& sent : reductions_of(bucket, prepared_.layout, prepared_.plan)) {
      const Bytes payload = size_of(bucket.dtype) * sent.elements;
      add(step, {.kind = CollectiveKind::AllReduce,
                 .unit = "",
                 .phase = step.phase,
                 .dtype = bucket.dtype,
                 .elements = sent.elements,
                 .payload = payload,
                 .group = MeshDimension::Shard,
                 .group_size = prepared_.layout.mesh.dp_shard(),
                 .reduce_op = ReduceOp::Sum,
                 .micro_batch = step.micro_batch,
                 .time = collective_time(mesh_.shard, CollectiveKind::AllReduce, payload),
                 .exposed = std::exchange(exposed, Seconds(0))});
    }
  }

  // An all-reduce of one number.
  void agree(const Instruction& step, Dtype dtype, ReduceOp op) {
    add(step, {.kind = CollectiveKind::AllReduce,
               .unit = "",
               .phase = step.phase,
               .dtype = dtype,
               .elements = 1,
               .payload = size_of(dtype),
               .group = MeshDimension::Shard,
               .group_size = prepared_.layout.mesh.dp_shard(),
               .reduce_op = op,
               .time = collective_time(mesh_.shard, CollectiveKind::AllReduce, size_of(dtype)),
               .exposed = Seconds(0)});
  }

  void gather_parameters(const Instruction& step) {
    const ZeroBuffer& buffer = prepared_.layout.zero;
    const Bytes payload = size_of(buffer.dtype) * buffer.elements;
    add(step, {.kind = CollectiveKind::AllGather,
               .unit = "",
               .phase = step.phase,
               .dtype = buffer.dtype,
               .elements = buffer.elements,
               .payload = payload,
               .group = MeshDimension::Shard,
               .group_size = prepared_.layout.mesh.dp_shard(),
               .time = collective_time(mesh_.shard, CollectiveKind::AllGather, payload),
               .exposed = next_exposed()});
  }

  void reduce_used_map(const Instruction& step) {
    const Bytes payload = used_map_bytes(*prepared_.index->model);
    add(step, {.kind = CollectiveKind::AllReduce,
               .unit = "",
               .phase = step.phase,
               .dtype = Dtype::Int32,
               .elements = payload.count() / size_of(Dtype::Int32).count(),
               .payload = payload,
               .group = MeshDimension::Replicate,
               .group_size = prepared_.layout.mesh.dp_replicate(),
               .reduce_op = ReduceOp::Sum,
               .micro_batch = step.micro_batch,
               .time = collective_time(mesh_.replicate, CollectiveKind::AllReduce, payload),
               .exposed = next_exposed()});
  }

  // Each rank computes the norm of gradients that it holds whole.
  void clip(const Instruction& step) {
    if (is_zero3()) {
      // One for each sub-group.
      const std::size_t num_groups = prepared_.layout.zero.num_groups();
      const Dtype dtype = prepared_.plan.cpu_offload ? Dtype::Float32 : Dtype::Float64;
      for (std::size_t g = 0; g < num_groups; ++g) agree(step, dtype, ReduceOp::Sum);
      return;
    }
    if (is_zero()) return agree(step, Dtype::Float32, ReduceOp::Sum);
    const bool is_flat = prepared_.layout.flat != FlatParameters::None;
    const bool is_whole = gathers_reads() ? prepared_.layout.mesh.dp_shard() == 1 : prepared_.layout.is_replicated;
    if (is_whole || (is_flat && prepared_.layout.mesh.dp_shard() == 1)) return;
    std::int64_t norms = 0;
    std::optional<Dtype> common;
    for (const ShardedUnit& unit : prepared_.layout.units) {
      for (const ShardedParameter& p : unit.parameters) norms += p.receives_gradient ? 1 : 0;
      if (unit.reduced_true_elements == 0) continue;
      // Norms of several dtypes are stacked in the widest.
      common = common.value_or(unit.original_dtype) == unit.original_dtype ? unit.original_dtype : Dtype::Float32;
    }
    const Dtype dtype = is_flat ? Dtype::Float32 : common.value_or(Dtype::Float32);
    const std::int64_t elements = step.reduces_each_norm ? norms : 1;
    const Bytes payload = size_of(dtype) * elements;
    add(step, {.kind = CollectiveKind::AllReduce,
               .unit = "",
               .phase = step.phase,
               .dtype = dtype,
               .elements = elements,
               .payload = payload,
               .group = MeshDimension::Shard,
               .group_size = prepared_.layout.mesh.dp_shard(),
               .reduce_op = ReduceOp::Sum,
               .time = collective_time(mesh_.shard, CollectiveKind::AllReduce, payload),
               .exposed = Seconds(0)});
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
    const TensorMesh& mesh = prepared_.muon->mesh;
    const Bytes payload(event.bytes);
    add(step, {.kind = event.collective,
               .unit = "",
               .phase = step.phase,
               .dtype = Dtype::BFloat16,
               .elements = payload.count() / size_of(Dtype::BFloat16).count(),
               .payload = payload,
               .group = mesh.dimensions == 2 && event.dimension == 0 ? MeshDimension::Replicate : MeshDimension::Shard,
               .group_size = mesh.sizes[static_cast<std::size_t>(event.dimension)],
               .reduce_op = ReduceOp::Sum,
               .time = muon_collective_time(event, mesh, mesh_),
               .exposed = Seconds(0)});
  }

  void add(const Instruction& step, Collective collective) {
    const std::size_t call = next_call_++;
    if (collective.group_size == 1 && !step.calls_alone) return;
    const Bytes sent = ring_bytes_sent(collective.kind, collective.payload, static_cast<int>(collective.group_size));
    TrafficTotal& total = report_.totals[static_cast<std::size_t>(collective.kind)];
    ++total.count;
    total.payload += collective.payload;
    total.sent_per_rank += sent;
    const Bytes between(sent.count() / ranks_per_exit(collective));
    report_.sent_between_nodes += between;
    report_.sent_inside_node += sent - between;
    if (call < live_.steady_step.size()) {
      collective.live = live_.steady_step[call];
    }
    if (call < live_.first_step.size() && prepared_.first_schedule.instructions.empty()) {
      const BytesByCategory& first = live_.first_step[call];
      collective.first_step_live = std::accumulate(first.begin(), first.end(), Bytes(0));
    }
    report_.collectives.push_back(std::move(collective));
  }

  // NCCL makes one ring that leaves the node at each of its GPUs, so each GPU sends an equal part over the network.
  std::int64_t ranks_per_exit(const Collective& collective) const {
    const std::int64_t per_node = prepared_.cluster->gpus_per_node;
    const bool strided = collective.group == MeshDimension::Replicate;
    const std::int64_t stride = strided ? prepared_.layout.mesh.dp_shard() : 1;
    const std::int64_t span = stride * collective.group_size;
    if (span <= per_node && per_node % span == 0) return std::numeric_limits<std::int64_t>::max();
    return std::max<std::int64_t>(1, per_node / stride);
  }

  const PreparedPlan& prepared_;
  const MeshCosts& mesh_;
  const TimelineResult& time_;
  const LiveAtCollectives& live_;
  TrafficReport report_;
  std::size_t next_slot_ = 0;
  std::size_t next_call_ = 0;
};

}  // namespace

TrafficReport count_traffic(const PreparedPlan& prepared, const MeshCosts& mesh, const TimelineResult& time,
                            const LiveAtCollectives& live) {
  return TrafficCounter(prepared, mesh, time, live).count();
}

}  // namespace fsdp::simulator
