// Durations that follow from sizes and rates.
//
// Copies and the optimizer are bound by memory: bytes read and written over the achievable bandwidth. An all-gather of
// a unit writes its shard (2 S bytes moved) and copies out (2 F); a reduce-scatter reads the gradients and writes its
// input. Unsharded gradients of several micro-batches are cast once if the reduce dtype differs, and each later
// micro-batch reads both and writes the sum. AdamW touches parameter, gradient and both moments: fused in one pass,
// foreach in about a dozen list kernels. With 8-bit states one kernel of each parameter reads parameter and gradient,
// writes the parameter, and reads and writes each moment: a byte an element, and an fp32 scale of 256.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (bytes per all-gather), torch/optim/adam.py for the
// passes of the foreach implementation.
//
// ZeRO's offload sends what a rank updates to the host in fp32 after each reduction: 4 bytes an element over the link
// of one GPU to its host. With ZeRO-2 and several micro-batches, each of them sends the uncast gradients, e bytes, and
// all but the first bring back the sum so far; with ZeRO-3 each part is sent and comes back, always. The optimizer's
// turn is the host's: AdamW's one pass over four tensors, the gradient scaled in place, the parameters cast, and the
// way back.
//
// Not modeled: the optimizer on the host with CPU offload beyond its memory traffic at an assumed 20 GB/s; whether
// copies in both directions at once slow each other down; memory that is not pinned, whose copies are slower.

#include "simulator/time/plan_times.h"

#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/frameworks/zero/zero_partition.h"
#include "core/frameworks/zero/zero_quantization.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/parameter_part.h"
#include "core/plan/workload.h"
#include "simulator/time/drive_times.h"
#include "simulator/time/float8_times.h"

#include <algorithm>
#include <optional>

namespace fsdp::simulator {

namespace {

// Reads and writes of one element's 4 tensors. Foreach: lerp, mul, addcmul, sqrt, div, add, addcdiv, decay over lists.
constexpr double kHostBandwidth = 20e9;  // Assumed: one process's share of a server's memory bandwidth.

Seconds over(double bytes, BytesPerSecond rate) {
  return Seconds(bytes / rate.count());
}

double local_elements(const Layout& layout) {
  if (layout.updates_parts()) return static_cast<double>(layout.zero.part_elements());
  double elements = 0;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      if (p.receives_gradient) elements += static_cast<double>(p.local_elements);
    }
  }
  return elements;
}

// FSDP1 computes with the all-gather's output, casts only shards of another dtype, and casts and divides gradients on
// the stream of the reduction.
void make_flat(const ShardedUnit& unit, const ComputeCosts& costs, Seconds from_host, UnitTimes& t) {
  const auto bytes = [&](Dtype dtype, std::int64_t elements) {
    return static_cast<double>((size_of(dtype) * elements).count());
  };
  if (unit.param_dtype == unit.original_dtype) t.copy_in = from_host;
  t.copy_out = Seconds(0);
  t.reduce_copy = Seconds(0);
  t.keep_gradients = Seconds(0);
  const double gradient = bytes(unit.param_dtype, unit.reduced_true_elements);
  t.flatten = over(2 * gradient, costs.memory);
  t.add_gradients = over(3 * gradient, costs.memory);
  double moved = 2 * bytes(unit.reduce_dtype, unit.reduced_full_elements);
  if (unit.reduce_dtype != unit.param_dtype) moved += gradient + moved / 2;
  t.divide = over(moved, costs.memory);
}

// host_times has the instructions' own time.
void leave_copies_to_host(UnitTimes& t) {
  for (Seconds* time : {&t.copy_in, &t.copy_out, &t.keep_gradients, &t.add_gradients, &t.reduce_copy, &t.to_host,
                        &t.flatten, &t.divide})
    *time = Seconds(0);
}

