#include "planner/space/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/frameworks/layout.h"
#include "core/model/model_index.h"
#include "core/plan/expert_parallel.h"
#include "core/plan/framework_traits.h"
#include "core/plan/sharding.h"
#include "planner/space/batches.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/family_limits.h"
#include "planner/space/search_traits.h"
#include "planner/space/strategy_names.h"
#include "planner/space/wrap_apart.h"
#include "planner/space/wrap_policy.h"

namespace fsdp::planner {

namespace {

using Kind = ReshardAfterForward::Kind;

constexpr std::int32_t kCheckpointSteps = 14;

template <class T>
std::vector<T> fixed_or(const std::optional<T>& fixed, const std::vector<T>& range) {
  return fixed ? std::vector<T>{*fixed} : range;
}

std::string wrapping_label(const Wrap& wrap, bool has_blocks, bool ends, bool frozen) {
  const std::int64_t blocks_per_unit = wrap.blocks_per_unit;
  std::string label;
  if (wrap.parts != BlockParts::Whole) {
    label = wrap.parts == BlockParts::Sublayers ? "per sublayer" : "per projection";
  } else if (blocks_per_unit == 0 || !has_blocks) {
    label = "root";
  } else if (blocks_per_unit == 1) {
    label = "per block";
  } else {
    label = fmt::format("per {} blocks", blocks_per_unit);
  }
  if (ends) label += " + embeddings, head";
  if (frozen) label += " + frozen";
  return label;
}

/// Units inside blocks matter only for large blocks: up to four are on a device at a time, gathered or as gradients.
bool looks_inside_blocks(const Space& space, const Model& model, const Cluster& cluster, const Wrappables& wrappables) {
  if (space.parts_from == 0) return true;
  const std::int64_t gathered = wrappables.largest_block * size_of(activation_dtype(model, space.base)).count();
  return gathered >= cluster.gpu.usable_memory.value.count() / space.parts_from;
}

std::vector<Wrap> block_wraps(const Space& space, const Model& model, const Cluster& cluster,
                              const Wrappables& wrappables) {
  if (space.wrap) return {*space.wrap};
  std::vector<Wrap> wraps;
  for (const std::int64_t blocks : space.blocks_per_unit) wraps.push_back(Wrap{blocks, {}});
  if (!looks_inside_blocks(space, model, cluster, wrappables)) return wraps;
  for (const BlockParts parts : space.block_parts) {
    if (!wrappables.inside(parts).empty()) wraps.push_back(Wrap{1, {}, parts});
  }
  return wraps;
}

/// The wrappings that FSDP1 can express. A unit may be inside a block only if no block is checkpointed. Errors: those
/// of the last wrapping, if all have errors.
Result<std::vector<NamedWrapping>> wrappings_of_flat(const Space& space, const Model& model, const Cluster& cluster,
                                                     std::vector<NamedWrapping> wrappings) {
  const ModelIndex index = index_of(model);
  const bool may_checkpoint =
      space.checkpoint ? space.checkpoint->way.mode != CheckpointMode::None : !space.checkpoint_ways.empty();
  Plan plan = space.base;
  plan.mesh = {1, world_size(cluster)};
  if (may_checkpoint)
    checkpoint_first(plan, blocks_of(model), std::numeric_limits<std::int32_t>::max(), CheckpointMode::Full);
  Errors errors;
  const auto has_layout = [&](const NamedWrapping& named, std::int64_t kept) {
    plan.units = units_of(named.wrapping, Family{}, kept);
    auto layout = make_layout(index, plan);
    if (!layout) errors = std::move(layout).error();
    return layout.has_value();
  };
  std::erase_if(wrappings, [&](const NamedWrapping& named) { return !has_layout(named, 0); });
  const bool must_stay = space.reshard && space.reshard->kind == Kind::Never;
  for (NamedWrapping& named : wrappings) named.can_stay = has_layout(named, named.wrapping.longest());
  if (must_stay) std::erase_if(wrappings, [](const NamedWrapping& named) { return !named.can_stay; });
  if (wrappings.empty()) return tl::unexpected(std::move(errors));
  return wrappings;
}

/// Every distinct way of wrapping: without stacks or ends, some are the same.
Result<std::vector<NamedWrapping>> wrappings_of(const Space& space, const Model& model, const Cluster& cluster) {
  if (space.wrap && names_units(*space.wrap)) {
    FSDP_TRY(Wrapping wrapping, wrapping_by_name(model, *space.wrap));
    return std::vector{
        NamedWrapping{.wrapping = std::move(wrapping), .label = fmt::format("units {}", to_text(*space.wrap))}};
  }
  const Wrappables wrappables = wrappables_of(model);
  std::vector<bool> ends = {true, false};
  if (space.wrap_ends) ends = {*space.wrap_ends};
  // "root" means the root alone, unless the ends were requested by name.
  if (space.wrap && space.wrap->blocks_per_unit == 0 && !space.wrap_ends) ends = {false};
  std::vector<NamedWrapping> wrappings;
  for (const Wrap& wrap : block_wraps(space, model, cluster, wrappables)) {
    for (const bool with_ends : ends) {
      for (const bool with_frozen : {true, false}) {
        if (wrap.blocks_per_unit == 0 && with_frozen && space.wrap && !space.wrap_ends) continue;
        NamedWrapping named;
        FSDP_TRY(named.wrapping, wrapping_of(model, wrappables, wrap, with_ends, with_frozen));
        if (traits_of(space.base).has_flat_parameters) wrap_apart(model, space.base, named.wrapping);
        named.blocks_per_unit = wrap.blocks_per_unit;
        named.parts = wrap.parts;
        named.ends = with_ends && !wrappables.ends.empty();
        named.frozen = with_frozen && !wrappables.frozen.empty();
        named.label = wrapping_label(wrap, !wrappables.stacks.empty(), named.ends, named.frozen);
        const bool is_new = std::none_of(wrappings.begin(), wrappings.end(),
                                         [&](const NamedWrapping& other) { return other.wrapping == named.wrapping; });
        if (is_new) wrappings.push_back(std::move(named));
      }
    }
  }
  return wrappings;
}

/// 0, the powers of two, and all; or every number. No unit or all if units may not differ.
std::vector<std::int32_t> kept_numbers(const Space& space, std::int32_t all) {
  if (!search_traits(space.base).mixes_reshards) return {0, all};
  std::vector<std::int32_t> numbers = {0};
  for (std::int32_t n = 1; n < all; n = space.every_number ? n + 1 : 2 * n) numbers.push_back(n);
  numbers.push_back(all);
  return numbers;
}

/// None, and equal steps up to all of the blocks.
std::vector<std::int32_t> checkpoint_numbers(const Space& space, std::int32_t all) {
  const std::int32_t step = space.every_number ? 1 : (all + kCheckpointSteps - 1) / kCheckpointSteps;
  std::vector<std::int32_t> numbers = {0};
  for (std::int32_t n = step; n < all; n += step) numbers.push_back(n);
  numbers.push_back(all);
  return numbers;
}

struct Reshard {
  Kind kind = Kind::Always;
  std::int64_t world_size = 0;
  std::vector<std::int32_t> kept = {0};
  std::optional<ReshardAfterForward> root = {};
  bool head = false;
};

bool can_reshard_to(const Mesh& mesh, std::int64_t world_size) {
  return mesh.dp_shard() % world_size == 0 && mesh.dp_shard() != world_size;
}

/// If the root is the only unit, the requested setting applies to it.
std::vector<Reshard> reshards_of_root(const Space& space, const Mesh& mesh) {
  if (!space.reshard || space.reshard->keep_last > 0) return {Reshard{}};
  const ReshardChoice& fixed = *space.reshard;
  if (fixed.kind == Kind::Smaller && !can_reshard_to(mesh, fixed.world_size)) return {};
  return {Reshard{.root = ReshardAfterForward{fixed.kind, fixed.world_size}}};
}

/// The ways to reshard the units of a wrapping on a mesh.
std::vector<Reshard> reshards_of(const Space& space, const Cluster& cluster, const Mesh& mesh,
                                 const Wrapping& wrapping) {
  const auto longest = static_cast<std::int32_t>(wrapping.longest());
  if (longest == 0) return reshards_of_root(space, mesh);
  if (space.reshard) {
    const ReshardChoice& fixed = *space.reshard;
    if (fixed.kind == Kind::Never) return {Reshard{Kind::Always, 0, {longest}}};
    if (fixed.kind == Kind::Smaller) {
      if (!can_reshard_to(mesh, fixed.world_size)) return {};
      return {Reshard{Kind::Smaller, fixed.world_size, {0}}};
    }
    if (fixed.root) return {Reshard{.root = ReshardAfterForward{Kind::Always, 0}}};
    const auto kept = static_cast<std::int32_t>(std::min<std::int64_t>(fixed.keep_last, longest));
    return {Reshard{.kept = {kept}, .head = fixed.head}};
  }
  std::vector<Reshard> reshards = {{Kind::Always, 0, kept_numbers(space, longest)}};
  if (!search_traits(space.base).mixes_reshards) return reshards;
  const std::int64_t node = cluster.gpus_per_node;
  const bool gathers_in_float8 = space.base.float8 && space.base.float8->all_gather;
  if (cluster.nodes > 1 && node > 1 && !gathers_in_float8 && mesh.dp_shard() > node && mesh.dp_shard() % node == 0) {
    reshards.push_back({Kind::Smaller, node, {0}});
  }
  return reshards;
}

struct Checkpoint {
  std::vector<CheckpointWay> ways = {CheckpointMode::Full};
  int order = 0;
  std::vector<std::int32_t> numbers = {0};
};

/// Numbers of the orders by stack: equal steps and the whole first stack, without sets of blocks that an earlier order
/// has.
std::vector<std::int32_t> numbers_of_order(const Space& space, const std::vector<CheckpointOrder>& orders, int order,
                                           std::vector<StackCounts>& known) {
  const std::vector<StackCounts>& counts = orders[static_cast<std::size_t>(order)].counts;
  const auto all = static_cast<std::int32_t>(counts.size()) - 1;
  const std::int32_t step = space.every_number ? 1 : (all + kCheckpointSteps - 1) / kCheckpointSteps;
  // The number that completes the first stack; beyond it, that stack no longer grows.
  const auto first = static_cast<std::size_t>(order - 1);
  std::vector<std::int32_t> numbers;
  for (std::int32_t n = 1; n < all; ++n) {
    const StackCounts& each = counts[static_cast<std::size_t>(n)];
    const bool is_whole_first = each[first] == n && counts[static_cast<std::size_t>(n) + 1][first] == n;
    if (n % step != 0 && !is_whole_first) continue;
    if (std::find(known.begin(), known.end(), each) != known.end()) continue;
    known.push_back(each);
    numbers.push_back(n);
  }
  return numbers;
}

/// The checkpointing that the user fixed. If stacks differ, it has an order of its own.
Checkpoint fixed_checkpoint(const CheckpointChoice& choice, const StackCounts& counts, Families& families) {
  if (choice.way.mode == CheckpointMode::None || counts.empty()) return {};
  if (is_alike(counts, families.blocks)) return {{choice.way}, 0, {*std::max_element(counts.begin(), counts.end())}};
  families.orders.push_back({{alike(families.blocks, 0), counts}});
  return {{choice.way}, static_cast<int>(families.orders.size()) - 1, {1}};
}

/// No checkpointing is one point of the space: number 0 of the first order.
std::vector<Checkpoint> free_checkpoints(const Space& space, const Families& families, const Model& model) {
  const auto all = static_cast<std::int32_t>(families.longest_stack());
  const std::vector<CheckpointWay> ways = ways_to_search(space, model);
  if (all == 0 || ways.empty()) return {Checkpoint{}};
  std::vector<Checkpoint> checkpoints = {{ways, 0, checkpoint_numbers(space, all)}};
  const std::vector<StackCounts>& same = families.orders.front().counts;
  std::vector<StackCounts> known(same.begin(), same.end());
  for (int order = 1; order < static_cast<int>(families.orders.size()); ++order) {
    std::vector<std::int32_t> numbers = numbers_of_order(space, families.orders, order, known);
    if (!numbers.empty()) checkpoints.push_back({ways, order, std::move(numbers)});
  }
  if (space.expert_parallel.back() > 1 && !experts_can_run_again(space.base, model)) {
    // Families of their own, because shared experts have the first only.
    checkpoints.front().numbers.erase(checkpoints.front().numbers.begin());
    checkpoints.insert(checkpoints.begin(), Checkpoint{});
  }
  return checkpoints;
}

Result<std::vector<Checkpoint>> checkpoints_of(const Space& space, Families& families, const Model& model) {
  if (!space.checkpoint) return free_checkpoints(space, families, model);
  FSDP_TRY(const StackCounts counts, counts_of(*space.checkpoint, families.blocks));
  return std::vector{fixed_checkpoint(*space.checkpoint, counts, families)};
}

Result<std::vector<Mesh>> meshes_of(const Space& space, const Cluster& cluster) {
  const std::int64_t world = world_size(cluster);
  std::vector<std::int64_t> shards = shard_sizes(cluster);
  if (space.shard) {
    if (*space.shard < 1 || world % *space.shard != 0) {
      std::string sizes;
      for (const std::int64_t shard : shards) sizes += (sizes.empty() ? "" : ", ") + std::to_string(shard);
      return failure("--shard", fmt::format("{} must divide the number of GPUs, which is {}.", *space.shard, world),
                     fmt::format("Write one of {}.", sizes));
    }
    shards = {*space.shard};
  }
  if (space.hybrid) std::erase_if(shards, [&](std::int64_t shard) { return shard == 1 || shard == world; });
  std::vector<Mesh> meshes;
  for (const std::int64_t shard : shards) {
    for (const std::int64_t ep : space.expert_parallel) {
      Mesh mesh{world / shard, shard};
      mesh.ep = ep;
      if (shard % ep == 0) meshes.push_back(mesh);
    }
  }
  if (meshes.empty()) {
    return failure("--ep",
                   fmt::format("No shard group of {} GPUs can be divided into groups of {}.", world,
                               fmt::join(space.expert_parallel, " or ")),
                   "Write a divisor of the number of GPUs.");
  }
  return meshes;
}

/// With one micro-batch, "each" and "the last one" are the same.
std::vector<bool> syncs_of(const Space& space, const Batch& batch) {
  if (batch.accumulation > 1) return fixed_or(space.sync_every_micro_batch, space.gradient_syncs);
  return {space.sync_every_micro_batch.value_or(space.base.sync_every_micro_batch)};
}

/// The parts of a label that distinguish a point from its neighbors.
std::vector<std::string> label_parts(const Families& families, const PlanPoint& plan_point) {
  const Family& family = families.families[plan_point.family];
  const NamedWrapping& wrapping = families.wrappings[family.wrapping];
  Plan plan;
  plan.mesh = family.mesh;
  plan.units = units_of(wrapping.wrapping, family, plan_point.kept);
  plan.runtime.framework = families.framework;
  std::vector<std::string> parts = {strategy_name(plan)};
  if (family.mesh.ep > 1) parts.push_back(fmt::format("experts shared by {}", family.mesh.ep));
  const bool is_hybrid = family.mesh.dp_replicate() > 1 && family.mesh.dp_shard() > 1;
  if (is_hybrid) parts[0] += fmt::format(" {} x {}", family.mesh.dp_replicate(), family.mesh.dp_shard());
  const bool keeps_all = plan_point.kept > 0 && plan_point.kept >= wrapping.wrapping.longest();
  if (family.reshard == Kind::Smaller) {
    parts.push_back(fmt::format("reshard {}", family.reshard_world_size));
  } else if (plan_point.kept > 0 && !keeps_all) {
    parts.push_back(fmt::format("reshard False for the last {}", plan_point.kept));
  } else if (keeps_all && parts[0] != "SHARD_GRAD_OP") {
    parts.emplace_back("reshard False");
  }
  if (traits_of(plan).wraps_units) parts.push_back(wrapping.label);
  const StackCounts& counts = families.checkpointed(family, plan_point.checkpointed);
  const std::int64_t checkpointed = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (checkpointed > 0) {
    const CheckpointWay& way = families.way_of(plan_point);
    const std::string word = way.mode == CheckpointMode::Full ? "checkpoint" : to_text(way) + " checkpoint";
    // If the stacks differ, one number cannot describe them.
    parts.push_back(is_alike(counts, families.blocks)
                        ? fmt::format("{} {} of {}", word, checkpointed, families.num_blocks())
                        : fmt::format("{} {} blocks", word, fmt::join(counts, " + ")));
  }
  if (family.cpu_offload) parts.emplace_back("CPU offload");
  if (family.micro_batch > 0) parts.push_back(fmt::format("batch {} x {}", family.micro_batch, family.accumulation));
  if (family.accumulation > 1 && !family.sync_every_micro_batch) parts.emplace_back("gradients reduced once a step");
  if (family.forward_prefetch != 0) parts.push_back(fmt::format("forward prefetch {}", family.forward_prefetch));
  if (family.backward_prefetch != 1) parts.push_back(fmt::format("backward prefetch {}", family.backward_prefetch));
  for (std::string& text : texts_of_arguments(families.framework, families.arguments[family.arguments])) {
    parts.push_back(std::move(text));
  }
  return parts;
}

template <class T>
void keep_errors(const Result<T>& result, Errors& errors) {
  if (!result) append(errors, result.error());
}

}  // namespace

std::int64_t Families::size() const {
  std::int64_t points = 0;
  for (const Family& family : families) points += family.size();
  return points;
}

std::int64_t Families::num_blocks() const {
  std::size_t count = 0;
  for (const auto& stack : blocks) count += stack.size();
  return static_cast<std::int64_t>(count);
}

std::int64_t Families::longest_stack() const {
  std::size_t longest = 0;
  for (const auto& stack : blocks) longest = std::max(longest, stack.size());
  return static_cast<std::int64_t>(longest);
}

std::vector<std::int64_t> shard_sizes(const Cluster& cluster) {
  const std::int64_t world = world_size(cluster);
  std::vector<std::int64_t> sizes;
  for (std::int64_t shard = world; shard >= 1; --shard) {
    if (world % shard != 0) continue;
    // In a group that covers a node and a half, neighbors are on two networks; nobody runs that.
    const bool is_inside_node = cluster.gpus_per_node % shard == 0;
    const bool is_whole_nodes = shard % cluster.gpus_per_node == 0;
    if (shard == world || is_inside_node || is_whole_nodes) {
      sizes.push_back(shard);
    }
  }
  return sizes;
}

namespace {

/// Adds the family once for each set of arguments that has an effect on it.
void add_with_arguments(Family family, Families& result) {
  const bool has_units = result.wrappings[family.wrapping].wrapping.has_units();
  const bool is_one = are_without_effect(result.framework, family.mesh, has_units);
  for (std::size_t a = 0; a < (is_one ? 1 : result.arguments.size()); ++a) {
    // Parameters move to the host only together with the optimizer.
    const FrameworkArguments& arguments = result.arguments[a];
    if (!family.cpu_offload && a > 0 && (arguments.offload_param || arguments.drive)) continue;
    family.arguments = static_cast<int>(a);
    result.families.push_back(family);
  }
}

/// The reason why the space is empty although each dimension has a value.
Error why_empty(const Space& space, const Model& model, const Mesh& mesh, const Batch& batch,
                const Checkpoint& checkpoint) {
  Family family{.mesh = mesh, .accumulation = batch.accumulation};
  family.ways = checkpoint.ways;
  family.order = checkpoint.order;
  family.checkpointed = checkpoint.numbers;
  family.cpu_offload = space.cpu_offload.value_or(false);
  family.forward_prefetch = space.forward_prefetch.value_or(0);
  family.backward_prefetch = space.backward_prefetch.value_or(1);
  family.sync_every_micro_batch = syncs_of(space, batch).front();
  if (space.checkpoint && space.checkpoint->way.mode != CheckpointMode::None) family.checkpointed = {1};
  if (auto misfit = family_misfit(space.base, family, model)) return *std::move(misfit);
  return {"--reshard", fmt::format("{} does not divide any of the shard sizes.", space.reshard->world_size),
          "Write true, false, or a number that divides the shard size and is neither 1 nor all of it."};
}

/// Why the units that a user fixed are not those of experts that ranks share.
std::optional<Error> not_of_transformers(const Space& space) {
  const auto decided = [](std::string option) {
    return Error{std::move(option), "transformers decides the units beside experts that GPUs share.",
                 "Leave it out, or --ep."};
  };
  if (space.wrap && *space.wrap != Wrap{}) return decided("--wrap");
  if (space.wrap_ends && !*space.wrap_ends) return decided("--wrap-ends");
  if (space.reshard && *space.reshard != ReshardChoice{}) return decided("--reshard");
  return std::nullopt;
}

/// Adds the one wrapping of meshes whose ranks share experts. Error: the user fixed other units.
std::optional<Error> wrap_experts(const Space& space, const Model& model, std::vector<NamedWrapping>& wrappings) {
  if (space.expert_parallel.back() == 1) return std::nullopt;
  if (auto misfit = not_of_transformers(space)) return misfit;
  NamedWrapping named{.wrapping = wrapping_of_transformers(model),
                      .label = "per block + experts, embeddings, head",
                      .parts = BlockParts::Sublayers,
                      .ends = true,
                      .can_stay = false};
  if (named.wrapping.experts.empty()) return std::nullopt;
  const auto is_tied = [](const Parameter& parameter) { return !parameter.tied_names.empty(); };
  if (std::any_of(model.parameters.begin(), model.parameters.end(), is_tied)) {
    return Error{"--ep",
                 "A tied head, whose weight and module are in two units, is not predicted beside shared experts.",
                 "Leave --ep out."};
  }
  wrappings.push_back(std::move(named));
  return std::nullopt;
}

/// The ways to reshard on a mesh; transformers reshards all units but the last two modules.
std::vector<Reshard> reshards_on(const Space& space, const Cluster& cluster, const Mesh& mesh,
                                 const NamedWrapping& named) {
  const bool is_shared = !named.wrapping.experts.empty();
  if (is_shared != (mesh.ep > 1)) return {};
  if (is_shared) return {Reshard{}};
  std::vector<Reshard> reshards = reshards_of(space, cluster, mesh, named.wrapping);
  for (Reshard& reshard : reshards) {
    if (!named.can_stay) reshard.kept = {0};
  }
  return reshards;
}

/// Removes the arguments that a search on other machines does not use.
void drop_of_other_nodes(std::vector<FrameworkArguments>& arguments, const Cluster& cluster) {
  const auto is_of_others = [&](const FrameworkArguments& each) {
    // A drive is for nodes whose host memory is too small; without a known host memory we cannot tell.
    const bool is_pointless = each.drive && !arguments.front().drive && !cluster.host_memory;
    return is_pointless || !suits(each, world_size(cluster), cluster.gpus_per_node);
  };
  arguments.erase(std::remove_if(arguments.begin() + 1, arguments.end(), is_of_others), arguments.end());
}

}  // namespace

Result<Families> families_of(const Space& given, const Model& model, const Cluster& cluster) {
  FSDP_TRY(const Space space, said_by_runtime(given));
  Errors errors;
  auto wrappings = wrappings_of(space, model, cluster);
  if (wrappings && traits_of(space.base).has_flat_parameters) {
    wrappings = wrappings_of_flat(space, model, cluster, *std::move(wrappings));
  }
  const auto meshes = meshes_of(space, cluster);
  const auto batches = batches_of(space, cluster);
  Families result;
  result.framework = space.base.runtime.framework;
  result.blocks = blocks_of(model);
  result.orders = orders_of(model);
  const auto checkpoints = checkpoints_of(space, result, model);
  keep_errors(wrappings, errors);
  keep_errors(meshes, errors);
  keep_errors(batches, errors);
  keep_errors(checkpoints, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));

