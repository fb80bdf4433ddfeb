// A remedy is the plan with one thing changed. Nothing is estimated: each changed plan is predicted in full, on a model
// and a cluster built anew where the change is in them.
//
// When no plan fits, four questions are answered by asking the predictor for the plan that needs least: how much memory
// a GPU must have, how many GPUs are enough (doubling them), and up to which batch or length it fits (bisection: a
// smaller batch or length never needs more live memory). Another plan may do with even less; what is printed is enough.

#include "planner/remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "planner/predictors.h"
#include "planner/wrapping.h"

namespace fsdp::planner {

namespace {

using simulator::Detail;
using simulator::Outcome;
using simulator::Predictor;

/// Changes below this are noise of the allocator, and no remedy.
constexpr Bytes kLeastSaving(8 << 20);
constexpr std::int64_t kMostGpus = 1 << 20;

class RemedyList {
 public:
  explicit RemedyList(const RemedyRequest& request) : request_(request), plan_(request.best.plan) {}

  /// A change of the plan alone.
  void try_plan(std::string what, std::string flag, const Plan& plan) {
    add(std::move(what), std::move(flag), request_.predictor.evaluate(plan, Detail::Memory));
  }

  /// A change of the sizes, of what is trained, or of the machine. False when it does not fit or cannot be.
  bool try_rebuilt(std::string what, std::string flag, const Plan& plan, const Workload& workload,
                   const Cluster& cluster) {
    const auto outcome = predict(plan, workload, cluster);
    add(std::move(what), std::move(flag), outcome);
    return outcome && outcome->fits;
  }

  Result<Outcome> predict(const Plan& plan, const Workload& workload, const Cluster& cluster) const {
    FSDP_TRY(Model model, build_model(request_.spec, workload));
    Predictor predictor(std::move(model), cluster);
    return predictor.evaluate(plan, Detail::Memory);
  }

  std::vector<Remedy> take() {
    std::stable_sort(remedies_.begin(), remedies_.end(), [](const Remedy& a, const Remedy& b) {
      if (a.verdict != b.verdict) return a.verdict == Verdict::Fits;
      return a.delta_bytes < b.delta_bytes;
    });
    return std::move(remedies_);
  }

  const RemedyRequest& request() const { return request_; }
  const Plan& plan() const { return plan_; }

 private:
  void add(std::string what, std::string flag, const Result<Outcome>& outcome) {
    if (!outcome) return;  // The change makes no valid plan of this model: nothing to offer.
    Remedy remedy{std::move(what), std::move(flag), outcome->peaks.device - request_.best.device_peak,
                  outcome->step - request_.best.step, outcome->fits ? Verdict::Fits : Verdict::DoesNotFit};
    const bool saves_bytes = remedy.delta_bytes <= -kLeastSaving;
    const bool saves_time = remedy.delta_time < -0.002 * request_.best.step;
    const bool begins_to_fit = request_.verdict != Verdict::Fits && outcome->fits;
    if (saves_bytes || saves_time || begins_to_fit) remedies_.push_back(std::move(remedy));
  }

  const RemedyRequest& request_;
  const Plan& plan_;
  std::vector<Remedy> remedies_;
};

/// The blocks of all stacks, by stack.
std::vector<std::vector<std::string>> blocks_of(const Model& model) {
  std::vector<std::vector<std::string>> stacks;
  for (const Stack& stack : model.stacks) {
    stacks.emplace_back();
    for (const int call : stack.calls) {
      const int module = model.calls[static_cast<std::size_t>(call)].module;
      stacks.back().push_back(model.modules[static_cast<std::size_t>(module)].name);
    }
  }
  return stacks;
}

Plan with_checkpointing(Plan plan, const std::vector<std::vector<std::string>>& stacks, std::size_t blocks,
                        CheckpointMode mode) {
  plan.checkpointing.entries.clear();
  for (const auto& stack : stacks) {
    for (std::size_t i = 0; i < std::min(blocks, stack.size()); ++i) {
      plan.checkpointing.entries.push_back({stack[i], mode});
    }
  }
  return plan;
}

void try_checkpointing(RemedyList& list) {
  const auto stacks = blocks_of(list.request().predictor.model());
  std::size_t longest = 0;
  for (const auto& stack : stacks) longest = std::max(longest, stack.size());
  if (longest == 0) return;
  const auto& entries = list.plan().checkpointing.entries;
  std::size_t now = 0;
  for (const auto& stack : stacks) {
    const auto is_checkpointed = [&](const std::string& block) {
      return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.module == block; });
    };
    now = std::max(now, static_cast<std::size_t>(std::count_if(stack.begin(), stack.end(), is_checkpointed)));
  }
  const bool is_selective = !entries.empty() && entries.front().mode == CheckpointMode::Selective;
  const CheckpointMode mode = is_selective ? CheckpointMode::Selective : CheckpointMode::Full;
  const std::string name = is_selective ? "selective" : "full";
  const std::size_t more = std::min(longest, now + std::max<std::size_t>(1, longest / 4));
  if (more > now && more < longest) {
    list.try_plan(fmt::format("checkpoint {} more {}", more - now, more - now == 1 ? "block" : "blocks"),
                  fmt::format("--checkpoint {}:{}", name, more), with_checkpointing(list.plan(), stacks, more, mode));
  }
  if (now < longest) {
    list.try_plan("checkpoint all blocks", fmt::format("--checkpoint {}", name),
                  with_checkpointing(list.plan(), stacks, longest, mode));
  }
  const CheckpointMode other = is_selective ? CheckpointMode::Full : CheckpointMode::Selective;
  const std::string other_name = is_selective ? "full" : "selective";
  list.try_plan(fmt::format("{} checkpointing of all blocks", other_name), fmt::format("--checkpoint {}", other_name),
                with_checkpointing(list.plan(), stacks, longest, other));
}

