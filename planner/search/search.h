#pragma once

// The search: the fastest plan that fits, with the proof that no plan of the space is faster, and the Pareto front of
// peak memory against step time. planner/space/space.h defines the space.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/report/job_phases.h"
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
  std::string label;  ///< "FULL_SHARD, per 2 blocks, checkpoint 12 of 28": the differences from its neighbors.
  Seconds step{0};
  Bytes device_peak;
  Bytes missing;  ///< max(0, device peak + margin - budget).

  bool operator==(const Candidate&) const = default;
};

/// The reasons why plans were not fully evaluated, by name of the bound, with counts that add up.
struct RuledOut {
  std::string reason;  ///< "memory bound", "time bound", "invalid", ...
  std::int64_t plans = 0;

  bool operator==(const RuledOut&) const = default;
};

struct Proof {
  std::int64_t space = 0;           ///< Plans in the space.
  std::int64_t evaluated = 0;       ///< Plans whose memory was predicted in full.
  std::vector<RuledOut> ruled_out;  ///< Their sum + evaluated = space.
  double optimality_gap = 0;        ///< Relative: how much faster than the named plan another one that fits may be. 0,
                                    ///< or up to kTieShare if the named plan needs less memory, unless a limit stopped
                                    ///< the search.
  bool stopped_early = false;       ///< True if a limit stopped the search.
  bool is_proven = true;            ///< False if a bound was wrong, so that none of this is certain.
  Bytes saved;                      ///< Memory that the fastest plan needs in excess of the named one.
  /// True if all plans within kTieShare were compared by their memory. False if a limit ended that, so that one may
  /// need less.
  bool compared_ties = true;
  std::string doubt = {};  ///< The open questions and their reasons, also among the notes. Empty for none.

  bool operator==(const Proof&) const = default;
};

/// The effect of a change on a given plan.
struct RemedyPrice {
  Bytes delta_bytes;
  Seconds delta_time{0};
  Verdict verdict = Verdict::Unknown;  ///< As in a report: Fits if it runs.
  bool is_tight = false;               ///< True if it runs without room to spare.

  bool has_room() const { return verdict == Verdict::Fits && !is_tight; }
  bool operator==(const RemedyPrice&) const = default;
};

/// The effect of one change to the plan. Each is predicted; none is estimated.
struct Remedy {
  std::string what;    ///< "checkpoint 8 more layers"
  PlanChoices change;  ///< The choices that request it, in addition to the given ones.
  /// True if a new search with these choices found the price. Otherwise it is the price of the same plan with this one
  /// change.
  bool is_searched = false;
  std::int64_t samples = 0;  ///< Samples of a step, if the change alters them. 0 if not.
  Bytes delta_bytes;
  Seconds delta_time{0};
  Verdict verdict = Verdict::Unknown;  ///< As in a report: Fits if it runs.
  bool is_tight = false;               ///< True if it runs without room to spare.

  /// If a search ran: the price of the same plan with this one change, if that is a valid plan.
  std::optional<RemedyPrice> same_plan = {};

  bool has_room() const { return verdict == Verdict::Fits && !is_tight; }
  RemedyPrice price() const { return {delta_bytes, delta_time, verdict, is_tight}; }

  bool operator==(const Remedy&) const = default;
};

/// A machine with more memory on each GPU.
struct LargerGpu {
  std::string what;    ///< "A100 80GB PCIe".
  PlanChoices change;  ///< The choices that name it, in addition to the given ones.
  Cluster cluster;     ///< The machines of these choices.
};

/// Returns the machines with more memory, those with the least first. Called only if nothing fits.
using LargerGpus = std::function<std::vector<LargerGpu>()>;

struct Explanation {
  std::string binding;              ///< One sentence: the moment, unit and term that decide the peak.
  std::vector<Candidate> rejected;  ///< The nearest faster plans that did not fit, with the bytes that they lack.
  std::vector<Remedy> remedies;
  std::vector<std::string> notes = {};         ///< Sentences about the plan (planner/advice/plan_notes.h).
  std::optional<PolicyExplanation> wrap = {};  ///< If one of PyTorch's auto-wrap policies chose the units.
  std::vector<JobPhaseNeed> phases = {};       ///< The phases of the plan's job, if they were requested.

  bool operator==(const Explanation&) const = default;
};

/// The live bytes of neighbors on the Pareto front differ by at least 1/kParetoStep.
inline constexpr std::int64_t kParetoStep = 10;

