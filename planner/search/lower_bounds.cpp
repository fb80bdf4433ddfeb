// Time. The compute stream runs every op of every micro-batch, the recomputation of checkpointed blocks, the copies out
// of gathered buffers and the copies of gradients into reduced ones. All-gathers and reduce-scatters share one
// communicator and run one after the other; all-reduces have their own. Nothing runs before the root is gathered. The
// optimizer waits for the last reduction, which waits for all compute. If gradients are reduced once a step, the
// compute stream sums them, unsharded. So a step takes at least
//
//   optimizer + max(root gather + compute + shortest reduce-scatter, gathers + reduce-scatters, all-reduces),
//
// and, if reduce-scatters have their own communicator, the larger of gathers and reduce-scatters instead of their sum.
//
// Not counted: waits in between, and a CPU that is slower than the device.
//
// Memory. At the peak of a call's backward, a rank holds its shards of parameters and optimizer states, the unsharded
// root, the unsharded unit of the call, the earlier units that were never resharded, the activations that earlier calls
// keep, and what the call's own backward needs. With several micro-batches it also holds the gradients of earlier ones:
// sharded, or unsharded if they are reduced once a step; then the last micro-batch releases those of a unit when it
// leaves its last pass. The bound is the largest such sum over a
// few calls that are likely to be the peak: the last block of each stack, the blocks on both sides of the border of
// checkpointing, and the calls outside the stacks with the largest backward. Each is a lower bound, so their maximum
// is, too. The optimizer's step is another: shards, states, and for a foreach step under FSDP2 one temporary of each
// parameter's size. The allocator does not give memory of one stream to another, so under FSDP2 we add the most of two
// other streams: all sharded gradients, and the output of the largest gather. We also add the memory outside the
// allocator, and the margin.
//
// Not counted: inputs of reductions, unsharded gradients of other units, fragmentation. For a step of several passes
// only states count: the activations of one pass are gone in the next, and an optimizer steps with its own gradients.
//
// DDP gathers nothing and reduces in buckets. Its all-reduces replace the collectives above, the copies into and out of
// buckets replace the copies, and the buckets replace the unsharded root.
//
// FSDP1: with shards as above; flat gradients stay in the dtype of compute. Without shards (NO_SHARD) no unit counts,
// because there are at most copies in param_dtype. Under SHARD_GRAD_OP, gradients that are reduced once a step keep the
// parameters gathered from the first micro-batch on. The time to flatten gradients is not counted.
//
// ZeRO-1 and 2: like DDP, without the buffer for gradients. ZeRO-3: the permanent tensors, and the reduce-scatters
// without the all-gathers.
//
// Both bounds hold at one corner of a box: time falls with the units that stay unsharded and rises with the
// checkpointed blocks, and memory does the opposite. If keys and values are cached in training, the first checkpointed
// block turns that off for all blocks and removes the copies from the step: plans without a checkpointed block are
// boxes of their own there.

#include "planner/search/lower_bounds.h"

#include <algorithm>
#include <cassert>

#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/parameter_part.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/search_traits.h"
#include "simulator/memory/device_terms.h"
#include "simulator/prepared/prediction.h"
#include "simulator/time/plan_times.h"
#include "simulator/time/roofline.h"

namespace fsdp::planner {

namespace {

using simulator::CallCost;
using simulator::Predictor;

std::int64_t bytes_of(std::int64_t elements, Dtype dtype) {
  return elements * size_of(dtype).count();
}

/// Bytes of optimizer state per parameter element.
double state_bytes(const Optimizer& optimizer, Dtype dtype) {
  return static_cast<double>(num_moments(optimizer)) * least_moment_bytes(optimizer, size_of(dtype).count());
}

/// True if a step computes the roots of all second moments at once (simulator/memory/memory_walk_optimizer.h).
bool makes_roots(const Optimizer& optimizer) {
  return optimizer.implementation == OptimizerImplementation::Foreach && optimizer_row(optimizer).takes_roots &&
         optimizer.states == OptimizerStates::AsParameter && has_torch_kernels(optimizer);
}

bool has_cache(const Model& model) {
  return std::any_of(model.blocks.begin(), model.blocks.end(), [](const Block& block) {
    return std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return op.kind == OpKind::KvCache; });
  });
}

}  // namespace