void try_optimizer(RemedyList& list) {
  Plan plan = list.plan();
  if (plan.optimizer.implementation == OptimizerImplementation::Foreach) {
    plan.optimizer.implementation = OptimizerImplementation::Fused;
    list.try_plan("use the fused optimizer", "--optimizer-impl fused", plan);
  }
  plan = list.plan();
  if (plan.optimizer.states == OptimizerStates::AsParameter && plan.optimizer.kind != OptimizerKind::Sgd) {
    plan.optimizer.states = OptimizerStates::BFloat16;
    list.try_plan("keep the optimizer states in bfloat16", "--states bfloat16", plan);
    plan.optimizer.states = OptimizerStates::EightBit;
    list.try_plan("keep the optimizer states in 8 bits", "--states 8bit", plan);
  }
}

void try_allocator(RemedyList& list) {
  Plan plan = list.plan();
  std::string& settings = plan.runtime.allocator_settings;
  if (settings.find("expandable_segments") != std::string::npos) return;
  settings += settings.empty() ? "expandable_segments:True" : ",expandable_segments:True";
  list.try_plan("let the allocator grow its segments", fmt::format("--alloc-conf {}", settings), plan);
}

void try_offload(RemedyList& list) {
  Plan plan = list.plan();
  if (plan.cpu_offload) return;
  plan.cpu_offload = true;
  list.try_plan("keep shards, gradients and optimizer on the CPU", "--offload yes", plan);
}

bool is_unit(const Plan& plan, const std::string& module) {
  return std::any_of(plan.units.begin(), plan.units.end(), [&](const Unit& unit) {
    return std::find(unit.modules.begin(), unit.modules.end(), module) != unit.modules.end();
  });
}

void try_ends(RemedyList& list) {
  const Model& model = list.request().predictor.model();
  Plan plan = list.plan();
  for (const int end : wrappables_of(model).ends) {
    const std::string& name = model.modules[static_cast<std::size_t>(end)].name;
    if (!is_unit(plan, name)) plan.units.insert(plan.units.end() - 1, Unit{{name}, {}});
  }
  if (plan.units != list.plan().units) {
    list.try_plan("make units of embeddings and heads", "--wrap-ends yes", plan);
  }
}

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

/// "codec_embedding.*.weight": one pattern for a row of names.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (begin == 0 ? "" : ".") + (is_number ? "*" : part);
    begin = end + 1;
  }
  return pattern;
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
    const auto outcome = list.predict(plan, workload, request.cluster);
    // A size that the model cannot have counts as too small to matter: the search goes on above it.
    (outcome && !outcome->fits ? too_large : fits) = middle;
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
    const auto outcome = list.predict(machine->plan, sized_workload(list.request()), machine->cluster);
    if (outcome && outcome->fits) {
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
    const auto cluster = override_cluster(request.cluster, overrides);
    if (!cluster) return;
    const Workload workload = sized_workload(request);
    if (list.try_rebuilt(fmt::format("{} GiB of memory on each GPU", gib), fmt::format("--mem {}G", gib), list.plan(),
                         workload, *cluster)) {
      return;
    }
  }
}

}  // namespace

Result<std::vector<Remedy>> remedies_for(const RemedyRequest& request) {
  RemedyList list(request);
  try_checkpointing(list);
  try_offload(list);
  try_optimizer(list);
  try_allocator(list);
  try_ends(list);
  try_freezing(list);
  const std::vector<Size> sizes = sizes_of(request);
  if (request.verdict == Verdict::Fits) {
    for (const Size& size : sizes) try_size(list, size, size.value / 2);
    try_more_gpus(list);
  } else {
    for (const Size& size : sizes) find_size(list, size);
    find_gpus(list);
    find_memory(list);
  }
  return list.take();
}

}  // namespace fsdp::planner