// Beyond the measured sizes, copies and updates grow with their bytes.
std::optional<Seconds> measured_action(const NamedWork& work, const ComputeCosts& costs) {
  const MachineTables* tables = costs.on_host ? costs.tables() : nullptr;
  if (tables == nullptr || work.work.empty()) return std::nullopt;
  const auto found = look_up(tables->actions, work.work, work.depth, work.size);
  if (!found) return std::nullopt;
  return found->time * std::max(found->beyond, 1.);
}

}  // namespace

std::vector<Seconds> host_times(const Schedule& schedule, const Model& model, const Layout& layout, const Plan& plan,
                                const ComputeCosts& costs) {
  std::vector<Seconds> times(schedule.instructions.size(), Seconds(0));
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Instruction& step = schedule.instructions[i];
    const bool is_stretch = step.kind == InstructionKind::Forward || step.kind == InstructionKind::Backward;
    const bool has_own = step.kind == InstructionKind::OptimizerStep || step.kind == InstructionKind::ClipGradNorm;
    if (has_own) continue;
    const NamedWork work = is_stretch ? work_of_stretch(step) : work_of_action(step, model, layout, plan);
    times[i] = measured_action(work, costs).value_or(Seconds(0));
  }
  return times;
}

MeshCosts mesh_costs(const Cluster& cluster, const Mesh& mesh) {
  const int in_node = static_cast<int>(std::min<std::int64_t>(cluster.gpus_per_node, mesh.dp_shard()));
  MeshCosts costs{mesh,
                  collective_cost(group_shape(cluster, mesh, ranks_along(MeshAxis::DpShard))),
                  collective_cost(group_shape(cluster, mesh, ranks_along(MeshAxis::DpReplicate))),
                  cluster.host_link.bandwidth.value,
                  BytesPerSecond(nvme_bandwidth(cluster).value.count() / cluster.gpus_per_node),
                  collective_cost(group_shape(cluster, in_node))};
  if (mesh.ep == 1) return costs;
  costs.experts = collective_cost(group_shape(cluster, mesh, mesh.expert_group()));
  costs.expert_shard = collective_cost(group_shape(cluster, mesh, mesh.expert_shard_group(true)));
  return costs;
}

namespace {

// Groups of neighbors inside a shard group.
CollectiveCost cost_among_neighbors(std::int64_t ranks, const MeshCosts& mesh, const Cluster& cluster) {
  if (ranks == mesh.node.shape.ranks) return mesh.node;
  return collective_cost(group_shape(cluster, static_cast<int>(ranks)));
}

}  // namespace

Bytes shard_bytes(const Layout& layout, const ShardedUnit& unit) {
  if (layout.has_flat_units()) return size_of(unit.original_dtype) * unit.shard_elements;
  Bytes bytes;
  for (const ShardedParameter& parameter : unit.parameters) {
    bytes += size_of(layout.parameter_dtype[parameter.parameter]) * parameter.shard_elements;
  }
  return bytes;
}

RankGroup ranks_of_node(const Cluster& cluster) {
  return cluster.gpus_per_node > 1 ? ranks_along(MeshAxis::DpShard, cluster.gpus_per_node) : RankGroup{};
}

RankGroup ranks_across_nodes(const Cluster& cluster, std::int64_t ranks) {
  return ranks_along(MeshAxis::DpShard, ranks / cluster.gpus_per_node, cluster.gpus_per_node);
}

