#pragma once

// Which machine: the best plan on each of several, compared by what a sample takes or costs there.

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

/// Machines to choose from: each GPU in each number of each node. An empty list leaves it to the choices of the
/// request.
struct MachineRange {
  std::vector<std::string> gpu_names;
  std::vector<int> gpus;  ///< GPUs of a node.
  std::vector<int> nodes;
  std::optional<int> at_most;  ///< GPUs in all.

  bool operator==(const MachineRange&) const = default;
};

/// What an hour of one GPU costs, in whatever currency.
struct GpuPrice {
  std::string gpu_name;  ///< As for PlanChoices::gpu_name; empty: any GPU.
  double per_hour = 0;

  bool operator==(const GpuPrice&) const = default;
};

/// What makes a machine the best of those on which a plan fits.
enum class MachineObjective : std::uint8_t {
  Time,  ///< Most samples a second.
  Cost,  ///< Least to pay for a sample; without prices: the fewest GPU-seconds.
};

/// A machine with the best plan on it, in short.
struct ComparedMachine {
  std::string name;       ///< "4x T4".
  PlanChoices change;     ///< What names it, as choices beside those that were made.
  std::int64_t gpus = 0;  ///< In all.
  std::string why_not;    ///< Why what was asked makes no sense on it; empty: it does.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs, without room to spare.
  Seconds step{0};
  Bytes device_peak;
  Bytes needed;                          ///< The device peak and the safety margin.
  Bytes budget;                          ///< What they may take.
  std::int64_t samples = 0;              ///< Samples of a step, over all GPUs.
  std::optional<double> price_per_hour;  ///< Price of all GPUs.

  double samples_per_second() const { return static_cast<double>(samples) / step.count(); }
  double gpu_seconds_per_sample() const { return static_cast<double>(gpus) / samples_per_second(); }
  /// In the currency of the prices.
  std::optional<double> price_per_sample() const;
};

struct MachineComparison {
  std::vector<ComparedMachine>
      machines;             ///< The best one first; then what is tight, what does not fit, then what makes no sense.
  ResolvedRequest request;  ///< On the first one.
  SearchResult result;      ///< Result of that.
};

/// Each size once. Where there is only a limit, the sizes that are for rent: nodes of 1, 2, 4 or 8 GPUs, and 2, 4, 8
/// ... nodes of 8.
std::vector<MachineSize> sizes_of(const MachineRange& range);

struct CompareOptions {
  MachineObjective objective = MachineObjective::Time;
  std::vector<GpuPrice> prices;
  bool explain = true;             ///< Space::explain, of the best machine.
  std::int64_t pareto_points = 8;  ///< Space::pareto_points, of the best machine.
  SearchOptions search;            ///< Search of the best machine; of the others the progress.
  /// Called with the name of its machine before the progress of a search is told, and before the last one; by one
  /// thread at a time.
  std::function<void(const std::string&)> on_machine;
};

/// Searches on each machine of `range`, and in full on the best one. Errors: those of resolve and search that are about
/// machines, or that every machine has; a price that is missing, or is of a GPU that is not compared; no machine within
/// the limit; stopped.
Result<MachineComparison> compare_machines(const PlanRequest& request, const MachineRange& range,
                                           const std::string& library, const CompareOptions& options);

}  // namespace fsdp::planner