  result.wrappings = *std::move(wrappings);
  if (auto misfit = wrap_experts(space, model, result.wrappings)) return tl::unexpected(Errors{*std::move(misfit)});
  result.arguments = space.arguments;
  if (result.arguments.empty()) result.arguments.push_back(arguments_of(space.base));
  drop_of_other_nodes(result.arguments, cluster);
  const auto add_with_prefetch = [&](Family family) {
    for (const std::int64_t forward : fixed_or(space.forward_prefetch, space.forward_prefetches)) {
      for (const std::int64_t backward : fixed_or(space.backward_prefetch, space.backward_prefetches)) {
        family.forward_prefetch = forward;
        family.backward_prefetch = backward;
        if (!family_misfit(space.base, family, model)) add_with_arguments(family, result);
      }
    }
  };
  const auto add_with = [&](Family family) {
    for (const bool offload : fixed_or(space.cpu_offload, space.cpu_offloads)) {
      for (const Batch& batch : *batches) {
        family.cpu_offload = offload;
        family.micro_batch = batch.micro_batch;
        family.accumulation = batch.accumulation;
        for (const bool every : syncs_of(space, batch)) {
          family.sync_every_micro_batch = every;
          add_with_prefetch(family);
        }
      }
    }
  };
  for (const Mesh& mesh : *meshes) {
    for (std::size_t w = 0; w < result.wrappings.size(); ++w) {
      for (const Reshard& reshard : reshards_on(space, cluster, mesh, result.wrappings[w])) {
        for (const Checkpoint& checkpoint : *checkpoints) {
          Family family;
          family.mesh = mesh;
          family.wrapping = static_cast<int>(w);
          family.reshard = reshard.kind;
          family.reshard_world_size = reshard.world_size;
          family.root = reshard.root;
          family.keeps_head = reshard.head;
          family.kept = reshard.kept;
          family.ways = checkpoint.ways;
          family.order = checkpoint.order;
          family.checkpointed = checkpoint.numbers;
          add_with(family);
        }
      }
    }
  }
  if (!result.families.empty()) return result;
  return tl::unexpected(Errors{why_empty(space, model, meshes->front(), batches->front(), checkpoints->front())});
}