namespace {

/// The inputs of the times of all units.
struct UnitTimesInput {
  const Layout& layout;
  const Plan& plan;
  const MeshCosts& mesh;
  const Cluster& cluster;
  const ComputeCosts& costs;
};

UnitTimes times_of_unit(const UnitTimesInput& in, const ShardedUnit& unit, const ReducedElements& elements,
                        std::optional<CollectiveCost>& small) {
  const auto& [layout, plan, mesh, cluster, costs] = in;
  const double shard = static_cast<double>(unit.shards);
  UnitTimes t;
  const double gathered = static_cast<double>(unit.gather_shard_bytes.count());
  const Bytes full = unit.gather_shard_bytes * unit.shards;
  const Bytes reduce_input = size_of(unit.reduce_dtype) * elements.full;
  const double gradients = static_cast<double>((size_of(unit.param_dtype) * elements.whole).count());
  const double original = static_cast<double>(shard_bytes(layout, unit).count());
  t.copy_in = over(original + gathered, costs.memory);
  const Seconds from_host = plan.cpu_offload ? over(original, cluster.host_link.bandwidth.value) : Seconds(0);
  t.copy_in += from_host + float8_cast_time(layout, unit, plan, mesh.of(unit), costs);
  t.all_gather = collective_time(mesh.of(unit), CollectiveKind::AllGather, full);
  t.latency = collective_time(mesh.of(unit), CollectiveKind::AllGather, Bytes(1));
  t.small_gather = t.all_gather;
  if (unit.reshard.kind == ReshardAfterForward::Kind::Smaller) {
    const std::int64_t ranks = unit.reshard.world_size;
    if (!small || small->shape.ranks != ranks) small = cost_among_neighbors(ranks, mesh, cluster);
    t.small_gather = collective_time(*small, CollectiveKind::AllGather, full);
  }
  t.copy_out = over(2 * gathered * shard, costs.memory);
  const double kept = static_cast<double>((size_of(unit.reduce_dtype) * elements.whole).count());
  if (unit.reduce_dtype != unit.param_dtype) t.keep_gradients = over(gradients + kept, costs.memory);
  t.add_gradients = over(gradients + 2 * kept, costs.memory);
  t.num_gradients = static_cast<int>(std::count_if(unit.parameters.begin(), unit.parameters.end(),
                                                   [](const ShardedParameter& p) { return p.receives_gradient; }));
  t.reduce_copy = over(gradients + static_cast<double>(reduce_input.count()), costs.memory);
  t.reduce_scatter = collective_time(mesh.of(unit), CollectiveKind::ReduceScatter, reduce_input);
  const Bytes reduced = size_of(unit.reduce_dtype) * elements.shard;
  t.all_reduce = collective_time(mesh.replicate, CollectiveKind::AllReduce, reduced);
  if (plan.cpu_offload) {
    const Bytes sent = size_of(unit.original_dtype) * elements.shard;
    t.to_host = sent / cluster.host_link.bandwidth.value;
  }
  if (layout.has_flat_units()) make_flat(unit, costs, from_host, t);
  if (costs.on_host) leave_copies_to_host(t);
  return t;
}

}  // namespace

std::size_t index_of_times(const Layout& layout, const Instruction& step) {
  return step.reduces_loss() ? layout.units.size() : static_cast<std::size_t>(step.unit);
}

std::vector<UnitTimes> unit_times(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const Cluster& cluster,
                                  const ComputeCosts& costs) {
  const UnitTimesInput input{layout, plan, mesh, cluster, costs};
  std::vector<UnitTimes> times;
  std::optional<CollectiveCost> small;
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    times.push_back(
        times_of_unit(input, layout.units[u], elements_of_reduction(layout, {.unit = static_cast<int>(u)}), small));
  }
  if (layout.loss.unit < 0) return times;
  const Instruction of_loss{.kind = InstructionKind::ReduceGrads, .slot = kSlotOfLoss, .unit = layout.loss.unit};
  times.push_back(times_of_unit(input, layout.units[layout.loss.unit], elements_of_reduction(layout, of_loss), small));
  return times;
}