LowerBounds::LowerBounds(const Plan& base, const Families& families, PredictorOf predictor_of, bool is_tight)
    : base_(base), families_(families), predictor_of_(std::move(predictor_of)), is_tight_(is_tight) {
  if (families.families.empty()) return;
  index_ = &predictor_of_(families.families.front().micro_batch).index();
  const Model& model = *index_->model;
  block_of_call_.assign(model.calls.size(), {-1, -1});
  for (std::size_t s = 0; s < families.blocks.size(); ++s) {
    StackOfCalls stack;
    for (const std::string& name : families.blocks[s]) {
      const int module = index_->find(name);
      stack.all_calls.emplace_back();
      for (std::size_t c = 0; c < model.calls.size(); ++c) {
        if (model.calls[c].module != module || !model.calls[c].repeated) continue;
        stack.all_calls.back().push_back(static_cast<int>(c));
        block_of_call_[c] = {static_cast<int>(s), static_cast<int>(stack.calls.size())};
      }
      assert(!stack.all_calls.back().empty());
      stack.calls.push_back(stack.all_calls.back().front());
    }
    stacks_.push_back(std::move(stack));
  }
  first_checkpoint_saves_work_ = implementations_of(base).use_cache && has_cache(model);
}

LowerBounds::CallSums LowerBounds::make_call_sums(const Family& family, const Plan& plan, CheckpointMode mode) {
  Predictor& predictor = predictor_of_(family.micro_batch);
  const std::size_t num_calls = block_of_call_.size();
  CallSums sums;
  std::vector<CheckpointMode> modes(num_calls, CheckpointMode::None);
  std::vector<CallCost> costs = predictor.call_costs(plan, modes);
  for (std::size_t c = 0; c < num_calls; ++c) {
    if (block_of_call_[c].first >= 0) modes[c] = mode;
  }
  std::vector<CallCost> mode_costs = predictor.call_costs(plan, modes);
  std::int64_t kept = 0;
  Seconds compute{0};
  for (std::size_t c = 0; c < num_calls; ++c) {
    sums.kept.push_back(kept);
    kept += costs[c].kept.count();
    compute += costs[c].forward + costs[c].backward + costs[c].recompute;
  }
  sums.compute = compute;
  for (const StackOfCalls& stack : stacks_) {
    sums.saved.push_back({0});
    sums.added.push_back({Seconds(0)});
    for (const std::vector<int>& calls : stack.all_calls) {
      std::int64_t saved = sums.saved.back().back();
      Seconds added = sums.added.back().back();
      for (const int call : calls) {
        const CallCost& none = costs[call];
        const CallCost& mode = mode_costs[call];
        saved += std::min<std::int64_t>(0, mode.kept.count() - none.kept.count());
        added += mode.forward + mode.backward + mode.recompute - none.forward - none.backward - none.recompute;
      }
      sums.saved.back().push_back(saved);
      sums.added.back().push_back(added);
    }
  }
  for (std::size_t c = 0; c < num_calls; ++c) {
    if (block_of_call_[c].first < 0) sums.outside.push_back(static_cast<int>(c));
  }
  sums.none = std::move(costs);
  sums.mode = std::move(mode_costs);
  const auto height = [&](int call) { return sums.kept[call] + sums.none[call].backward_peak.count(); };
  std::stable_sort(sums.outside.begin(), sums.outside.end(), [&](int a, int b) { return height(a) > height(b); });
  if (sums.outside.size() > 2) sums.outside.resize(2);
  return sums;
}

