#pragma once

// The search: the fastest plan that fits, with the proof that no plan of the space is faster, and the Pareto front of
// peak memory against step time. The space is written down in planner/space/space.h.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/report/report.h"
#include "core/spec/model_spec.h"
#include "planner/space/plan_choices.h"
#include "planner/space/plan_sentence.h"
#include "planner/space/space.h"
#include "planner/space/wrap_policy.h"

namespace fsdp::planner {

/// A plan with its short prediction.
struct Candidate {
  Plan plan;
  std::string label;  ///< "FULL_SHARD, per 2 blocks, checkpoint 12 of 28": what differs from its neighbors.
  Seconds step{0};
  Bytes device_peak;
  Bytes missing;  ///< What it lacks: device peak + margin - budget, when positive.

  bool operator==(const Candidate&) const = default;
};

/// Why plans were not evaluated in full, by name of the bound, with counts that add up.
struct RuledOut {
  std::string reason;  ///< "memory bound", "time bound", "invalid", ...
  std::int64_t plans = 0;

  bool operator==(const RuledOut&) const = default;
};

struct Proof {
  std::int64_t space = 0;           ///< Plans that the space holds.
  std::int64_t evaluated = 0;       ///< Plans whose memory was predicted in full.
  std::vector<RuledOut> ruled_out;  ///< evaluated + sum of these = space.
  double optimality_gap = 0;        ///< Relative: how much faster than the named plan one that fits may be. 0, or up to
                                    ///< kTieShare with less memory, unless a limit stopped the search.
  bool stopped_early = false;       ///< A limit stopped the search.
  bool is_proven = true;            ///< False: a bound turned out wrong, and none of this is known.
  Bytes saved;                      ///< Memory that the fastest plan needs more than the named one.
  /// All plans within kTieShare were compared for their memory. False: a limit ended that, and one may need less.
  bool compared_ties = true;
  std::string doubt = {};  ///< What is not known, and why: among the notes, too. Empty: all of this is.

  bool operator==(const Proof&) const = default;
};

/// What a change brings beside a plan that there is.
struct RemedyPrice {
  Bytes delta_bytes;
  Seconds delta_time{0};
  Verdict verdict = Verdict::Unknown;  ///< As that of a report: Fits where it runs,
  bool is_tight = false;               ///< and this where it does so without room to spare.

  bool has_room() const { return verdict == Verdict::Fits && !is_tight; }
  bool operator==(const RemedyPrice&) const = default;
};

/// What one change to the plan would bring: each is predicted, none is estimated.
struct Remedy {
  std::string what;    ///< "checkpoint 8 more layers"
  PlanChoices change;  ///< What asks for it, as choices beside those that were made.
  /// The price is of what the choices give: a new search ran. Else of the same plan with this one change.
  bool is_searched = false;
  std::int64_t samples = 0;  ///< Samples of a step, where it has another number of them then; 0: as many as before.
  Bytes delta_bytes;
  Seconds delta_time{0};
  Verdict verdict = Verdict::Unknown;  ///< As that of a report: Fits where it runs,
  bool is_tight = false;               ///< and this where it does so without room to spare.

  /// If a search ran: the price of the same plan with this one change, where that is a plan.
  std::optional<RemedyPrice> same_plan = {};

  bool has_room() const { return verdict == Verdict::Fits && !is_tight; }
  RemedyPrice price() const { return {delta_bytes, delta_time, verdict, is_tight}; }

  bool operator==(const Remedy&) const = default;
};

/// A machine with more memory on each GPU.
struct LargerGpu {
  std::string what;    ///< "A100 80GB PCIe".
  PlanChoices change;  ///< What names it, as choices beside those that were made.
  Cluster cluster;     ///< What they come to.
};

/// The machines with more memory that there are, those with the least first. Asked only when nothing fits.
using LargerGpus = std::function<std::vector<LargerGpu>()>;

struct Explanation {
  std::string binding;              ///< One sentence: which moment, unit and term decide the peak.
  std::vector<Candidate> rejected;  ///< The nearest plans that were faster and did not fit, with the bytes they miss.
  std::vector<Remedy> remedies;
  std::string upgrade =
      {};  ///< What the newest PyTorch would change (planner/advice/upgrade_note.h); empty: nothing to say.
  std::optional<PolicyExplanation> wrap = {};  ///< Where one of PyTorch's auto-wrap policies chose the units.