namespace {

// Bytes over the host's link for each element of a rank's part and micro-batch.
double sent_per_element(const Layout& layout, const Plan& plan) {
  if (!plan.cpu_offload) return 0;
  const auto item = static_cast<double>(size_of(layout.zero.dtype).count());
  const auto passes = static_cast<double>(plan.accumulation);
  const double cast = static_cast<double>(size_of(zero_master_dtype(plan)).count()) / passes;
  if (layout.gathers_by_module()) {
    const double on_host = static_cast<double>(elements_on_host(layout.zero, plan)) / local_elements(layout);
    return 2 * item + cast * on_host;
  }
  // Buckets of whole gradients are reduced once a step.
  if (!layout.zero.cuts_gradients) return cast * passes;
  return cast + (plan.accumulation > 1 ? (2 * passes - 1) / passes * item : 0);
}

Seconds sent_to_host(const GradientBucket& bucket, const Layout& layout, const Plan& plan, const MeshCosts& mesh) {
  if (!plan.cpu_offload) return Seconds(0);
  const double part = static_cast<double>(bucket.elements) / static_cast<double>(layout.zero.ranks);
  return over(sent_per_element(layout, plan) * part, mesh.host_link);
}

// Copies into the buffer, and divides there; in one piece once more for several ranks. Copies this rank's part out
// twice: back into the buffer, and to its final place.
BucketTimes zero_bucket_times(const GradientBucket& bucket, const Layout& layout, const Plan& plan,
                              const MeshCosts& mesh, const ComputeCosts& costs) {
  const auto bytes = static_cast<double>(bucket.bytes().count());
  double copied = 4 * bytes;
  Seconds sent{0};
  for (const ZeroReduction& reduction : reductions_of(bucket, layout, plan)) {
    const Bytes payload = size_of(bucket.dtype) * reduction.elements;
    sent += collective_time(mesh.shard, CollectiveKind::AllReduce, payload);
    if (reduction.slices > 1) copied += 2 * static_cast<double>(payload.count());
  }
  return {.copy = over(copied, costs.memory),
          .all_reduce = sent,
          .copy_back = over(4 * bytes / static_cast<double>(layout.zero.ranks), costs.memory) +
                       sent_to_host(bucket, layout, plan, mesh),
          .num_gradients = static_cast<int>(bucket.parameters.size())};
}

}  // namespace

namespace {

// With qgZ: bytes that kernels read and write for each gradient, and bytes sent.
Seconds exchange_time(const GradientBucket& bucket, const Layout& layout, const Model& model, const MeshCosts& mesh,
                      const Cluster& cluster, const ComputeCosts& costs) {
  const CollectiveCost across =
      collective_cost(group_shape(cluster, mesh.mesh, ranks_across_nodes(cluster, layout.zero.ranks)));
  const auto in_node = static_cast<double>(cluster.gpus_per_node);
  Seconds time{0};
  for (const GradientExchange& gradient : exchanges_of(bucket, layout, model)) {
    const Bytes whole = size_of(bucket.dtype) * gradient.elements;
    if (gradient.groups == 0) {
      time += collective_time(mesh.shard, CollectiveKind::ReduceScatter, whole);
      continue;
    }
    const Bytes bits(gradient.elements / 2);
    const Bytes scales = size_of(Dtype::Float32) * gradient.groups;
    const auto both = [&](const CollectiveCost& cost, std::int64_t parts) {
      return collective_time(cost, CollectiveKind::AllToAll, Bytes(bits.count() / parts)) +
             collective_time(cost, CollectiveKind::AllToAll, Bytes(scales.count() / parts));
    };
    time += both(mesh.node, 1) + both(across, cluster.gpus_per_node);
    // Quantized; summed over a node; made fp16 again, and summed over nodes, three passes over a part for each.
    const auto all = static_cast<double>(gradient.elements);
    time += over(2.5 * all + 0.5 * all + 0.5 * all / in_node + 2.5 * all / in_node + 6 * all / in_node, costs.memory);
  }
  return time;
}

// ZeRO-3 copies, divides and reduces on the stream of the reduction, and nothing on that of the backward.
BucketTimes zero3_bucket_times(const GradientBucket& bucket, const Layout& layout, const Plan& plan, const Model& model,
                               const MeshCosts& mesh, const Cluster& cluster, const ComputeCosts& costs) {
  const Bytes payload = size_of(bucket.dtype) * padded_elements(bucket, layout, model);
  if (exchanges_gradients(plan, cluster.gpus_per_node)) {
    const Seconds copied = over(2 * static_cast<double>(payload.count()), costs.memory);
    return {.all_reduce = copied + exchange_time(bucket, layout, model, mesh, cluster, costs),
            .num_gradients = static_cast<int>(bucket.parameters.size())};
  }
  // Into the bucket, from there into one piece, and a division in place.
  const Seconds copied = over(6 * static_cast<double>(payload.count()), costs.memory);
  return {.copy = Seconds(0),
          .all_reduce = copied + collective_time(mesh.shard, CollectiveKind::ReduceScatter, payload) +
                        sent_to_host(bucket, layout, plan, mesh) +
                        gradient_write_time(bucket, layout, plan, mesh.drive),
          .copy_back = Seconds(0),
          .num_gradients = static_cast<int>(bucket.parameters.size())};
}

// SimpleFSDP: the gradient of one read, whole over the copies and then over those that share it. Casts count as work of
// the op.
BucketTimes read_bucket_times(const GradientBucket& bucket, const Model& model, const MeshCosts& mesh) {
  const Bytes whole = size_of(bucket.dtype) * num_elements(model.parameters[bucket.parameters.front()].shape);
  BucketTimes times;
  if (mesh.mesh.dp_replicate() > 1)
    times.all_reduce = collective_time(mesh.replicate, CollectiveKind::AllReduce, whole);
  if (mesh.mesh.dp_shard() > 1)
    times.reduce_scatter = collective_time(mesh.shard, CollectiveKind::ReduceScatter, bucket.bytes());
  return times;
}

}  // namespace

