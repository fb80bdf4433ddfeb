// The best machine for a run.
//
// Each machine gets the search that naming it alone would start, so every row of the comparison equals the answer of
// its own command. Machines have different numbers of GPUs and so, unless the user fixed them, different samples a
// step. Therefore we compare them by the sample:
//
//   time   step / samples
//   cost   GPUs x step / samples, in GPU-seconds, or times the price of the GPU
//
// Equal ones are in the order in which they were given, the smallest number of GPUs first.
//
// Not modeled: a larger number of samples a step may need more or fewer of them to reach the same loss; minimum rental
// times; prices that fall with the number of GPUs.

#include "planner/request/machine_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "core/cluster/cluster_reader.h"
#include "core/report/device_verdict.h"
#include "planner/request/compared_search.h"
#include "planner/request/plan_machines.h"
#include "planner/space/batches.h"

namespace fsdp::planner {

namespace {

constexpr double kSecondsPerHour = 3600;
constexpr int kLargestRentedNode = 8;

/// A machine to try.
struct MachineTrial {
  ComparedMachine machine;
  std::optional<ResolvedRequest> request;
};

std::vector<int> powers_of_two(int first, int most) {
  std::vector<int> powers;
  for (std::int64_t power = first; power <= most; power *= 2) powers.push_back(static_cast<int>(power));
  return powers;
}

template <class T>
std::vector<std::optional<T>> or_left_open(const std::vector<T>& values) {
  if (values.empty()) return {std::nullopt};
  return {values.begin(), values.end()};
}

/// True for a choice that some sizes of machines allow and others do not.
bool is_about_its_size(const Error& error) {
  constexpr PlanChoice kSizes[] = {PlanChoice::Shard, PlanChoice::Replicate, PlanChoice::Strategy, PlanChoice::Reshard,
                                   PlanChoice::GlobalBatch};
  return std::any_of(std::begin(kSizes), std::end(kSizes),
                     [&](PlanChoice choice) { return error.where == place_of(choice); });
}

/// Notes why a machine is impossible. Returns the errors that do not depend on its size.
Errors refuse(ComparedMachine& machine, const Errors& errors) {
  if (!std::all_of(errors.begin(), errors.end(), is_about_its_size)) return errors;
  machine.why_not = fmt::format("{}: {}", errors.front().where, errors.front().what);
  return {};
}

std::vector<PlanChoices> changes_of(const MachineRange& range) {
  std::vector<PlanChoices> changes;
  for (const std::optional<std::string>& gpu : or_left_open(range.gpu_names)) {
    for (const MachineSize& size : sizes_of(range)) {
      changes.push_back({.gpus = size.gpus, .nodes = size.nodes, .gpu_name = gpu});
    }
  }
  return changes;
}

/// The name of a machine that cannot be made.
std::string name_of(const PlanChoices& choices) {
  const int nodes = choices.nodes.value_or(1);
  return fmt::format("{}{}x {}", nodes > 1 ? fmt::format("{} nodes of ", nodes) : "", choices.gpus.value_or(1),
                     choices.gpu_name.value_or(choices.cluster_file.value_or("GPU")));
}

std::vector<MachineTrial> trials_of(const PlanRequest& request, const ModelSpec& spec, const MachineRange& range,
                                    const std::string& library, Errors& errors) {
  std::vector<MachineTrial> trials;
  for (const PlanChoices& change : changes_of(range)) {
    MachineTrial trial;
    trial.machine.change = change;
    PlanRequest asked = request;
    asked.choices = with_change(asked.choices, change);
    Result<ResolvedRequest> resolved = resolve(asked, library, &spec);
    if (resolved) {
      trial.machine.name = resolved->cluster.name;
      trial.machine.gpus = world_size(resolved->cluster);
      trial.request = *std::move(resolved);
    } else {
      trial.machine.name = name_of(asked.choices);
      add_once(errors, refuse(trial.machine, resolved.error()));
    }
    // One GPU may have two names.
    const bool is_known = std::any_of(trials.begin(), trials.end(), [&](const MachineTrial& other) {
      return other.machine.name == trial.machine.name;
    });
    if (!is_known) trials.push_back(std::move(trial));
  }
  return trials;
}

/// The price of each compared GPU.
class Prices {
 public:
  /// Adds names that are unknown or not compared to `errors`.
  Prices(const std::vector<GpuPrice>& prices, const std::vector<MachineTrial>& trials, const std::string& library,
         Errors& errors);