void LowerBounds::add_times(const Family& family, const Plan& plan, const Layout& layout, Predictor& predictor,
                            UnitSums& sums) const {
  const Cluster& cluster = predictor.cluster();
  const Model& model = predictor.model();
  const simulator::MeshCosts& mesh = predictor.mesh_costs(family.mesh);
  const simulator::ComputeCosts costs =
      simulator::compute_costs(cluster, compute_dtype(model, plan), plan.runtime.implementations);
  sums.times = simulator::unit_times(layout, plan, mesh, cluster, costs);
  const std::vector<simulator::UnitTimes>& times = sums.times;
  const Wrapping& wrapping = families_.wrappings[family.wrapping].wrapping;
  const std::size_t longest = static_cast<std::size_t>(wrapping.longest());
  sums.gathers.assign(longest + 1, Seconds{0});
  sums.copies.assign(longest + 1, Seconds{0});
  // The layout is that of units that reshard to all ranks. This code computes the times of a smaller group.
  const bool to_smaller = family.reshard == ReshardAfterForward::Kind::Smaller;
  const simulator::MeshCosts& smaller =
      to_smaller
          ? predictor.mesh_costs({family.mesh.world_size() / family.reshard_world_size, family.reshard_world_size})
          : mesh;
  // The number of unsharded units from which on a unit is no longer resharded. The root never is.
  std::vector<std::size_t>& resharded = sums.resharded;
  resharded.assign(wrapping.experts.size(), longest + 1);  // Experts that ranks share always are.
  for (const auto& stack : wrapping.stacks) {
    for (std::size_t i = 0; i < stack.size(); ++i) resharded.insert(resharded.end(), stack[i].size(), stack.size() - i);
  }
  resharded.resize(layout.units.size() - 1 - wrapping.roots.size() - wrapping.kept_ends.size(), longest);
  resharded.resize(layout.units.size(), 0);

  sums.has_order = has_order(family, layout, cluster);
  sums.gathers_again.assign(layout.units.size(), Seconds{0});
  Seconds least_reduce = Seconds::max();
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const ShardedUnit& unit = layout.units[u];
    // A unit that never runs is never gathered, and a unit without trained parameters may have no backward.
    if (unit.windows.empty() || unit.full_elements == 0) continue;
    const Seconds again = to_smaller ? simulator::collective_time(smaller.shard, CollectiveKind::AllGather,
                                                                  unit.gather_shard_bytes * family.mesh.dp_shard())
                                     : times[u].all_gather;
    sums.gathers_again[u] = again;
    if (unit.reduced_full_elements == 0) resharded[u] = 0;
    for (std::size_t kept = 0; kept <= longest; ++kept) {
      const bool has_backward_gather = kept < resharded[u];
      sums.gathers[kept] += times[u].all_gather + (has_backward_gather ? again : Seconds{0});
      sums.copies[kept] += times[u].copy_out * (has_backward_gather ? 2 : 1);
    }
    if (unit.is_root) sums.root_gather = times[u].copy_in + times[u].all_gather;
    if (unit.reduced_full_elements == 0) continue;
    sums.keeps += times[u].keep_gradients;
    sums.adds += times[u].add_gradients;
    sums.reduces += times[u].reduce_scatter;
    sums.reduce_copies += times[u].reduce_copy;
    if (family.mesh.dp_replicate() > 1) sums.all_reduces += times[u].all_reduce;
    least_reduce = std::min(least_reduce, times[u].reduce_scatter);
  }
  if (least_reduce != Seconds::max()) sums.last_reduce = least_reduce;
  if (layout.is_replicated) set_bucket_times(model, layout, plan, mesh, cluster, costs, sums);
  const simulator::ZeroTimes zero = simulator::zero_times(model, layout, plan, mesh, costs);
  sums.optimizer = simulator::optimizer_time(layout, plan, mesh, costs) +
                   simulator::clip_time(layout, plan, mesh, costs) + zero.check_overflow + zero.gather_parameters;
}