std::vector<BucketTimes> bucket_times(const std::vector<GradientBucket>& buckets, const Model& model,
                                      const Layout& layout, const Plan& plan, const MeshCosts& mesh,
                                      const Cluster& cluster, const ComputeCosts& costs) {
  std::vector<BucketTimes> times;
  for (const GradientBucket& bucket : buckets) {
    if (layout.gathers_each_read) {
      times.push_back(read_bucket_times(bucket, model, mesh));
      continue;
    }
    if (layout.gathers_by_module()) {
      times.push_back(zero3_bucket_times(bucket, layout, plan, model, mesh, cluster, costs));
      continue;
    }
    if (layout.updates_parts()) {
      times.push_back(zero_bucket_times(bucket, layout, plan, mesh, costs));
      continue;
    }
    const Seconds copy = over(2 * static_cast<double>(bucket.bytes().count()), costs.memory);
    times.push_back({.copy = copy,
                     .all_reduce = collective_time(mesh.replicate, CollectiveKind::AllReduce, bucket.bytes()),
                     .copy_back = plan.ddp.gradient_as_bucket_view ? Seconds(0) : copy,
                     .num_gradients = static_cast<int>(bucket.parameters.size())});
  }
  return times;
}

Seconds sync_buffers_time(const Model& model, const MeshCosts& mesh, const ComputeCosts& costs) {
  const Bytes bytes = buffer_bytes(model);
  if (bytes == Bytes(0)) return Seconds(0);
  return over(4 * static_cast<double>(bytes.count()), costs.memory) +
         collective_time(mesh.replicate, CollectiveKind::Broadcast, bytes);
}

