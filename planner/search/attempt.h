#pragma once

// Whether a plan of a space fits, and the fastest one that does: the searches under planner/search/search.h.

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
#include "planner/space/choice.h"
#include "planner/space/space.h"

namespace fsdp::planner {

bool is_stopped(const SearchOptions& options);
/// Whether the search may do no more than settle for what it has.
bool has_spent(const SearchOptions& options);
/// What its predictors have said in other searches; nullptr: they are not shared.
KnownPredictions* known_to(const SearchOptions& options);

/// Tells the listener of a search what a branch and bound of these families tells.
BranchAndBound::OnProgress teller(const SearchOptions& options, SearchStage stage, const Families& families);

/// The families of a space that are valid for the model. Errors: those of families_of, and of check where none is
/// valid.
Result<Families> families_for(const Space& space, const ModelIndex& index, const Cluster& cluster);

/// A search for the fastest plan of some families that fits, with all that it runs on.
struct Attempt {
  /// REQUIRES: all but `all` outlive this object.
  Attempt(const Space& space, Families all, const PredictorOf& predictor_of, const SearchOptions& options);

  /// REQUIRES: the same arguments where it goes on after a pause.
  void find_fastest(const Space& space, Bytes budget) { fitting = fastest.next(budget.count(), space.max_predictions); }

  /// What the time of a plan is.
  CostModel& timed() { return is_per_sample ? static_cast<CostModel&>(per_sample) : cost; }

  /// The fastest of those that need least, where they fit. `smallest` holds the proof, and can go on where none does.
  void find_smallest(Bytes budget, const SearchOptions& options);

  /// Whether some plan fits; nothing where that is not known after `most` predictions (0: no limit). Asked again it
  /// goes on. Where none fits, `smallest` holds the proof, and can go on.
  std::optional<bool> has_fitting(Bytes budget, const SearchOptions& options, std::int64_t most = 0);

  /// What is known of the other plans.
  Proof proof() const;

  /// Plans that turned out cheaper than a bound.
  std::int64_t num_broken_bounds() const {
    return smallest ? smallest->num_broken_bounds() : fastest.num_broken_bounds();
  }

  /// Plans that were predicted and do not fit.
  std::vector<EvaluatedPoint> too_large() const { return smallest ? smallest->evaluated() : fastest.too_large(); }

  Families families;
  HostLimit limit;
  PredictedCost cost;
  SmallestCost memory;
  PerSampleCost per_sample;
  bool is_per_sample;
  BranchAndBound fastest;
  /// Where it has shown that nothing fits, or may show it, or how little a plan can need.
  std::optional<BranchAndBound> smallest;
  std::optional<EvaluatedPoint> fitting;
  /// Where `fitting` is only some plan that fits: how far from the fastest it may be.
  std::optional<double> gap;
};

/// Whether some plan of the whole space fits, by memory alone; nullopt where that is not known after `most` predictions
/// (0: no limit), or where nothing more may be spent. Errors: those of families_for.
Result<std::optional<bool>> fits_somewhere(const Space& space, const ModelIndex& index, const Cluster& cluster,
                                           const PredictorOf& predictor_of, const SearchOptions& options,
                                           std::int64_t most = 0);

/// Attempts at a space as it is asked for and, where nothing fits, at the whole of it.
class Attempts {
 public:
  /// At most so many predictions are made without a plan that fits before it is left open whether there is one, and
  /// those of `space` before it is left open which is the fastest (0: nothing is left open). Errors: those of
  /// families_for. REQUIRES: all but `predictor_of` outlive this object.
  static Result<Attempts> make(const Space& space, const ModelIndex& index, const Cluster& cluster,
                               PredictorOf predictor_of, const SearchOptions& options, std::int64_t most);

  /// The first part of the search for the fastest, which most searches end in.
  void start();
  /// Whether it did not end there: another way out is worth a look.
  bool is_long() const { return usual_ != nullptr && usual_->fastest.is_paused(); }
  /// Until there is an answer, or it is left open. `other_way`: what a step takes at most on another way out. The
  /// search is left open, too, when no plan can be faster than that. Errors: those of families_for.
  /// REQUIRES: started, or an objective of memory.
  Result<void> search(std::optional<Seconds> other_way = {});

  /// Whether the search was left before there was an answer: it can go on, or may do no more.
  bool is_open() const { return is_open_; }
  /// Whether a plan is known to fit, be it the fastest or not.
  bool fits() const { return fits_.value_or(false) || answer_->fitting; }
  /// Where it was left because the other way is better: what a step takes here, at least.
  std::optional<Seconds> slower_than() const;
  /// Finds that out. REQUIRES: is_open().
  void go_on();

  /// The one that has the answer. Where it is open, that which has none so far.
  Attempt& answer() { return *answer_; }

 private:
  Attempts(const Space& space, const ModelIndex& index, const Cluster& cluster, PredictorOf predictor_of,
           const SearchOptions& options, std::int64_t most);

  /// The rest of the search for the fastest in the usual space, until there is an answer, or a pause.
  void search_usual(std::optional<Seconds> other_way);
  void ask(std::int64_t most);
  /// The fastest of the plans that fit, of which there may be some.
  void find_fastest(bool may_pause);
  /// Where nothing more may be spent on that: one that is known to fit.
  void settle();

  const Space* space_;
  const ModelIndex* index_;
  const Cluster* cluster_;
  PredictorOf predictor_of_;
  const SearchOptions* options_;
  Bytes budget_;
  std::int64_t most_;
  std::unique_ptr<Attempt> usual_;
  std::unique_ptr<Attempt> wide_;  ///< In the whole space.
  Attempt* answer_ = nullptr;
  std::optional<bool> fits_;  ///< Whether some plan of the whole space fits.
  bool is_all_ = false;       ///< The usual space is the whole one,
  bool is_paused_ = false;    ///< and the search in it has no answer so far.
  bool is_open_ = false;
};

}  // namespace fsdp::planner
