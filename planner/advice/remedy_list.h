#pragma once

// The parts of planner/advice/remedies.cpp: a list that prices trials, and the groups of trials.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/advice/remedies.h"

namespace fsdp::planner {

/// A change to try.
struct Trial {
  std::string what;
  PlanChoices change;
  std::int64_t samples = 0;  ///< Remedy::samples.
};

/// True if a plan runs on its device without room to spare. With Detail::Tight.
bool runs_tight(const simulator::Outcome& outcome);

/// Fits if it runs. With Detail::Tight.
Verdict verdict_of(const simulator::Outcome& outcome);

/// Predicts changed plans and keeps the helpful changes.
class RemedyList {
 public:
  /// REQUIRES: `request` outlives this object.
  explicit RemedyList(const RemedyRequest& request)
      : request_(request), plan_(request.best.plan), work_before_(work_of_request()) {}

  /// From now on, a new trial may start if at most this percentage of the work is used up.
  void allow(int percent) { percent_ = percent; }

  /// A change of the plan alone.
  void try_plan(std::string what, PlanChoices change, const Plan& plan);

  /// A change of the sizes, of the trained parameters, or of the machine. False if it does not fit or is impossible.
  bool try_rebuilt(Trial trial, const Plan& plan, const Workload& workload, const Cluster& cluster);

  /// Searches another space or other machines, and returns whether a plan fits. nullopt if a limit stops the search:
  /// then the choice would find another plan. `same_plan`: with that change alone, if it is a valid plan.
  std::optional<bool> try_search(Trial trial, const Workload& workload, const Cluster& cluster, const Space& space,
                                 const Plan* same_plan = nullptr);
  /// Adds a remedy from a search elsewhere. `plan`: the same plan with that change.
  void keep(Remedy remedy, const Plan& plan);

  /// True if it fits, which is cheaper to find than by how much. nullopt if the change makes no valid plan.
  std::optional<bool> fits(const Plan& plan, const Workload& workload, const Cluster& cluster);

  /// Those that fit come first, then by savings. Searches the choices of the first ones that make the plan fit, or a
  /// step faster.
  std::vector<Remedy> take();

  const RemedyRequest& request() const { return request_; }
  const Plan& plan() const { return plan_; }

 private:
  /// The arguments of a search that starts from the change.
  struct SearchInputs {
    Workload workload;
    Cluster cluster;
    Space space;
  };
  struct Kept {
    Remedy remedy;
    std::optional<SearchInputs> inputs;      ///< If the choices of the remedy start a known search.
    std::optional<bool> may_have_room = {};  ///< If a search told whether a plan with the change has room to spare.
  };

  bool is_stopped() const { return request_.should_stop && request_.should_stop(); }
  /// Work of the predictors in the request.
  std::int64_t work_of_request() const;
  /// The remaining work. nullopt if there is no limit.
  std::optional<std::int64_t> work_left() const;
  /// True if the plan may be offered at all.
  bool is_offered(const Plan& plan, const Model& model) const {
    return !request_.is_offered || request_.is_offered(plan, model);
  }
  /// True if nothing more is tried.
  bool is_over() const { return is_stopped() || work_left().value_or(1) <= 0; }
  /// The model with these sizes.
  Result<Model> model_of(const Workload& workload) const;
  RemedyPrice price_of(const simulator::Outcome& outcome) const;
  void add(Trial trial, const Result<simulator::Outcome>& outcome, std::optional<SearchInputs> inputs = {});
  bool helps(const Remedy& remedy) const;
  void keep_if_it_helps(Remedy remedy, std::optional<SearchInputs> inputs = {});
  std::optional<Remedy> searched(Trial trial, const SearchInputs& inputs, const SearchOptions& options);
  /// The space that a search gets if the user types the change.
  Space as_typed(Space space, const PlanChoices& change) const;
  /// Options for the search of a remedy, which gives up after 1/parts of the remaining work.
  SearchOptions search_options(const SearchInputs& inputs, std::int64_t parts = 1) const;
  void count_work(const SearchOptions& options);
  std::optional<SearchInputs> inputs_with(const PlanChoices& change, const Plan& plan, const Workload& workload,
                                          const Cluster& cluster) const;
  void sort();
  /// The result of typing a change. nullopt if it is not found, or takes too long to find.
  std::optional<Remedy> searched(Kept& kept, std::int64_t parts);
  /// Replaces the price of the same plan by that of a search, if that finds a plan with room to spare.
  void replace_by_search(Kept& kept, std::int64_t parts);
  std::vector<Kept*> first_to_search();
  void search_the_first();
  void settle_tight_ones();

  const RemedyRequest& request_;
  const Plan& plan_;
  std::int64_t work_before_;
  std::int64_t other_work_ = 0;  ///< Work of the predictors made for a change.
  int percent_ = 100;
  std::vector<Kept> remedies_;
};

/// The workload with the sizes that the search chose, which may differ from the user's.
Workload sized_workload(const RemedyRequest& request);

/// Checkpointing, offload, optimizer, allocator, units (remedies_of_plan.cpp).
void try_plan_changes(RemedyList& list);

/// Frozen embeddings, batch and lengths, GPUs, memory (remedies_of_sizes.cpp). If the plan does not fit, finds the
/// sizes with which it does.
void try_size_changes(RemedyList& list);

}  // namespace fsdp::planner
