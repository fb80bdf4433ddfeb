// Changes of the trained parameters, their sizes, and the machine.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/name_pattern.h"
#include "core/plan/framework_traits.h"
#include "planner/advice/remedy_list.h"
#include "planner/space/batches.h"
#include "planner/space/strategy_names.h"

namespace fsdp::planner {

namespace {

/// Lengths are usually a multiple of this.
constexpr std::int64_t kRoundLength = 64;

/// A size that the user may set: its name and value.
struct Size {
  std::string name;
  std::int64_t value = 0;

  PlanChoices wish(std::int64_t wanted) const { return size_choice(name, static_cast<double>(wanted)); }
};

constexpr std::string_view kLengthDimension = "seq";

/// The choice of a size. The length of a packed row is its own choice.
PlanChoices wish_for(const RemedyRequest& request, const Size& size, std::int64_t wanted) {
  const bool is_row = request.workload.packing && size.name == kLengthDimension;
  return is_row ? PlanChoices{.packing = wanted} : size.wish(wanted);
}

/// Dimensions that are numbers instead of formulas, with the plan's values: the batch, then the lengths.
std::vector<Size> sizes_of(const RemedyRequest& request) {
  std::vector<Size> sizes;
  for (const Dimension& dimension : request.predictor.model().dimensions) {
    const SpecDimension* in_spec = find_dimension(request.spec.dimensions, dimension.name);
    const bool is_given = find_dimension(request.workload.dimensions, dimension.name) != nullptr;
    if (in_spec == nullptr && !is_given) continue;
    const bool is_number = is_given || in_spec->value.text.find_first_not_of("0123456789.") == std::string::npos;
    if (!is_number || dimension.value < 2 || dimension.value != std::floor(dimension.value)) continue;
    const Size size{dimension.name, static_cast<std::int64_t>(dimension.value)};
    sizes.insert(size.name == kBatchDimension ? sizes.begin() : sizes.end(), size);
  }
  return sizes;
}

/// Freezes each trained embedding table.
void try_freezing(RemedyList& list) {
  const RemedyRequest& request = list.request();
  const Model& model = request.predictor.model();
  Workload workload = request.workload;
  PlanChoices change;
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[call.block];
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::Embedding) continue;
      const int table = call.parameters[op.parameters.front()];
      const Parameter& parameter = model.parameters[static_cast<std::size_t>(table)];
      const bool is_new =
          std::find(workload.frozen.begin(), workload.frozen.end(), parameter.name) == workload.frozen.end();
      if (!parameter.receives_gradient || !is_new || num_elements(parameter.shape) < 1'000'000) continue;
      workload.frozen.push_back(parameter.name);
      std::string pattern = without_numbers(parameter.name);
      const bool is_new_pattern =
          std::none_of(change.frozen.begin(), change.frozen.end(),
                       [&](const std::string& other) { return other.find(pattern) != std::string::npos; });
      if (is_new_pattern) change.frozen.push_back(std::move(pattern));
    }
  }
  if (change.frozen.empty()) return;
  Workload sized = sized_workload(request);
  sized.frozen = workload.frozen;
  list.try_rebuilt({"freeze the embeddings", std::move(change)}, list.plan(), sized, request.cluster);
}

/// True if a step has a fixed number of samples on any number of GPUs.
bool has_global_batch(const RemedyRequest& request) {
  return request.space != nullptr && request.space->global_batch;
}

/// True if the samples of a step are fixed and the micro-batch is free.
bool has_samples(const RemedyRequest& request) {
  return has_global_batch(request) || (request.space != nullptr && request.space->samples_per_gpu);
}

/// Samples of a step with another micro-batch than the request's. 0 if unchanged.
std::int64_t changed_samples(const RemedyRequest& request, const Plan& plan, std::optional<std::int64_t> batch = {}) {
  const Dimension* found = find_dimension(request.predictor.model().dimensions, kBatchDimension);
  if (found == nullptr) return 0;
  const auto now = static_cast<std::int64_t>(found->value);
  const Plan& before = request.best.plan;
  const std::int64_t samples = batch.value_or(now) * micro_batches_of_step(plan);
  return samples == now * micro_batches_of_step(before) ? 0 : samples;
}

/// The plan and the workload with a smaller size. A smaller batch keeps the samples of a step if it divides them.
std::pair<Plan, Workload> with_size(const RemedyRequest& request, const Size& size, std::int64_t value) {
  Plan plan = request.best.plan;
  const std::int64_t samples = size.value * plan.accumulation;
  if (size.name == kBatchDimension && samples % value == 0) plan.accumulation = samples / value;
  return {std::move(plan), with_dimension(sized_workload(request), size.name, static_cast<double>(value))};
}