void LowerBounds::set_bucket_times(const Model& model, const Layout& layout, const Plan& plan,
                                   const simulator::MeshCosts& mesh, const Cluster& cluster,
                                   const simulator::ComputeCosts& costs, UnitSums& sums) const {
  std::fill(sums.gathers.begin(), sums.gathers.end(), Seconds{0});
  std::fill(sums.copies.begin(), sums.copies.end(), Seconds{0});
  sums.keeps = sums.adds = sums.reduces = sums.reduce_copies = sums.all_reduces = Seconds{0};
  sums.root_gather = sums.last_reduce = Seconds{0};
  const std::vector<simulator::BucketTimes> buckets =
      simulator::bucket_times(layout.buckets, model, layout, plan, mesh, cluster, costs);
  if (layout.gathers_each_read) return set_read_times(layout, plan, mesh, buckets, sums);
  for (const simulator::BucketTimes& bucket : buckets) {
    sums.reduce_copies += bucket.copy + bucket.copy_back;
    sums.all_reduces += bucket.all_reduce;
  }
}

// The compute stream waits for each collective of SimpleFSDP, so all of them count on that stream. The gathers that
// checkpointed blocks repeat are not counted.
void LowerBounds::set_read_times(const Layout& layout, const Plan& plan, const simulator::MeshCosts& mesh,
                                 const std::vector<simulator::BucketTimes>& buckets, UnitSums& sums) const {
  for (const simulator::BucketTimes& bucket : buckets) sums.reduce_copies += bucket.all_reduce + bucket.reduce_scatter;
  if (mesh.mesh.dp_shard() == 1) return;
  Seconds gathers{0};
  for (const Call& call : index_->model->calls) {
    for (const Op& op : index_->model->blocks[call.block].ops) {
      for (const int read : op.parameters) {
        const int p = call.parameters[read];
        const Dtype dtype = read_dtype(plan.mixed_precision, layout.parameter_dtype[p]);
        const ParameterPart cut = part_of(index_->model->parameters[p].shape, CutBy::Rows, mesh.mesh.dp_shard());
        gathers += simulator::collective_time(mesh.shard, CollectiveKind::AllGather, size_of(dtype) * cut.full);
      }
    }
  }
  for (Seconds& copies : sums.copies) copies += gathers;
}

Plan LowerBounds::plan_of(const Family& family) const {
  Plan plan = base_;
  plan.mesh = family.mesh;
  set_arguments(plan, families_.arguments[family.arguments]);
  set_offload(plan, family.cpu_offload);
  return plan;
}

const Layout& LowerBounds::layout_of(const Family& family) {
  Plan plan = plan_of(family);
  set_offload(plan, base_.cpu_offload);
  Family resharding = family;
  resharding.reshard = ReshardAfterForward::Kind::Always;
  plan.units = units_of(families_.wrappings[family.wrapping].wrapping, resharding, 0);
  // The sizes of a micro-batch do not change a layout.
  return predictor_of_(families_.families.front().micro_batch).layout(plan);
}

void LowerBounds::add_accumulated(const Layout& layout, UnitSums& sums) const {
  sums.accumulated_of_call.assign(block_of_call_.size(), 0);
  for (const ShardedUnit& unit : layout.units) {
    if (unit.windows.empty()) continue;
    const std::int64_t bytes = accumulated_gradients(unit, layout.flat).count();
    sums.accumulated += bytes;
    const int last_pass = unit.windows.back().begin;
    for (std::size_t c = 0; c < sums.accumulated_of_call.size(); ++c) {
      if (last_pass <= index_->call_begin[c]) sums.accumulated_of_call[c] += bytes;
    }
  }
}

// Buckets exist at all times. Gradients that are views of them take no more memory, except for those of earlier
// micro-batches without a reduction, which the last backward releases one by one.
void LowerBounds::set_bucket_bytes(const Layout& layout, UnitSums& sums) const {
  sums.root = 0;
  if (layout.gathers_each_read) return;  // The calls that save the result of a read keep it.
  for (const GradientBucket& bucket : layout.buckets) sums.root += bucket.bytes().count();
  if (!base_.ddp.gradient_as_bucket_view || layout.buckets.empty()) return;
  sums.gradients = 0;
  std::fill(sums.accumulated_of_call.begin(), sums.accumulated_of_call.end(), 0);
}