  std::optional<double> of(const Cluster& cluster) const;

 private:
  struct Named {
    std::string gpu;  ///< Its whole name. Empty for any.
    double per_hour = 0;
  };
  std::vector<Named> named_;
};

Prices::Prices(const std::vector<GpuPrice>& prices, const std::vector<MachineTrial>& trials, const std::string& library,
               Errors& errors) {
  const Result<ClusterLibrary> shipped = read_cluster_library(library + "/clusters");
  if (!shipped) {
    add_once(errors, shipped.error());
    return;
  }
  for (const GpuPrice& price : prices) {
    if (price.gpu_name.empty()) {
      named_.push_back({"", price.per_hour});
      continue;
    }
    const Result<Gpu> gpu = find_gpu(price.gpu_name, shipped->gpus, "--price");
    if (!gpu) {
      add_once(errors, gpu.error());
      continue;
    }
    const bool is_compared = std::any_of(trials.begin(), trials.end(), [&](const MachineTrial& trial) {
      return trial.request && trial.request->cluster.gpu.name == gpu->name;
    });
    if (!is_compared) {
      errors.push_back({"--price", fmt::format("{} is not among the machines.", gpu->name), "Leave its price out."});
    }
    named_.push_back({gpu->name, price.per_hour});
  }
}

std::optional<double> Prices::of(const Cluster& cluster) const {
  for (const Named& price : named_) {
    if (price.gpu.empty() || price.gpu == cluster.gpu.name) return price.per_hour * world_size(cluster);
  }
  return std::nullopt;
}

/// GPU-seconds of different kinds of GPU are not comparable.
void check_prices(const std::vector<MachineTrial>& trials, const CompareOptions& options, Errors& errors) {
  if (options.objective != MachineObjective::Cost) return;
  std::vector<std::string> gpus;
  std::vector<std::string> without;
  for (const MachineTrial& trial : trials) {
    if (!trial.request) continue;
    const std::string& name = trial.request->cluster.gpu.name;
    if (std::find(gpus.begin(), gpus.end(), name) != gpus.end()) continue;
    gpus.push_back(name);
    if (!trial.machine.price_per_hour) without.push_back(name);
  }
  if (without.empty() || (gpus.size() == 1 && options.prices.empty())) return;
  errors.push_back({"--price", fmt::format("The price of {} is missing.", fmt::join(without, ", ")),
                    fmt::format("Write the price of one GPU per hour: --price \"{}=1.5\".", without.front())});
}

void enter(ComparedMachine& machine, const SearchResult& result) {
  const MemoryReport& memory = result.report.memory;
  machine.verdict = result.verdict;
  machine.is_tight = is_tight(result.report);
  machine.step = result.report.time.step;
  machine.device_peak = memory.peaks.device;
  machine.needed = memory.peaks.device + memory.margin;
  machine.budget = memory.budget;
  machine.samples = samples_of(result.best.plan);
}

/// Their order: those that fit, by the objective; those without room to spare; those that do not fit, by how far they
/// are from fitting; then impossible ones.
std::pair<int, double> place_of_machine(const ComparedMachine& machine, MachineObjective objective) {
  if (!machine.why_not.empty()) return {3, 0};
  if (machine.verdict != Verdict::Fits) return {2, ratio(machine.needed, machine.budget)};
  const int kind = machine.is_tight ? 1 : 0;
  if (objective == MachineObjective::Time) return {kind, 1 / machine.samples_per_second()};
  return {kind, machine.price_per_sample().value_or(machine.gpu_seconds_per_sample())};
}

/// Errors: those of a search that are not specific to its machine.
Errors search_all(std::vector<MachineTrial>& trials, const CompareOptions& options) {
  const auto on_search = [&](std::size_t i) {
    if (options.on_machine) options.on_machine(trials[i].machine.name);
  };
  const auto found = search_briefly(requests_of(trials), options.search, on_search);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    const Result<SearchResult>& result = *found[i];
    if (result) {
      enter(trials[i].machine, *result);
    } else if (Errors real = refuse(trials[i].machine, result.error()); !real.empty()) {
      return real;
    }
  }
  return {};
}

/// Searches the best machine once more, with all explanations.
Result<MachineComparison> with_whole_answer(std::vector<MachineTrial> trials, const CompareOptions& options) {
  ResolvedRequest request = *std::move(trials.front().request);
  if (options.on_machine) options.on_machine(trials.front().machine.name);
  FSDP_TRY(SearchResult result, search_in_full(request, options.explain, options.pareto_points, options.search));
  MachineComparison comparison{.request = std::move(request), .result = std::move(result)};
  for (MachineTrial& trial : trials) comparison.machines.push_back(std::move(trial.machine));
  return comparison;
}

}  // namespace