struct SearchResult {
  Verdict verdict = Verdict::Unknown;
  SearchObjective objective = SearchObjective::Time;
  Candidate best;     ///< Among the plans with room to spare and within kTieShare of the fastest, the one that needs
                      ///< least. If no plan has room, the fastest that runs (is_tight of the report). If none runs, the
                      ///< one that needs least. With SearchObjective::Tokens, the fastest is by the time of a sample.
                      ///< With Memory, the plan that needs least, then the fastest.
  StepReport report;  ///< Report of `best`.
  ModelFacts facts;
  std::vector<Candidate> pareto;  ///< By rising device peak and falling step time; the last one is `best`.
                                  ///< other_plans.cpp states which of its properties are exact.
  Proof proof;
  std::string refinement;  ///< "1.4 % faster with reshard False for the last 8: 3.10 GiB more": the difference of the
                           ///< fastest plan that fits from `best`. Empty if it is not worth a line.
  Explanation explanation;
  std::vector<std::string> notes;

  bool operator==(const SearchResult&) const = default;
};

enum class SearchStage {
  Fastest,   ///< The fastest plan that fits.
  Smallest,  ///< No plan fits: the one that needs least.
  Front,     ///< The Pareto front.
  Remedies,
};

/// The progress of a search.
struct SearchProgress {
  SearchStage stage = SearchStage::Fastest;
  std::int64_t space = 0;           ///< Plans of the space.
  std::int64_t looked_at = 0;       ///< Visited plans, and groups of them with one bound. Never falls.
  std::optional<Seconds> at_least;  ///< With SearchStage::Fastest: no plan that fits takes less. Never falls.
  std::optional<Bytes> needs;       ///< With SearchStage::Smallest: no plan needs less memory. Never falls.
};

/// True if it is certain that no plan fits, instead of that none was found.
inline bool no_plan_fits(const SearchResult& result) {
  return result.verdict == Verdict::DoesNotFit && result.proof.is_proven && result.proof.doubt.empty();
}

class Predictors;

/// Work that takes about a second of a CPU, in a release build.
inline constexpr std::int64_t kWorkOfSecond = 40'000'000;
/// The default limit of a search's work.
inline constexpr std::int64_t kMostWork = 6 * kWorkOfSecond;
inline constexpr std::int64_t kMostWorkOfRemedies = kWorkOfSecond / 4;

struct SearchOptions {
  /// The rank in the world of the report. Defaults to the rank that needs most, which always decides between plans.
  std::optional<std::int64_t> rank;
  std::function<void(const SearchProgress&)> on_progress;  ///< Called every few milliseconds. Changes no result.
  /// Called before each prediction, from several threads. Once it returns true, the search ends with an error. Empty if
  /// nobody stops it.
  std::function<bool()> should_stop;
  /// Work (simulator::Predictor::work) after which the search takes the best plan so far, and reports that. 0 for no
  /// limit. Counted work, unlike time, gives one request one answer.
  std::int64_t most_work = kMostWork;
  /// For comparisons, whose requests have a space each: only this work limits a search (Space::max_predictions = 0).
  bool counts_work_alone = false;
  /// Ends with an error at that limit, as if it was stopped: for callers that cannot use a late answer.
  bool gives_up = false;
  /// Work of all suggestions together, and four times that if nothing fits. 0 for no limit. Later suggestions are then
  /// omitted.
  std::int64_t most_work_of_remedies = kMostWorkOfRemedies;
  /// Called once, after the best plan is predicted and before the front, rejected plans and remedies.
  std::function<void(const SearchResult&)> on_best;
  LargerGpus larger_gpus = {};  ///< RemedyRequest::larger_gpus.
  /// search_for: compares with the best plan of the whole space, which is another search.
  bool prices_trainer = true;

  // State that the parts of one search, and the searches that it starts, share.
  /// Called at every box. Once it returns true, they take the best plan so far. Defaults to a limit of `most_work`.
  std::function<bool()> has_spent = {};
  /// Predictors of the same spec, workload and cluster. If null, makes new ones.
  std::shared_ptr<Predictors> predictors = {};
};

/// The best plan, its proof and the notes; also the report, if the plan has no room to spare.
/// planner/advice/explained_search.h adds the rest. Errors: stopped, those of the spec, the workload and the fixed
/// choices, and those of check_rank. "No plan fits" is a result, not an error.
Result<SearchResult> find_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                               const Space& space, const SearchOptions& options = {});

/// True if some plan of the whole space (planner/space/space.h) fits, by memory alone; either answer is proven. nullopt
/// if SearchOptions::most_work ended the search before that. Errors: those of search.
Result<std::optional<bool>> has_fitting_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                             const Space& space, const SearchOptions& options = {});

}  // namespace fsdp::planner