// In addition to the parameters: the rank's fp32 copy and its moments, unless they are on the host. Stage 2 keeps the
// most gradients of earlier micro-batches on the rank whose part contains pieces of the most parameters.
double LowerBounds::set_zero_bytes(const Layout& layout, const Plan& plan, UnitSums& sums) const {
  sums.root = 0;
  if (!layout.hooked.empty()) return set_zero3_bytes(layout, plan, sums);
  if (plan.cpu_offload) {
    sums.gradients = 0;
    return 0;
  }
  sums.gradients = bytes_of(touched_elements(layout.zero, rank_that_touches_most(layout.zero)), layout.zero.dtype);
  const double kept = static_cast<double>(size_of(zero_master_dtype(plan)).count()) +
                      state_bytes(base_.optimizer, zero_master_dtype(plan));
  return kept * static_cast<double>(layout.zero.part_elements());
}

// The rank's parts of parameters and gradients, the fp32 copy, its moments and the bucket exist at all times.
double LowerBounds::set_zero3_bytes(const Layout& layout, const Plan& plan, UnitSums& sums) const {
  sums.gradients = 0;
  sums.gathered_ahead = bytes_of(std::min(layout.zero.elements, plan.zero.max_live_parameters), layout.zero.dtype);
  const std::int64_t parts = !plan.cpu_offload ? 2 : plan.zero.offload_param ? 0 : 1;
  sums.states = bytes_of(parts * layout.zero.part_elements() + plan.zero.reduce_bucket_size, layout.zero.dtype);
  if (plan.cpu_offload) return 0;
  const double kept = static_cast<double>(size_of(zero_master_dtype(plan)).count()) +
                      state_bytes(base_.optimizer, zero_master_dtype(plan));
  return kept * static_cast<double>(layout.zero.part_elements());
}

// Memory that other streams hold.
void LowerBounds::set_fsdp2_bytes(const Layout& layout, UnitSums& sums) {
  sums.is_fsdp2 = true;
  for (const ShardedUnit& unit : layout.units) {
    if (unit.shards == 1 || unit.windows.empty()) continue;
    sums.largest_gather = std::max(sums.largest_gather, unit.shards * unit.gather_shard_bytes.count());
  }
}

// States, and the step's temporaries on the compute stream. Muon keeps one moment, and computes no roots.
double LowerBounds::set_optimizer_bytes(const Layout& layout, UnitSums& sums) const {
  double states = 0;
  for (const ShardedUnit& unit : layout.units) {
    std::int64_t by_muon = 0;
    std::int64_t others = 0;
    for (const ShardedParameter& parameter : unit.parameters) {
      if (!parameter.receives_gradient) continue;
      const bool is_muon =
          base_.optimizer.muon && is_updated_by_muon(base_, index_->model->parameters[parameter.parameter]);
      (is_muon ? by_muon : others) += parameter.local_elements;
    }
    states += static_cast<double>(bytes_of(by_muon, unit.original_dtype));
    states += static_cast<double>(others) * state_bytes(base_.optimizer, unit.original_dtype);
    // Experts that ranks share are a group of their own, which is updated after the others.
    if (sums.is_fsdp2 && makes_roots(base_.optimizer) && !unit.of_experts) {
      sums.optimizer_temporaries += bytes_of(others, unit.original_dtype);
    }
  }
  return states;
}

const LowerBounds::UnitSums& LowerBounds::unit_bytes(const Family& family, const Layout& layout) {
  const auto key =
      std::tuple(family.mesh.dp_shard(), family.mesh.ep, family.wrapping, family.arguments, family.cpu_offload);
  const auto found = unit_bytes_.find(key);
  if (found != unit_bytes_.end()) return found->second;
  return unit_bytes_.emplace(key, make_unit_bytes(family, layout)).first->second;
}