  bool operator==(const Explanation&) const = default;
};

/// Neighbors on the Pareto front differ by at least one part in so many in their live bytes.
inline constexpr std::int64_t kParetoStep = 10;

struct SearchResult {
  Verdict verdict = Verdict::Unknown;
  SearchObjective objective = SearchObjective::Time;
  Candidate best;     ///< Among the fastest plans that fit with room to spare, within kTieShare, the one that needs
                      ///< least; where none has it, the fastest that runs (is_tight of the report); when none runs, the
                      ///< one that needs least. Fast is a sample with SearchObjective::Tokens; with Memory the one that
                      ///< needs least, then the fastest.
  StepReport report;  ///< Report of `best`.
  ModelFacts facts;   ///< Facts of the model.
  std::vector<Candidate> pareto;  ///< By rising device peak and falling step time; the last one is `best`.
                                  ///< other_plans.cpp says what is exact about it.
  Proof proof;
  std::string refinement;  ///< "1.4 % faster with reshard False for the last 8: 3.10 GiB more": what the fastest plan
                           ///< that fits has beside `best`; empty where it is not worth a line.
  Explanation explanation;
  std::vector<std::string> notes;

  bool operator==(const SearchResult&) const = default;
};

enum class SearchStage {
  Fastest,   ///< The fastest plan that fits.
  Smallest,  ///< None fits: the one that needs least.
  Front,     ///< The Pareto front.
  Remedies,
};

/// How far a search is.
struct SearchProgress {
  SearchStage stage = SearchStage::Fastest;
  std::int64_t space = 0;           ///< Plans.
  std::int64_t looked_at = 0;       ///< Plans, and groups of them with one bound, that were looked at. Only rises.
  std::optional<Seconds> at_least;  ///< With SearchStage::Fastest: no plan that fits takes less. Only rises.
  std::optional<Bytes> needs;       ///< With SearchStage::Smallest: no plan needs less memory. Only rises.
};

/// Whether "no plan fits" is known, and not only that none was found.
inline bool no_plan_fits(const SearchResult& result) {
  return result.verdict == Verdict::DoesNotFit && result.proof.is_proven && result.proof.doubt.empty();
}

class Predictors;

/// Work that takes about a second of a CPU, in a release build.
inline constexpr std::int64_t kWorkOfSecond = 40'000'000;
/// What a search may take unless it is told more or less.
inline constexpr std::int64_t kMostWork = 6 * kWorkOfSecond;
inline constexpr std::int64_t kMostWorkOfRemedies = kWorkOfSecond / 4;

struct SearchOptions {
  /// Rank in the world: the report is of this one; of the rank that needs most when not given. Plans are compared by
  /// the rank that needs most in any case.
  std::optional<std::int64_t> rank;
  std::function<void(const SearchProgress&)> on_progress;  ///< Called every some milliseconds. Decides nothing.
  /// Asked before each prediction, from several threads; once it says true the search ends with an error. Empty: nobody
  /// stops it.
  std::function<bool()> should_stop;
  /// Work (simulator::Predictor::work) after which the search settles for the best that it has found, and says so;
  /// 0: it goes on. It is counted, so that one request has one answer.
  std::int64_t most_work = kMostWork;
  /// For comparisons, whose requests have a space each: nothing but this work limits a search
  /// (Space::max_predictions = 0).
  bool counts_work_alone = false;
  /// It ends with an error there instead, as if it was stopped: for who has no use for an answer that takes long.
  bool gives_up = false;
  /// Work of all suggestions together, and four times that where nothing fits; 0: as much as they take. What is left of
  /// them then is not searched or not tried.
  std::int64_t most_work_of_remedies = kMostWorkOfRemedies;
  /// Called once, when the best plan is known and predicted; front, rejected plans and remedies are still missing.
  std::function<void(const SearchResult&)> on_best;
  LargerGpus larger_gpus = {};  ///< RemedyRequest::larger_gpus.

  // What the parts of one search, and the searches that it starts, hand to each other.
  /// Asked at every box; once it says true they settle for what they have. Empty: as `most_work` says.
  std::function<bool()> has_spent = {};
  /// Predictors of the same spec, workload and cluster; null: made anew.
  std::shared_ptr<Predictors> predictors = {};
};

/// The best plan, its proof and the notes, with the report of a plan that has no room to spare;
/// planner/advice/explained_search.h has the rest. Errors: stopped, and those of the spec, the workload and the fixed
/// choices, and of check_rank. "No plan fits" is a result, not an error.
Result<SearchResult> find_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                               const Space& space, const SearchOptions& options = {});

/// Whether some plan of the whole space (planner/space/space.h) fits, which memory alone decides: proven either way.
/// Nothing where SearchOptions::most_work ended the search before it was known. Errors: as those of search.
Result<std::optional<bool>> has_fitting_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                             const Space& space, const SearchOptions& options = {});

}  // namespace fsdp::planner
