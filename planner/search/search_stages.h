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

/// Where a stage looks.
struct NextSpace {
  Space space;
  std::string added_settings = {};  ///< SearchedSpace::added_settings; empty: as in the space before it.
};

/// A stage either goes a step within a space, or searches another space, by all stages. A space with a better answer
/// takes the place of the one before it.
struct Stage {
  std::string_view name;
  std::string_view question;   ///< When it has its turn.
  std::string_view wins = {};  ///< Which answer is taken; empty: a step.

  Result<void> (*step)(SearchedSpace& searched) = nullptr;

  /// The space to search; nullopt: the question is answered no. Errors: stopped, and those of families_for.
  Result<std::optional<NextSpace>> (*next)(SearchedSpace& from) = nullptr;
  bool (*is_better)(SearchedSpace& from, const SearchedSpace& found) = nullptr;
  /// Adds to the better answer what to say of it.
  void (*add_note)(SearchedSpace& from, SearchedSpace& found) = nullptr;
  bool is_quiet = false;  ///< The listener hears nothing of it.
  bool competes = false;  ///< It has its turn although a stage before it has an answer.
};

/// In their order.
std::span<const Stage> search_stages();

/// A Markdown table: name, question and winner of each stage.
std::string describe_stages();

/// What a search found.
struct FoundPlan {
  std::unique_ptr<SearchTask> task;
  std::unique_ptr<SearchedSpace> searched;  ///< The space of the best plan.
};

/// The best plan by all stages. Errors: those of search(). REQUIRES: the arguments outlive the result.
Result<FoundPlan> find_by_stages(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                 const Space& space, const SearchOptions& options);

}  // namespace fsdp::planner