namespace {

// The rank's part of a gather, from the host.
Seconds brought(Bytes payload, const Layout& layout, const Plan& plan, const MeshCosts& mesh) {
  if (!plan.cpu_offload || !plan.zero.offload_param) return Seconds(0);
  return over(static_cast<double>(payload.count()) / static_cast<double>(layout.zero.ranks), mesh.host_link);
}

// Casts the rank's part to fp16 and quantizes it; makes the received data fp16 again, and cuts and casts it for each
// parameter.
FetchTimes quantized_fetch(const ParameterGroup& group, std::int64_t ranks, const CollectiveCost& cost,
                           const Layout& layout, const Model& model, const ComputeCosts& costs) {
  std::int64_t elements = 0;
  for (const int p : group.parameters) elements += padded_elements(p, layout, model);
  const Dtype dtype = layout.parameter_dtype[group.parameters.front()];
  const auto size = static_cast<double>(size_of(dtype).count());
  constexpr double kHalf = 2;
  const double is_joined = group.parameters.size() > 1 ? 1 : 0;
  const double is_cast = dtype == Dtype::Float16 ? 0 : 1;
  const double sent = is_joined * 2 * size + is_cast * (size + kHalf) + kHalf + 1;
  const double received = 1 + kHalf + is_joined * 2 * kHalf + is_cast * (kHalf + size);
  const std::int64_t scales = ranks * quantization_groups(elements / ranks);
  const auto all = static_cast<double>(elements);
  const auto kernels = static_cast<double>(group.parameters.size()) * (is_joined + is_cast) + 1;
  return {.payload = Bytes(elements),
          .dtype = Dtype::Int8,
          .all_gather = over(sent * all / static_cast<double>(ranks), costs.memory) +
                        collective_time(cost, CollectiveKind::AllGather, Bytes(elements)),
          .num_scales = scales,
          .scales = collective_time(cost, CollectiveKind::AllGather, size_of(Dtype::Float32) * scales),
          .copy_out = over(received * all, costs.memory),
          .num_kernels = static_cast<int>(kernels)};
}

}  // namespace

std::vector<FetchTimes> fetch_times(const Model& model, const Layout& layout, const Plan& plan,
                                    const Schedule& schedule, const MeshCosts& mesh, const Cluster& cluster,
                                    const ComputeCosts& costs) {
  std::optional<CollectiveCost> of_part;
  std::vector<FetchTimes> times;
  times.reserve(schedule.groups.size());
  for (const ParameterGroup& group : schedule.groups) {
    const std::int64_t ranks = mesh.mesh.size(group.ranks);
    if (group.ranks.is_part() && !of_part) of_part = cost_among_neighbors(ranks, mesh, cluster);
    const CollectiveCost& cost = group.ranks.is_part() ? *of_part : mesh.along(group.ranks);
    if (plan.zero.quantized_weights) {
      times.push_back(quantized_fetch(group, ranks, cost, layout, model, costs));
      continue;
    }
    Bytes payload;
    Dtype dtype = layout.zero.dtype;
    if (layout.gathers_each_read) dtype = read_dtype(plan.mixed_precision, layout.parameter_dtype[group.last]);
    for (const int p : group.parameters) {
      payload += layout.gathers_each_read
                     ? size_of(dtype) * part_of(model.parameters[p].shape, CutBy::Rows, mesh.mesh.dp_shard()).full
                     : size_of(layout.parameter_dtype[p]) * padded_elements(p, layout, model);
    }
    const bool is_copied = group.parameters.size() > 1;
    times.push_back({.payload = payload,
                     .dtype = dtype,
                     .all_gather = brought(payload, layout, plan, mesh) + parameter_read_time(group, plan, mesh.drive) +
                                   collective_time(cost, CollectiveKind::AllGather, payload),
                     .copy_out = is_copied ? over(2 * static_cast<double>(payload.count()), costs.memory) : Seconds(0),
                     .num_kernels = static_cast<int>(group.parameters.size())});
  }
  return times;
}

namespace {

// For each fp16 gradient, writes and compares the magnitude, compares it with itself, and reads the answers.
Seconds zero3_overflow_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs) {
  constexpr double kPasses = 2 + 2 + 2 + 1 + 1 + 2 + 1 + 1;
  const double bytes = kPasses * static_cast<double>(layout.zero.part_elements());
  return (plan.cpu_offload ? Seconds(bytes / kHostBandwidth) : over(bytes, costs.memory)) +
         collective_time(mesh.shard, CollectiveKind::AllReduce, Bytes(1));
}

