#pragma once

// The stages of a search: where it looks, in which order, and which answer wins.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/search/search.h"
#include "planner/search/searched_space.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The space of a stage.
struct NextSpace {
  Space space;
  std::string added_settings = {};  ///< SearchedSpace::added_settings. Empty for those of the previous space.
};

/// A stage either takes a step within a space, or searches another space by all stages. A space with a better answer
/// replaces the previous one.
struct Stage {
  std::string_view name;
  std::string_view question;   ///< When it runs.
  std::string_view wins = {};  ///< Which answer wins. Empty for a step.

  Result<void> (*step)(SearchedSpace& searched) = nullptr;

  /// The space to search; nullopt if the answer to the question is no. Errors: stopped, and those of families_for.
  Result<std::optional<NextSpace>> (*next)(SearchedSpace& from) = nullptr;
  bool (*is_better)(SearchedSpace& from, const SearchedSpace& found) = nullptr;
  /// Adds the note of the better answer.
  void (*add_note)(SearchedSpace& from, SearchedSpace& found) = nullptr;
  bool is_quiet = false;  ///< True if it reports no progress.
  bool competes = false;  ///< True if it runs even if an earlier stage has an answer.
};

/// All stages in order.
std::span<const Stage> search_stages();

/// A Markdown table: name, question and winner of each stage.
std::string describe_stages();

/// The result of a search.
struct FoundPlan {
  std::unique_ptr<SearchTask> task;
  std::unique_ptr<SearchedSpace> searched;  ///< The space of the best plan.
};

/// The best plan by all stages. Errors: those of search(). REQUIRES: the arguments outlive the result.
Result<FoundPlan> find_by_stages(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                 const Space& space, const SearchOptions& options);

}  // namespace fsdp::planner