LowerBounds::UnitSums LowerBounds::make_unit_bytes(const Family& family, const Layout& layout) const {
  const bool has_copies = layout.flat == FlatParameters::None || layout.mesh.dp_shard() > 1;
  const auto unsharded_bytes = [&](const ShardedUnit& unit) {
    return has_copies ? unit.shards * unit.gather_shard_bytes.count() : 0;
  };
  UnitSums sums;
  if (search_traits(base_).has_bound_of_order && !has_passes(*index_->model)) set_fsdp2_bytes(layout, sums);
  double optimizer = set_optimizer_bytes(layout, sums);
  for (const ShardedUnit& unit : layout.units) {
    sums.states += simulator::shard_bytes(layout, unit).count();
    sums.gradients += bytes_of(unit.reduced_shard_elements, unit.original_dtype);
    if (unit.is_root) sums.root = unsharded_bytes(unit);
  }
  std::size_t next_unit = 0;
  for (const auto& stack : families_.wrappings[family.wrapping].wrapping.stacks) {
    std::vector<std::int64_t>& unsharded = sums.unsharded.emplace_back(1, 0);
    for (const UnitGroup& group : stack) {
      std::int64_t bytes = unsharded.back();
      for (std::size_t i = 0; i < group.size(); ++i, ++next_unit) bytes += unsharded_bytes(layout.units[next_unit]);
      unsharded.push_back(bytes);
    }
  }
  add_accumulated(layout, sums);
  if (layout.zero.ranks > 0) {
    optimizer = set_zero_bytes(layout, plan_of(family), sums);
  } else if (layout.is_replicated) {
    set_bucket_bytes(layout, sums);
  }
  sums.states += static_cast<std::int64_t>(optimizer);
  if (family.cpu_offload && layout.zero.ranks == 0) {
    sums.states = sums.gradients = sums.optimizer_temporaries = 0;
  }
  for (const Call& call : index_->model->calls) {
    std::int64_t largest = 0;
    for (const int parameter : call.parameters) {
      const ShardedUnit& unit = layout.units[layout.unit_of_parameter[parameter]];
      const std::int64_t bytes = unsharded_bytes(unit);
      if (unit.is_root || bytes <= largest) continue;
      // A unit inside the call is gathered for a part of it only.
      const bool is_around = std::any_of(unit.modules.begin(), unit.modules.end(),
                                         [&](int module) { return index_->contains(module, call.module); });
      if (is_around) largest = bytes;
    }
    sums.unit_of_call.push_back(largest);
  }
  return sums;
}

LowerBounds::UnitSums LowerBounds::make_unit_sums(const Family& family) {
  Predictor& predictor = predictor_of_(family.micro_batch);
  Plan plan = plan_of(family);
  plan.accumulation = family.accumulation;
  const Layout& layout = layout_of(family);
  UnitSums sums = unit_bytes(family, layout);
  sums.outside = simulator::outside_terms(predictor.cluster(), plan);
  add_times(family, plan, layout, predictor, sums);
  return sums;
}

const LowerBounds::CallSums& LowerBounds::call_sums(const Family& family, bool some_checkpointed, Interval ways) {
  const bool is_uncached = first_checkpoint_saves_work_ && some_checkpointed;
  const CheckpointWay& first = family.ways[static_cast<std::size_t>(ways.first)];
  const CheckpointWay& last = family.ways[static_cast<std::size_t>(ways.last)];
  // Calls keep whole copies, made of the shards.
  const std::int64_t shard = traits_of(base_).gathers_each_read ? family.mesh.dp_shard() : 0;
  const auto key = std::tuple(family.micro_batch, shard, first, last, is_uncached);
  const auto found = call_sums_.find(key);
  if (found != call_sums_.end()) return found->second;
  if (ways.size() > 1) {
    CallSums sums = call_sums(family, some_checkpointed, {ways.last, ways.last});
    take_least(call_sums(family, some_checkpointed, {ways.first, ways.last - 1}), sums);
    return call_sums_.emplace(key, std::move(sums)).first->second;
  }
  Plan plan = base_;
  plan.mesh = family.mesh;
  save_ops(plan.checkpointing, first);
  if (is_uncached) plan.runtime.implementations.use_cache = false;
  return call_sums_.emplace(key, make_call_sums(family, plan, first.mode)).first->second;
}