Seconds persistent_time(const Model& model, const Layout& layout, const Plan& plan, const MeshCosts& mesh) {
  Seconds time{0};
  if (layout.zero.ranks == 1) return time;
  for (const int p : persistent_parameters(layout, plan)) {
    const Bytes payload = size_of(layout.parameter_dtype[p]) * padded_elements(p, layout, model);
    time += brought(payload, layout, plan, mesh) + collective_time(mesh.shard, CollectiveKind::AllGather, payload);
  }
  return time;
}

}  // namespace

ZeroTimes zero_times(const Model& model, const Layout& layout, const Plan& plan, const MeshCosts& mesh,
                     const ComputeCosts& costs) {
  if (!layout.updates_parts()) return {};
  ZeroTimes times;
  if (layout.gathers_by_module()) {
    times.gather_parameters = persistent_time(model, layout, plan, mesh);
    if (zero_dtype(plan) == Dtype::Float16) times.check_overflow = zero3_overflow_time(layout, plan, mesh, costs);
    return times;
  }
  const Bytes part = size_of(layout.zero.dtype) * layout.zero.part_elements();
  // The largest and the smallest element; a byte tells all ranks.
  if (zero_dtype(plan) != Dtype::Float32) {
    times.check_overflow = over(2 * static_cast<double>(part.count()), costs.memory) +
                           collective_time(mesh.shard, CollectiveKind::AllReduce, Bytes(1));
  }
  times.gather_parameters =
      collective_time(mesh.shard, CollectiveKind::AllGather, size_of(layout.zero.dtype) * layout.zero.elements);
  return times;
}

namespace {

double optimizer_passes(const Optimizer& optimizer, bool is_one_pass) {
  const OptimizerRow& row = optimizer_row(optimizer);
  if (num_moments(optimizer) == 0) return row.passes.without_moments;
  return is_one_pass ? row.passes.fused : row.passes.list;
}

/// Bytes of the moments of an element that are read and written beside `optimizer_passes`, and of fp32 temporaries.
/// Paged moments are read where they are while the GPU has room for them.
double state_traffic(const Optimizer& optimizer) {
  const OptimizerRow& row = optimizer_row(optimizer);
  if (!row.passes.without_states) return 0;
  const double of_codes =
      static_cast<double>(row.coded.bits) / 8 + 4 / static_cast<double>(std::max<std::int64_t>(1, row.coded.block));
  const bool is_factored = row.update == UpdateRule::Factors || row.update == UpdateRule::TorchFactors;
  const double moment = row.coded.bits > 0 ? of_codes : is_factored ? 0 : 4;
  const double passed = static_cast<double>(row.coded.passed[0] + row.coded.passed[1]);
  return 2 * (moment + passed) * static_cast<double>(num_moments(optimizer)) + 4 * row.passes.scratch;
}

// DeepSpeedCPUAdam passes over its tensors once.
Seconds offloaded_zero_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs) {
  const auto elements = static_cast<double>(elements_on_host(layout.zero, plan));
  const double on_device = local_elements(layout) - elements;
  const auto item = static_cast<double>(size_of(layout.zero.dtype).count());
  const auto master = static_cast<double>(size_of(zero_master_dtype(plan)).count());
  const double on_host = master * optimizer_passes(plan.optimizer, true) + master + item;
  const double sent = plan.zero.offload_param ? 0 : item;
  return Seconds(on_host * elements / kHostBandwidth) + over(sent * elements, mesh.host_link) +
         over((master * optimizer_row(OptimizerKind::AdamW).passes.list + master + item) * on_device, costs.memory);
}

}  // namespace

