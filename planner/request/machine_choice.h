#pragma once

// Which machine: the best plan on each of several, compared by the time or cost of a sample.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/request/plan_machines.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// Machines to choose from: each GPU in each number of GPUs and of nodes. The choices of the request replace an empty
/// list.
struct MachineRange {
  std::vector<std::string> gpu_names;
  std::vector<int> gpus;  ///< GPUs of a node.
  std::vector<int> nodes;
  std::optional<int> at_most;  ///< The maximum number of GPUs in all.

  bool operator==(const MachineRange&) const = default;
};

/// The price of one GPU per hour, in any currency.
struct GpuPrice {
  std::string gpu_name;  ///< As for PlanChoices::gpu_name. Empty for any GPU.
  double per_hour = 0;

  bool operator==(const GpuPrice&) const = default;
};

/// The criterion for the best of the machines on which a plan fits.
enum class MachineObjective : std::uint8_t {
  Time,  ///< Most samples a second.
  Cost,  ///< The lowest price of a sample. Without prices, the fewest GPU-seconds.
};

/// A machine with a summary of the best plan on it.
struct ComparedMachine {
  std::string name;       ///< "4x T4".
  PlanChoices change;     ///< The choices that name it, in addition to the given ones.
  std::int64_t gpus = 0;  ///< In all nodes.
  std::string why_not;    ///< The reason why the request makes no sense on it. Empty if it does.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< True if it runs without room to spare.
  Seconds step{0};
  Bytes device_peak;
  Bytes needed;                          ///< The device peak and the safety margin.
  Bytes budget;                          ///< The limit of that.
  std::int64_t samples = 0;              ///< Samples of a step, over all GPUs.
  std::optional<double> price_per_hour;  ///< Price of all GPUs.

  double samples_per_second() const { return static_cast<double>(samples) / step.count(); }
  double gpu_seconds_per_sample() const { return static_cast<double>(gpus) / samples_per_second(); }
  /// In the currency of the prices.
  std::optional<double> price_per_sample() const;
};

struct MachineComparison {
  std::vector<ComparedMachine>
      machines;             ///< The best one first; then tight ones, those that do not fit, then impossible ones.
  ResolvedRequest request;  ///< The request for the first one.
  SearchResult result;      ///< The result for it.
};

/// Each size once. With only a limit, the sizes for rent: nodes of 1, 2, 4 or 8 GPUs, and 2, 4, 8 ... nodes of 8.
std::vector<MachineSize> sizes_of(const MachineRange& range);

struct CompareOptions {
  MachineObjective objective = MachineObjective::Time;
  std::vector<GpuPrice> prices;
  bool explain = true;             ///< Space::explain for the best machine.
  std::int64_t pareto_points = 8;  ///< Space::pareto_points for the best machine.
  SearchOptions search;            ///< Options for the best machine; the others use its progress.
  /// Called with the name of a machine before the progress of its search, and before the last one, by one thread at a
  /// time.
  std::function<void(const std::string&)> on_machine;
};

/// Searches on each machine of `range`, and in full on the best one. Errors: those of resolve and search that are about
/// machines, or that every machine has; a price that is missing, or belongs to a GPU that is not compared; no machine
/// within the limit; stopped.
Result<MachineComparison> compare_machines(const PlanRequest& request, const MachineRange& range,
                                           const std::string& library, const CompareOptions& options);

}  // namespace fsdp::planner