// If nothing is checkpointed, all ways are the same.
void LowerBounds::take_least(const CallSums& other, CallSums& sums) {
  for (std::size_t c = 0; c < sums.mode.size(); ++c) sums.mode[c] = least_of(sums.mode[c], other.mode[c]);
  for (std::size_t s = 0; s < sums.saved.size(); ++s) {
    for (std::size_t k = 0; k < sums.saved[s].size(); ++k) {
      sums.saved[s][k] = std::min(sums.saved[s][k], other.saved[s][k]);
      sums.added[s][k] = std::min(sums.added[s][k], other.added[s][k]);
    }
  }
}

const LowerBounds::UnitSums& LowerBounds::unit_sums(const Family& family) {
  // The sizes of a micro-batch do not change a unit.
  // The number of micro-batches decides how often ZeRO sends gradients to the host.
  const std::int64_t accumulation = family.cpu_offload ? family.accumulation : 1;
  const auto key = std::tuple(family.mesh.dp_shard(), family.mesh.ep, family.wrapping, family.reshard,
                              family.cpu_offload, family.arguments, accumulation);
  const auto found = unit_sums_.find(key);
  return found != unit_sums_.end() ? found->second : unit_sums_.emplace(key, make_unit_sums(family)).first->second;
}

std::int64_t LowerBounds::kept_gradients(const Family& family, const UnitSums& units, std::size_t call) {
  if (family.sync_every_micro_batch) return units.is_fsdp2 ? 0 : units.gradients;  // memory() adds those.
  // With three or more micro-batches, one of them neither makes the first gradients nor reduces any.
  return family.accumulation > 2 ? units.accumulated : units.accumulated_of_call[call];
}

std::int64_t LowerBounds::memory_at(const Family& family, const CallSums& calls, const UnitSums& units, int call,
                                    std::int64_t kept, const CountRange& checkpointed) const {
  const std::size_t c = static_cast<std::size_t>(call);
  const auto [own_stack, own_block] = block_of_call_[c];
  std::int64_t bytes = units.states + units.root + units.unit_of_call[c] + calls.kept[c];
  if (family.accumulation > 1) bytes += kept_gradients(family, units, c);
  // Some plans of the box checkpoint the block, and others do not; recomputing can need more than keeping.
  const bool may_be = own_block >= 0 && own_block < checkpointed.most[static_cast<std::size_t>(own_stack)];
  const bool must_be = own_block >= 0 && own_block < checkpointed.fewest[static_cast<std::size_t>(own_stack)];
  const Bytes none = calls.none[c].backward_peak;
  const Bytes mode = calls.mode[c].backward_peak;
  bytes += (!may_be ? none : must_be ? mode : std::min(mode, none)).count();
  for (std::size_t s = 0; s < stacks_.size(); ++s) {
    const StackOfCalls& stack = stacks_[s];
    const bool is_own = own_stack == static_cast<int>(s);
    // Blocks of this stack that ran before the call.
    const auto ran = is_own                      ? static_cast<std::int64_t>(own_block)
                     : stack.calls.back() < call ? static_cast<std::int64_t>(stack.calls.size())
                                                 : 0;
    bytes += calls.saved[s][std::min<std::int64_t>(ran, checkpointed.most[s])];
  }
  for (std::size_t s = 0; s < std::min(units.unsharded.size(), stacks_.size()); ++s) {
    const std::vector<std::int64_t>& unsharded = units.unsharded[s];
    const std::int64_t num_units = static_cast<std::int64_t>(unsharded.size()) - 1;
    const std::int64_t first_kept = std::max<std::int64_t>(0, num_units - kept);
    // Unit and block numbers correspond only if the units consist of all blocks of all stacks.
    const std::int64_t group = families_.wrappings[family.wrapping].blocks_per_unit;
    const std::int64_t num_blocks = static_cast<std::int64_t>(stacks_[s].calls.size());
    if (units.unsharded.size() != stacks_.size() || (num_blocks + group - 1) / group != num_units) continue;
    std::int64_t passed = 0;
    if (own_stack == static_cast<int>(s)) {
      passed = own_block / group;
    } else if (stacks_[s].calls.back() < call) {
      passed = num_units;
    }
    if (passed > first_kept) bytes += unsharded[passed] - unsharded[first_kept];
  }
  return bytes;
}