Seconds optimizer_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs) {
  if (const auto measured = costs.on_host ? measured_action(work_of_optimizer(layout, plan), costs) : std::nullopt) {
    return *measured;
  }
  if (layout.updates_parts() && plan.cpu_offload) {
    return with_drive(offloaded_zero_time(layout, plan, mesh, costs), layout, plan, mesh.drive);
  }
  const bool fused = plan.optimizer.implementation == OptimizerImplementation::Fused;
  const double passes = optimizer_passes(plan.optimizer, fused);
  const double item = plan.parameter_dtype && size_of(*plan.parameter_dtype) == Bytes(2) ? 2 : 4;
  double bytes = (passes * item + state_traffic(plan.optimizer)) * local_elements(layout);
  // The gradient in one piece and in fp32, and the part of the parameters that is written from the fp32 one.
  if (layout.updates_parts())
    bytes += 3 * (item + static_cast<double>(size_of(layout.zero.dtype).count())) * local_elements(layout);
  if (plan.cpu_offload) return Seconds(bytes / kHostBandwidth);
  return over(bytes, costs.memory);
}

RankGroup ranks_of(const MuonEvent& event, const TensorMesh& of, const Mesh& mesh) {
  const bool is_replicate = of.dimensions == 2 && event.dimension == 0;
  return mesh.group_along(is_replicate ? MeshAxis::DpReplicate : MeshAxis::DpShard);
}

Seconds muon_collective_time(const MuonEvent& event, const TensorMesh& of, const MeshCosts& mesh) {
  return collective_time(mesh.along(ranks_of(event, of, mesh.mesh)), event.collective, Bytes(event.bytes));
}

Seconds muon_time(const MuonStep& step, const MeshCosts& mesh, const ComputeCosts& costs) {
  std::vector<Seconds> times;
  for (const MuonUpdate& update : step.updates) {
    const Seconds products(update.flops / costs.rates(Dtype::BFloat16).gemm.count());
    Seconds& time = times.emplace_back(std::max(products, over(update.traffic, costs.memory)));
    for (const auto* events : {&update.making, &update.changing}) {
      for (const MuonEvent& event : *events) {
        if (event.what == MuonEvent::What::Collective) time += muon_collective_time(event, step.mesh, mesh);
      }
    }
  }
  Seconds sum{0};
  for (const int update : step.of_parameter) {
    if (update >= 0) sum += times[static_cast<std::size_t>(update)];
  }
  return sum;
}

namespace {

// The norm is computed whether or not gradients are clipped: writes each gradient in fp64, and reads it.
Seconds zero_clip_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs) {
  const double of_norm = 16 + static_cast<double>(size_of(layout.zero.dtype).count());
  const double of_clipping = plan.optimizer.clip_grad_norm ? 8 : 0;
  const Seconds clipping = plan.cpu_offload ? Seconds(of_clipping * local_elements(layout) / kHostBandwidth)
                                            : over(of_clipping * local_elements(layout), costs.memory);
  return over(of_norm * local_elements(layout), costs.memory) + clipping +
         collective_time(mesh.shard, CollectiveKind::AllReduce, Bytes(4));
}

}  // namespace

Seconds clip_time(const Layout& layout, const Plan& plan, const MeshCosts& mesh, const ComputeCosts& costs) {
  if (layout.updates_parts()) return zero_clip_time(layout, plan, mesh, costs);
  if (!plan.optimizer.clip_grad_norm) return Seconds(0);
  const std::optional<Seconds> measured =
      costs.on_host ? measured_action(work_of_clipping(layout), costs) : std::nullopt;
  std::int64_t count = 0;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) count += p.receives_gradient ? 1 : 0;
  }
  // Norms are read once; scaling reads and writes.
  const Seconds passes = measured.value_or(over(3 * 4 * local_elements(layout), costs.memory));
  if (layout.has_whole_gradients()) return passes;
  if (layout.has_flat_units()) count = 1;
  return passes + collective_time(mesh.shard, CollectiveKind::AllReduce, Bytes(4 * count));
}

}  // namespace fsdp::simulator
