#pragma once

// The parts of planner/advice/remedies.cpp: a list that prices what is tried, and the groups of things to try.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/advice/remedies.h"

namespace fsdp::planner {

/// What is tried.
struct Trial {
  std::string what;
  PlanChoices change;
  std::int64_t samples = 0;  ///< Remedy::samples.
};

/// Whether a plan runs by its device, and has no room there. With Detail::Tight.
bool runs_tight(const simulator::Outcome& outcome);

/// Fits where it runs. With Detail::Tight.
Verdict verdict_of(const simulator::Outcome& outcome);

/// Predicts changed plans and keeps the changes that help.
class RemedyList {
 public:
  /// REQUIRES: `request` outlives this object.
  explicit RemedyList(const RemedyRequest& request)
      : request_(request), plan_(request.best.plan), work_before_(work_of_request()) {}

  /// From now on so many hundredths of the work may have been done when something new is tried.
  void allow(int percent) { percent_ = percent; }

  /// A change of the plan alone.
  void try_plan(std::string what, PlanChoices change, const Plan& plan);

  /// A change of the sizes, of what is trained, or of the machine. False when it does not fit or cannot be.
  bool try_rebuilt(Trial trial, const Plan& plan, const Workload& workload, const Cluster& cluster);

  /// What a search over another space or on other machines gives, and whether it fits. Nothing where a limit stops it:
  /// the choice would find something else. `same_plan`: with that change alone, where there is one.
  std::optional<bool> try_search(Trial trial, const Workload& workload, const Cluster& cluster, const Space& space,
                                 const Plan* same_plan = nullptr);
  /// What was searched elsewhere; `plan`: the same plan with that change.
  void keep(Remedy remedy, const Plan& plan);

  /// Whether it fits, which costs less to find out than by how much; nothing when the change makes no valid plan.
  std::optional<bool> fits(const Plan& plan, const Workload& workload, const Cluster& cluster);

  /// Those that fit first, then by what they save. The first that make the plan fit, or a step faster, are searched for
  /// what their choices give.
  std::vector<Remedy> take();

  const RemedyRequest& request() const { return request_; }
  const Plan& plan() const { return plan_; }

 private:
  /// What a search takes that begins with the change.
  struct Ground {
    Workload workload;
    Cluster cluster;
    Space space;
  };
  struct Kept {
    Remedy remedy;
    std::optional<Ground> ground;  ///< Where the choices of the remedy begin a search that is known.
  };

  bool is_stopped() const { return request_.should_stop && request_.should_stop(); }
  /// Work of the predictors that the request brings.
  std::int64_t work_of_request() const;
  /// What may still be done; nothing: there is no limit.
  std::optional<std::int64_t> work_left() const;
  /// Whether the plan may be offered at all.
  bool is_offered(const Plan& plan, const Model& model) const {
    return !request_.is_offered || request_.is_offered(plan, model);
  }
  /// Whether nothing more is tried.
  bool is_over() const { return is_stopped() || work_left().value_or(1) <= 0; }
  /// The model with these sizes.
  Result<Model> model_of(const Workload& workload) const;
  RemedyPrice price_of(const simulator::Outcome& outcome) const;
  void add(Trial trial, const Result<simulator::Outcome>& outcome, std::optional<Ground> ground = {});
  bool helps(const Remedy& remedy) const;
  void keep_if_it_helps(Remedy remedy, std::optional<Ground> ground = {});
  std::optional<Remedy> searched(Trial trial, const Ground& ground, const SearchOptions& options);
  /// What is searched when the change is typed.
  Space as_typed(Space space, const PlanChoices& change) const;
  /// Options for the search of a remedy, which gives up after one part in `parts` of the work that is left.
  SearchOptions search_options(const Ground& ground, std::int64_t parts = 1) const;
  /// Counts what was done for a search.
  void count_work(const SearchOptions& options);
  std::optional<Ground> ground_with(const PlanChoices& change, const Plan& plan, const Workload& workload,
                                    const Cluster& cluster) const;
  void sort();
  /// What comes of typing a change; nothing where that is not found, or takes too long to find out.
  std::optional<Remedy> searched(const Kept& kept, std::int64_t parts);
  std::vector<Kept*> first_to_search();
  void search_the_first();

  const RemedyRequest& request_;
  const Plan& plan_;
  std::int64_t work_before_;
  std::int64_t other_work_ = 0;  ///< Work of predictors that were made for a change.
  int percent_ = 100;
  std::vector<Kept> remedies_;
};

/// Checkpointing, offload, optimizer, allocator, units (remedies_of_plan.cpp).
void try_plan_changes(RemedyList& list);

/// Frozen embeddings, batch and lengths, GPUs, memory (remedies_of_sizes.cpp). When the plan does not fit, those sizes
/// with which it does are searched for.
void try_size_changes(RemedyList& list);

}  // namespace fsdp::planner
