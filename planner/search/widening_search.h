#pragma once

// Searches for the fastest plan of a space that fits, and for whether any plan fits; planner/search/search.h uses them.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/host_limit.h"
#include "planner/search/known_predictions.h"
#include "planner/search/objective.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/search.h"
#include "planner/space/families.h"
#include "planner/space/space.h"

namespace fsdp::planner {

bool is_stopped(const SearchOptions& options);
/// True if the search has used up its work, and may only settle for the best plan so far.
bool has_spent(const SearchOptions& options);
/// Predictions shared with other searches. nullptr if they are not shared.
KnownPredictions* known_to(const SearchOptions& options);

/// Reports the progress of a branch and bound over these families to the search's listener.
BranchAndBound::OnProgress teller(const SearchOptions& options, SearchStage stage, const Families& families);

/// The families of a space that are valid for the model. Errors: those of families_of, and of check() if no family is
/// valid.
Result<Families> families_for(const Space& space, const ModelIndex& index, const Cluster& cluster);

/// A search for the fastest plan of some families that fits, with the objects that it uses.
struct FamilySearch {
  /// REQUIRES: all but `all` outlive this object.
  FamilySearch(const Space& space, Families all, const PredictorOf& predictor_of, const SearchOptions& options);

  /// REQUIRES: the same arguments as before a pause.
  void find_fastest(const Space& space, Bytes budget) { fitting = fastest.next(budget.count(), space.max_predictions); }

  /// The cost model that defines the time of a plan.
  CostModel& timed() { return is_per_sample ? static_cast<CostModel&>(per_sample) : cost; }

  /// The fastest of the plans that need least memory, if they fit. If none fits, `smallest` holds the proof, and can go
  /// on.
  void find_smallest(Bytes budget, const SearchOptions& options);

  /// True if some plan fits; nullopt if that is unknown after `most` predictions (0 for no limit). A second call goes
  /// on. If no plan fits, `smallest` holds the proof, and can go on.
  std::optional<bool> has_fitting(Bytes budget, const SearchOptions& options, std::int64_t most = 0);

  /// The proof about the other plans.
  Proof proof() const;

  /// Plans that were cheaper than one of their bounds.
  std::int64_t num_broken_bounds() const {
    return smallest ? smallest->num_broken_bounds() : fastest.num_broken_bounds();
  }

  /// Predicted plans that do not fit.
  std::vector<EvaluatedPoint> too_large() const { return smallest ? smallest->evaluated() : fastest.too_large(); }

  Families families;
  HostLimit limit;
  PredictedCost cost;
  SmallestCost memory;
  PerSampleCost per_sample;
  bool is_per_sample;
  BranchAndBound fastest;
  /// If it has shown, or may show, that nothing fits or how little a plan can need.
  std::optional<BranchAndBound> smallest;
  std::optional<EvaluatedPoint> fitting;
  /// If `fitting` may not be the fastest: how far from the fastest it may be.
  std::optional<double> gap;
};

/// True if some plan of the whole space fits, by memory alone. nullopt if that is unknown after `most` predictions (0
/// for no limit), or if the work is used up. Errors: those of families_for.
Result<std::optional<bool>> fits_somewhere(const Space& space, const ModelIndex& index, const Cluster& cluster,
                                           const PredictorOf& predictor_of, const SearchOptions& options,
                                           std::int64_t most = 0);

/// A search in the requested space and, if nothing fits, in the whole space.
class WideningSearch {
 public:
  /// `most`: without a plan that fits, the number of predictions after which the search leaves open whether there is
  /// one, and of predictions in `space` after which it leaves open which plan is the fastest. 0 leaves nothing open.
  /// Errors: those of families_for. REQUIRES: all but `predictor_of` outlive this object.
  static Result<WideningSearch> make(const Space& space, const ModelIndex& index, const Cluster& cluster,
                                     PredictorOf predictor_of, const SearchOptions& options, std::int64_t most);

  /// The first part of the search for the fastest; most searches end in it.
  void start();
  /// True if it did not end there, so that an alternative is worth a look.
  bool is_long() const { return usual_ != nullptr && usual_->fastest.is_paused(); }
  /// Searches until there is an answer, or the question is left open. `other_way`: the upper bound of a step's time
  /// with the alternative; the search also ends open once no plan can be faster than that. Errors: those of
  /// families_for. REQUIRES: started, or an objective of memory.
  Result<void> search(std::optional<Seconds> other_way = {});

  /// True if the search ended before there was an answer: it can go on, or has used up its work.
  bool is_open() const { return is_open_; }
  /// True if some plan, the fastest or not, is known to fit.
  bool fits() const { return fits_.value_or(false) || answer_->fitting; }
  /// If the search ended because the alternative is better: a lower bound of a step's time here.
  std::optional<Seconds> slower_than() const;
  /// Completes the search. REQUIRES: is_open().
  void go_on();

  /// The search that has the answer. If the question is open, the one without an answer so far.
  FamilySearch& answer() { return *answer_; }

 private:
  WideningSearch(const Space& space, const ModelIndex& index, const Cluster& cluster, PredictorOf predictor_of,
                 const SearchOptions& options, std::int64_t most);

  /// The rest of the search for the fastest in the usual space, until an answer or a pause.
  void search_usual(std::optional<Seconds> other_way);
  void ask(std::int64_t most);
  /// The fastest of the plans that fit, if there are any.
  void find_fastest(bool may_pause);
  /// Takes a plan that is known to fit, if the work is used up.
  void settle();

  const Space* space_;
  const ModelIndex* index_;
  const Cluster* cluster_;
  PredictorOf predictor_of_;
  const SearchOptions* options_;
  Bytes budget_;
  std::int64_t most_;
  std::unique_ptr<FamilySearch> usual_;
  std::unique_ptr<FamilySearch> wide_;  ///< The search in the whole space.
  FamilySearch* answer_ = nullptr;
  std::optional<bool> fits_;  ///< True if some plan of the whole space fits.
  bool is_all_ = false;       ///< True if the usual space is the whole one.
  bool is_paused_ = false;    ///< True if the search in it has no answer so far.
  bool is_open_ = false;
};

}  // namespace fsdp::planner
