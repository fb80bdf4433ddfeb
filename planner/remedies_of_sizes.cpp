// Changes of what is trained, of its sizes, and of the machine.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/name_pattern.h"
#include "planner/predictors.h"
#include "planner/remedy_list.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kMostGpus = 1 << 20;

/// A size that the user may set: its name and value.
struct Size {
  std::string name;
  std::int64_t value = 0;

  std::string flag(std::int64_t wanted) const {
    if (name == kBatchDimension) return fmt::format("--batch {}", wanted);
    if (name == "seq") return fmt::format("--seq {}", wanted);
    return fmt::format("--set {}={}", name, wanted);
  }
};

/// Dimensions that are numbers rather than formulas, as the plan has them: the batch, then the lengths.
std::vector<Size> sizes_of(const RemedyRequest& request) {
  std::vector<Size> sizes;
  for (const Dimension& dimension : request.predictor.model().dimensions) {
    const auto in_spec = std::find_if(request.spec.dimensions.begin(), request.spec.dimensions.end(),
                                      [&](const SpecDimension& spec) { return spec.name == dimension.name; });
    const bool is_given = std::any_of(request.workload.dimensions.begin(), request.workload.dimensions.end(),
                                      [&](const Dimension& given) { return given.name == dimension.name; });
    if (in_spec == request.spec.dimensions.end() && !is_given) continue;
    const bool is_number = is_given || in_spec->value.text.find_first_not_of("0123456789.") == std::string::npos;
    if (!is_number || dimension.value < 2 || dimension.value != std::floor(dimension.value)) continue;
    const Size size{dimension.name, static_cast<std::int64_t>(dimension.value)};
    sizes.insert(size.name == kBatchDimension ? sizes.begin() : sizes.end(), size);
  }
  return sizes;
}

/// The workload with the sizes that the search chose, which the user's own may not have.
Workload sized_workload(const RemedyRequest& request) {
  Workload workload = request.workload;
  for (const Size& size : sizes_of(request)) {
    workload = with_dimension(std::move(workload), size.name, static_cast<double>(size.value));
  }
  return workload;
}

/// Freezes each embedding table that is trained.
void try_freezing(RemedyList& list) {
  const RemedyRequest& request = list.request();
  const Model& model = request.predictor.model();
  Workload workload = request.workload;
  std::string names;
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[static_cast<std::size_t>(call.block)];
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::Embedding) continue;
      const int table = call.parameters[static_cast<std::size_t>(op.parameters.front())];
      const Parameter& parameter = model.parameters[static_cast<std::size_t>(table)];
      const bool is_new =
          std::find(workload.frozen.begin(), workload.frozen.end(), parameter.name) == workload.frozen.end();
      if (!parameter.receives_gradient || !is_new || num_elements(parameter.shape) < 1'000'000) continue;
      workload.frozen.push_back(parameter.name);
      const std::string pattern = without_numbers(parameter.name);
      if (names.find(pattern) == std::string::npos) names += (names.empty() ? "" : " ") + pattern;
    }
  }
  if (names.empty()) return;
  Workload sized = sized_workload(request);
  sized.frozen = workload.frozen;
  list.try_rebuilt("freeze the embeddings", "--freeze " + names, list.plan(), sized, request.cluster);
}

/// The plan and the workload with a smaller size; a smaller batch keeps the samples of a step where it divides.
std::pair<Plan, Workload> with_size(const RemedyRequest& request, const Size& size, std::int64_t value) {
  Plan plan = request.best.plan;
  if (size.name == kBatchDimension && size.value % value == 0) plan.accumulation *= size.value / value;
  return {std::move(plan), with_dimension(sized_workload(request), size.name, static_cast<double>(value))};
}

std::string describe(const Size& size, std::int64_t value, const Plan& before, const Plan& after) {
  std::string what = size.name == kBatchDimension ? fmt::format("a micro-batch of {} instead of {}", value, size.value)
                                                  : fmt::format("{} of {} instead of {}", size.name, value, size.value);
  if (after.accumulation != before.accumulation) what += fmt::format(", {} times", after.accumulation);
  return what;
}

void try_size(RemedyList& list, const Size& size, std::int64_t value) {
  const RemedyRequest& request = list.request();
  const auto [plan, workload] = with_size(request, size, value);
  std::string flag = size.flag(value);
  if (plan.accumulation != request.best.plan.accumulation) flag += fmt::format(" --accumulate {}", plan.accumulation);
  list.try_rebuilt(describe(size, value, request.best.plan, plan), flag, plan, workload, request.cluster);
}