std::string describe(const Size& size, std::int64_t value, const Plan& after) {
  if (size.name != kBatchDimension) return fmt::format("{} {} instead of {}", size.name, value, size.value);
  if (after.accumulation == 1) return fmt::format("micro-batch {} instead of {}", value, size.value);
  return fmt::format("micro-batch {} x {} accumulation steps", value, after.accumulation);
}

void try_size(RemedyList& list, const Size& size, std::int64_t value) {
  const RemedyRequest& request = list.request();
  const auto [plan, workload] = with_size(request, size, value);
  PlanChoices change = wish_for(request, size, value);
  const bool is_batch = size.name == kBatchDimension;
  // If only one of the two is given, the other follows from the recipe.
  if (is_batch) change.accumulation = plan.accumulation;
  const std::int64_t samples = is_batch ? changed_samples(request, plan, value) : 0;
  list.try_rebuilt({describe(size, value, plan), std::move(change), samples}, plan, workload, request.cluster);
}

/// The largest value of a size for which this plan fits.
void find_size(RemedyList& list, const Size& size) {
  const RemedyRequest& request = list.request();
  std::int64_t fits = 0;
  std::int64_t too_large = size.value;
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    const auto [plan, workload] = with_size(request, size, middle);
    // A size that the model cannot have counts as too small: the search goes on above it.
    (list.fits(plan, workload, request.cluster).value_or(true) ? fits : too_large) = middle;
  }
  const bool must_divide = size.name == kBatchDimension && has_samples(request);
  if (size.name != kBatchDimension && fits > kRoundLength) fits -= fits % kRoundLength;
  while (must_divide && fits > 0 && (size.value * request.best.plan.accumulation) % fits != 0) --fits;
  if (fits > 0) try_size(list, size, fits);
}

struct Machine {
  Plan plan;
  Workload workload;
  Cluster cluster;
  std::optional<Space> space;  ///< The space to search on it. nullopt for a given plan.
};

/// Finds the micro-batch and accumulation for the same samples of a step on this number of GPUs. False if there are
/// none.
bool keep_samples(const RemedyRequest& request, Machine& machine) {
  const Space& space = *request.space;
  const std::int64_t world = world_size(machine.cluster);
  if (*space.global_batch % world != 0) return false;
  const std::int64_t per_gpu = *space.global_batch / world;
  const std::vector<Size> sizes = sizes_of(request);
  const bool has_batch = !sizes.empty() && sizes.front().name == kBatchDimension;
  std::int64_t micro = std::min(per_gpu, has_batch ? sizes.front().value : 1);
  while (per_gpu % micro != 0) --micro;
  if (space.micro_batch && *space.micro_batch != micro) return false;
  if (space.accumulation && *space.accumulation != per_gpu / micro) return false;
  machine.plan.accumulation = per_gpu / micro;
  if (has_batch)
    machine.workload = with_dimension(std::move(machine.workload), kBatchDimension, static_cast<double>(micro));
  return true;
}

/// The space that the same choices make for another machine. nullopt if the machine allows no such mesh.
std::optional<Space> space_on(Space space, const Cluster& cluster) {
  const std::int64_t world = world_size(cluster);
  if (!space.strategy.empty()) {
    const std::string strategy = space.strategy;
    if (!apply_strategy(strategy, cluster, space)) return std::nullopt;
  }
  if (space.replicate && world % *space.replicate == 0) space.shard = world / *space.replicate;
  if (traits_of(space.base).mesh == MeshRule::AllShards) space.shard = world;
  if (space.shard && world % *space.shard != 0) return std::nullopt;
  return space;
}

/// The plan on more GPUs: larger shard groups and as many copies as before; more copies if the groups are fixed.
std::optional<Machine> on_gpus(const RemedyRequest& request, int gpus_per_node, int nodes) {
  ClusterOverrides overrides;
  overrides.gpus_per_node = gpus_per_node;
  overrides.nodes = nodes;
  auto cluster = override_cluster(request.cluster, overrides);
  if (!cluster) return std::nullopt;
  Machine machine{request.best.plan, sized_workload(request), *std::move(cluster), std::nullopt};
  const std::int64_t world = world_size(machine.cluster);
  if (request.space != nullptr) {
    machine.space = space_on(*request.space, machine.cluster);
    if (!machine.space) return std::nullopt;
  }
  Mesh& mesh = machine.plan.mesh;
  const std::int64_t ep = mesh.ep;
  if (machine.space && machine.space->shard) {
    mesh = {world / *machine.space->shard, *machine.space->shard};
  } else {
    mesh = world % mesh.dp_replicate() == 0 ? Mesh{mesh.dp_replicate(), world / mesh.dp_replicate()} : Mesh{1, world};
  }
  mesh.ep = mesh.dp_shard() % ep == 0 ? ep : 1;
  if (has_global_batch(request) && !keep_samples(request, machine)) return std::nullopt;
  return machine;
}