std::int64_t LowerBounds::memory(const Family& family, const CallSums& calls, const UnitSums& units, std::int64_t kept,
                                 const CountRange& checkpointed) const {
  // If several backwards follow each other, no call need hold the activations of all calls before it.
  std::int64_t highest = units.states + units.optimizer_temporaries;
  if (!has_passes(*index_->model) && !units.is_fsdp2) highest += units.gradients;
  const auto look_at = [&](int call) {
    highest = std::max(highest, memory_at(family, calls, units, call, kept, checkpointed));
  };
  for (std::size_t s = 0; s < stacks_.size() && !has_passes(*index_->model); ++s) {
    const StackOfCalls& stack = stacks_[s];
    if (stack.calls.empty()) continue;
    look_at(stack.calls.back());
    if (checkpointed.most[s] > 0) look_at(stack.calls[static_cast<std::size_t>(checkpointed.most[s]) - 1]);
  }
  if (!has_passes(*index_->model)) {
    for (const int call : calls.outside) look_at(call);
  }
  // These are in pools of their own. An allocator that returns its cache need not keep them from one moment to another.
  if (units.is_fsdp2 && !is_tight_) highest += units.gradients + units.largest_gather;
  Bytes device(highest);
  for (const DeviceTerm& term : units.outside) device += term.bytes;
  if (is_tight_) return device.count();
  return (device + simulator::margin(Bytes(highest), units.outside, base_)).count();
}

Bound LowerBounds::bound(const Family& family, Interval kept, Interval checkpointed, Interval ways) {
  assert(!first_checkpoint_saves_work_ || checkpointed.first > 0 || checkpointed.last == 0);
  const CountRange counts{.fewest = families_.checkpointed(family, static_cast<std::int32_t>(checkpointed.first)),
                          .most = families_.checkpointed(family, static_cast<std::int32_t>(checkpointed.last))};
  const CallSums& calls = call_sums(family, checkpointed.first > 0, ways);
  const UnitSums& units = unit_sums(family);
  const double micro_batches = static_cast<double>(family.accumulation);
  const double reductions = family.sync_every_micro_batch ? micro_batches : 1;
  Seconds once = calls.compute;
  for (std::size_t s = 0; s < stacks_.size(); ++s) once += calls.added[s][static_cast<std::size_t>(counts.fewest[s])];
  const Seconds compute = micro_batches * once;
  const std::size_t most_kept = static_cast<std::size_t>(kept.last);
  const bool accumulates = family.accumulation > 1 && !family.sync_every_micro_batch;
  const Seconds kept_gradients = accumulates ? units.keeps + (micro_batches - 1) * units.adds : Seconds(0);
  const Seconds stream =
      compute + kept_gradients + micro_batches * units.copies[most_kept] + reductions * units.reduce_copies;
  const bool stays_gathered = search_traits(base_).stays_gathered_without_sync && accumulates;
  const Seconds gathers = (stays_gathered ? 1 : micro_batches) * units.gathers[most_kept];
  const Seconds reduces = reductions * units.reduces;
  const bool is_apart = families_.arguments[family.arguments].separate_reduce_scatter_group;
  const Seconds communicator = is_apart ? std::max(gathers, reduces) : gathers + reduces;
  const Seconds time = units.optimizer + std::max({units.root_gather + stream + units.last_reduce, communicator,
                                                   reductions * units.all_reduces});
  return {time.count(), memory(family, calls, units, kept.first, counts)};
}

}  // namespace fsdp::planner