/// The largest value of a size with which this plan fits.
void find_size(RemedyList& list, const Size& size) {
  const RemedyRequest& request = list.request();
  std::int64_t fits = 0;
  std::int64_t too_large = size.value;
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    const auto [plan, workload] = with_size(request, size, middle);
    // A size that the model cannot have counts as too small to matter: the search goes on above it.
    (list.fits(plan, workload, request.cluster).value_or(true) ? fits : too_large) = middle;
  }
  if (fits > 0) try_size(list, size, fits);
}

struct Machine {
  Plan plan;
  Cluster cluster;
};

/// The plan on more GPUs: sharded over all of them, or with more replicas where there were some.
std::optional<Machine> on_gpus(const RemedyRequest& request, int gpus_per_node, int nodes) {
  ClusterOverrides overrides;
  overrides.gpus_per_node = gpus_per_node;
  overrides.nodes = nodes;
  auto cluster = override_cluster(request.cluster, overrides);
  if (!cluster) return std::nullopt;
  Machine machine{request.best.plan, *std::move(cluster)};
  const std::int64_t world = world_size(machine.cluster);
  Mesh& mesh = machine.plan.mesh;
  mesh = mesh.replicate == 1 || world % mesh.shard != 0 ? Mesh{1, world} : Mesh{world / mesh.shard, mesh.shard};
  return machine;
}

bool try_gpus(RemedyList& list, int gpus_per_node, int nodes) {
  const RemedyRequest& request = list.request();
  const auto machine = on_gpus(request, gpus_per_node, nodes);
  if (!machine) return false;
  std::string flag = fmt::format("--gpus {}", gpus_per_node);
  if (nodes > 1) flag += fmt::format(" --nodes {}", nodes);
  return list.try_rebuilt(fmt::format("{} GPUs", world_size(machine->cluster)), flag, machine->plan,
                          sized_workload(request), machine->cluster);
}

std::pair<int, int> twice(int gpus_per_node, int nodes) {
  return nodes == 1 && gpus_per_node < 8 ? std::pair(gpus_per_node * 2, nodes) : std::pair(gpus_per_node, nodes * 2);
}

void try_more_gpus(RemedyList& list) {
  const Cluster& cluster = list.request().cluster;
  if (cluster.nodes == 1) try_gpus(list, cluster.gpus_per_node + 1, 1);
  const auto [gpus, nodes] = twice(cluster.gpus_per_node, cluster.nodes);
  try_gpus(list, gpus, nodes);
}

void find_gpus(RemedyList& list) {
  int gpus = list.request().cluster.gpus_per_node;
  int nodes = list.request().cluster.nodes;
  while (static_cast<std::int64_t>(gpus) * nodes < kMostGpus) {
    std::tie(gpus, nodes) = twice(gpus, nodes);
    const auto machine = on_gpus(list.request(), gpus, nodes);
    if (!machine) return;
    if (list.fits(machine->plan, sized_workload(list.request()), machine->cluster).value_or(false)) {
      try_gpus(list, gpus, nodes);
      return;
    }
  }
}

/// The memory that this plan needs, in whole GiB.
void find_memory(RemedyList& list) {
  const RemedyRequest& request = list.request();
  const Bytes now = request.cluster.gpu.memory.value;
  constexpr std::int64_t kGib = 1 << 30;
  std::int64_t gib = ((now + request.best.missing).count() + kGib - 1) / kGib;
  // The context and the margin may grow with the memory: a few more are tried.
  for (int attempt = 0; attempt < 4; ++attempt, ++gib) {
    ClusterOverrides overrides;
    overrides.memory = Bytes(gib * kGib);
    const auto cluster =
        request.with_memory ? request.with_memory(*overrides.memory) : override_cluster(request.cluster, overrides);
    if (!cluster) return;
    const Workload workload = sized_workload(request);
    if (!list.fits(list.plan(), workload, *cluster).value_or(false)) continue;
    list.try_rebuilt(fmt::format("{} GiB of memory on each GPU", gib), fmt::format("--mem {}G", gib), list.plan(),
                     workload, *cluster);
    return;
  }
}

}  // namespace

void try_size_changes(RemedyList& list) {
  try_freezing(list);
  const std::vector<Size> sizes = sizes_of(list.request());
  if (list.request().verdict == Verdict::Fits) {
    for (const Size& size : sizes) try_size(list, size, size.value / 2);
    try_more_gpus(list);
    return;
  }
  for (const Size& size : sizes) find_size(list, size);
  find_gpus(list);
  find_memory(list);
}

}  // namespace fsdp::planner
