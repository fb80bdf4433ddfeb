#pragma once

// From inputs to an answer, by the same functions as the command line: resolve and search, or a Predictor for a kept
// plan. No Qt and no threads; the engine calls it on its worker.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::gui {

/// The options and observers of one evaluation.
struct Watcher {
  std::function<void(const planner::SearchProgress&)> on_progress;
  std::function<bool()> should_stop;
  std::function<void(Snapshot)> on_answer;  ///< Called with the plan and its prediction, before remedies and front are
                                            ///< known.
};

class Evaluator {
 public:
  /// `library`: the folder of the shipped models.
  explicit Evaluator(std::string library);
  ~Evaluator();

  /// The last searched plan on the new inputs, without a search. nullopt if there is none of this model, or if it is no
  /// longer a valid plan. A kept plan needs none: its answer takes no longer.
  std::optional<Snapshot> preview(const Inputs& inputs);

  /// The whole answer. For a kept plan, its prediction and remedies; otherwise the best plan with its proof, the Pareto
  /// front and remedies. With `guesses` it reports some plan while it searches the best one. Errors: those of the
  /// choices, and of unreadable texts; stopped.
  Result<Snapshot> answer(const Inputs& inputs, const Watcher& watcher, bool guesses = false);

 private:
  struct Kept;
  Result<Kept> read_kept(const Inputs& inputs) const;
  std::optional<Snapshot> guess(const planner::ResolvedRequest& request) const;
  Result<Snapshot> answer_kept(const Inputs& inputs, const Watcher& watcher);

  std::string library_;
  std::optional<PlanFile> last_;  ///< From the last search,
  std::string last_model_;        ///< for this model.
  std::vector<planner::Candidate> front_;
};

}  // namespace fsdp::gui