std::vector<Unit> units_of(const Wrapping& wrapping, const Family& family, std::int64_t kept) {
  const ReshardAfterForward resharded{family.reshard, family.reshard_world_size};
  const ReshardAfterForward never{Kind::Never, 0};
  std::vector<Unit> units;
  std::size_t num_units = wrapping.experts.size() + wrapping.idle.size() + wrapping.others.size() +
                          wrapping.kept_ends.size() + wrapping.roots.size() + 1;
  for (const std::vector<UnitGroup>& stack : wrapping.stacks) {
    for (const UnitGroup& group : stack) num_units += group.size();
  }
  units.reserve(num_units);
  for (const UnitModules& experts : wrapping.experts) units.push_back({experts, {Kind::Always, 0}});
  for (const UnitModules& idle : wrapping.idle) units.push_back({idle, resharded});
  for (const std::vector<UnitGroup>& stack : wrapping.stacks) {
    for (std::size_t i = 0; i < stack.size(); ++i) {
      const bool is_kept = static_cast<std::int64_t>(stack.size() - i) <= kept;
      for (const UnitModules& unit : stack[i]) units.push_back({unit, is_kept ? never : resharded});
    }
  }
  const bool all_kept = wrapping.has_units() && kept >= wrapping.longest();
  for (const UnitModules& other : wrapping.others) {
    const bool is_head = family.keeps_head &&
                         std::find(wrapping.heads.begin(), wrapping.heads.end(), other.front()) != wrapping.heads.end();
    units.push_back({other, all_kept || is_head ? never : resharded});
  }
  for (const UnitModules& kept_end : wrapping.kept_ends) units.push_back({kept_end, never});
  for (const UnitModules& root : wrapping.roots) units.push_back({root, family.root.value_or(ReshardAfterForward{})});
  units.push_back({{""}, family.root.value_or(ReshardAfterForward{})});
  return units;
}