bool try_gpus(RemedyList& list, int gpus_per_node, int nodes) {
  const auto machine = on_gpus(list.request(), gpus_per_node, nodes);
  if (!machine) return false;
  PlanChoices change{.gpus = gpus_per_node};
  if (nodes > 1) change.nodes = nodes;
  const RemedyRequest& request = list.request();
  const std::string what = fmt::format("{} GPUs", world_size(machine->cluster));
  // A fixed number of samples is divided anew, which requires a search.
  if (has_global_batch(request)) {
    const auto fits = list.try_search({what, change}, request.workload, machine->cluster, *machine->space);
    if (fits) return *fits;
  }
  const std::int64_t samples = has_global_batch(request) ? 0 : changed_samples(request, machine->plan);
  return list.try_rebuilt({what, change, samples}, machine->plan, machine->workload, machine->cluster);
}

/// A node has 1, 2, 4 or 8 GPUs; more GPUs need more nodes.
std::pair<int, int> next_size(int gpus_per_node, int nodes) {
  if (nodes > 1 || gpus_per_node >= 8) return {gpus_per_node, nodes * 2};
  int next = 1;
  while (next <= gpus_per_node) next *= 2;
  return {next, nodes};
}

void try_more_gpus(RemedyList& list) {
  const auto [gpus, nodes] = next_size(list.request().cluster.gpus_per_node, list.request().cluster.nodes);
  if (static_cast<std::int64_t>(gpus) * nodes > kLargestWorld) return;
  try_gpus(list, gpus, nodes);
}

void find_gpus(RemedyList& list) {
  int gpus = list.request().cluster.gpus_per_node;
  int nodes = list.request().cluster.nodes;
  while (true) {
    std::tie(gpus, nodes) = next_size(gpus, nodes);
    if (static_cast<std::int64_t>(gpus) * nodes > kLargestWorld) return;
    const auto machine = on_gpus(list.request(), gpus, nodes);
    if (!machine) continue;
    if (list.fits(machine->plan, machine->workload, machine->cluster).value_or(false)) {
      try_gpus(list, gpus, nodes);
      return;
    }
  }
}

/// The existing GPU with the least memory for which this plan fits.
void find_memory(RemedyList& list) {
  const RemedyRequest& request = list.request();
  if (!request.larger_gpus) return;
  const Workload workload = sized_workload(request);
  for (const LargerGpu& larger : request.larger_gpus()) {
    if (!list.fits(list.plan(), workload, larger.cluster).value_or(false)) continue;
    list.try_rebuilt({larger.what, larger.change}, list.plan(), workload, larger.cluster);
    return;
  }
}

/// The smallest node that holds the offloaded tensors.
void find_host_memory(RemedyList& list) {
  constexpr std::array<std::int64_t, 14> kSoldGib = {32,  48,  64,  96,   128,  192,  256,
                                                     384, 512, 768, 1024, 1536, 2048, 4096};
  const RemedyRequest& request = list.request();
  const Workload workload = sized_workload(request);
  for (const std::int64_t gib : kSoldGib) {
    ClusterOverrides overrides;
    overrides.host_memory = Bytes(gib << 30);
    const auto cluster = override_cluster(request.cluster, overrides);
    const bool is_more = request.cluster.host_memory && *overrides.host_memory > request.cluster.host_memory->value;
    if (!cluster || !is_more || !list.fits(list.plan(), workload, *cluster).value_or(false)) continue;
    list.try_rebuilt({fmt::format("{} GiB of memory per node", gib), {.host_memory = Bytes(gib << 30)}}, list.plan(),
                     workload, *cluster);
    return;
  }
}

}  // namespace

Workload sized_workload(const RemedyRequest& request) {
  Workload workload = request.workload;
  for (const Size& size : sizes_of(request)) {
    workload = with_dimension(std::move(workload), size.name, static_cast<double>(size.value));
  }
  return workload;
}

void try_size_changes(RemedyList& list) {
  try_freezing(list);
  const std::vector<Size> sizes = sizes_of(list.request());
  if (list.request().verdict == Verdict::Fits) {
    for (const Size& size : sizes) {
      const bool divides = (size.value * list.plan().accumulation) % (size.value / 2) == 0;
      if (size.name != kBatchDimension || (has_samples(list.request()) && !divides)) continue;
      try_size(list, size, size.value / 2);
    }
    try_more_gpus(list);
    return;
  }
  find_gpus(list);
  if (list.request().best.missing == Bytes(0)) return find_host_memory(list);  // The devices are large enough.
  for (const Size& size : sizes) find_size(list, size);
  find_memory(list);
}

}  // namespace fsdp::planner