std::optional<double> ComparedMachine::price_per_sample() const {
  if (!price_per_hour) return std::nullopt;
  return *price_per_hour / kSecondsPerHour / samples_per_second();
}

std::vector<MachineSize> sizes_of(const MachineRange& range) {
  std::vector<MachineSize> sizes;
  const auto add = [&](std::optional<int> gpus, std::optional<int> nodes) {
    const std::int64_t all = std::int64_t{gpus.value_or(1)} * nodes.value_or(1);
    const MachineSize size{gpus, nodes};
    if (range.at_most && all > *range.at_most) return;
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  };
  if (!range.at_most || (!range.gpus.empty() && !range.nodes.empty())) {
    for (const std::optional<int> nodes : or_left_open(range.nodes)) {
      for (const std::optional<int> gpus : or_left_open(range.gpus)) add(gpus, nodes);
    }
  } else if (!range.gpus.empty()) {
    for (const int gpus : range.gpus) {
      for (const int nodes : powers_of_two(1, *range.at_most / std::max(1, gpus))) add(gpus, nodes);
    }
  } else if (!range.nodes.empty()) {
    for (const int nodes : range.nodes) {
      for (const int gpus : powers_of_two(1, kLargestRentedNode)) add(gpus, nodes);
    }
  } else {
    for (const int gpus : powers_of_two(1, kLargestRentedNode)) add(gpus, 1);
    for (const int nodes : powers_of_two(2, *range.at_most / kLargestRentedNode)) add(kLargestRentedNode, nodes);
  }
  std::stable_sort(sizes.begin(), sizes.end(), [](const MachineSize& a, const MachineSize& b) {
    const auto all = [](const MachineSize& size) {
      return std::int64_t{size.gpus.value_or(1)} * size.nodes.value_or(1);
    };
    return all(a) < all(b);
  });
  return sizes;
}

Result<MachineComparison> compare_machines(const PlanRequest& request, const MachineRange& range,
                                           const std::string& library, const CompareOptions& options) {
  Errors errors;
  if (request.choices.cluster_file == "-") {
    return failure(std::string(place_of(PlanChoice::ClusterFile)), "The standard input can be read once.",
                   "To compare machines, give the cluster as a file.");
  }
  if (sizes_of(range).empty()) {
    return failure("--at-most", fmt::format("No machine has at most {} GPUs.", range.at_most.value_or(0)),
                   "Raise it, or lower --gpus and --nodes.");
  }
  // Read once: the standard input, which may be the model, cannot be read again.
  const Result<ModelSpec> spec = read_spec(request, library);
  if (!spec) {
    append(errors, spec.error());
    for (const PlanChoices& change : changes_of(range)) {
      const Result<Cluster> cluster = resolve_machines(with_change(request.choices, change), library);
      if (!cluster) add_once(errors, cluster.error());
    }
    return tl::unexpected(std::move(errors));
  }
  std::vector<MachineTrial> trials = trials_of(request, *spec, range, library, errors);
  const Prices prices(options.prices, trials, library, errors);
  for (MachineTrial& trial : trials) {
    if (trial.request) trial.machine.price_per_hour = prices.of(trial.request->cluster);
  }
  check_prices(trials, options, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  if (Errors real = search_all(trials, options); !real.empty()) return tl::unexpected(std::move(real));
  std::stable_sort(trials.begin(), trials.end(), [&](const MachineTrial& a, const MachineTrial& b) {
    return place_of_machine(a.machine, options.objective) < place_of_machine(b.machine, options.objective);
  });
  if (!trials.front().machine.why_not.empty()) {
    for (const MachineTrial& trial : trials) {
      errors.push_back({trial.machine.name, trial.machine.why_not, ""});
    }
    return tl::unexpected(std::move(errors));
  }
  return with_whole_answer(std::move(trials), options);
}

}  // namespace fsdp::planner