Plan plan_of(const Plan& base, const Families& families, const PlanPoint& plan_point) {
  const Family& family = families.families[plan_point.family];
  Plan plan = base;
  plan.mesh = family.mesh;
  plan.units = units_of(families.wrappings[family.wrapping].wrapping, family, plan_point.kept);
  checkpoint_first(plan, families.blocks, families.checkpointed(family, plan_point.checkpointed),
                   families.way_of(plan_point));
  if (plan.checkpointing.entries.empty()) plan.checkpointing.offload_inputs = false;
  plan.accumulation = family.accumulation;
  plan.sync_every_micro_batch = family.sync_every_micro_batch;
  plan.forward_prefetch = family.forward_prefetch;
  plan.backward_prefetch = family.backward_prefetch;
  set_arguments(plan, families.arguments[family.arguments]);
  set_offload(plan, family.cpu_offload);
  return plan;
}

std::string label_of(const Families& families, const PlanPoint& plan_point) {
  return fmt::format("{}", fmt::join(label_parts(families, plan_point), ", "));
}

std::string difference_of(const Families& families, const PlanPoint& plan_point, const PlanPoint& other) {
  std::vector<std::string> more = label_parts(families, plan_point);
  std::vector<std::string> less = label_parts(families, other);
  const std::vector<std::string> all_more = more;
  const auto erase_those_of = [](std::vector<std::string>& parts, const std::vector<std::string>& others) {
    std::erase_if(
        parts, [&](const std::string& part) { return std::find(others.begin(), others.end(), part) != others.end(); });
  };
  erase_those_of(more, less);
  erase_those_of(less, all_more);
  if (!more.empty()) return fmt::format("{}", fmt::join(more, ", "));
  return less.empty() ? "" : fmt::format("without {}", fmt::join(less, ", "));
}

}  // namespace fsdp::planner
