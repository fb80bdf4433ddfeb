#pragma once

// From choices to what a search is asked: the model, the workload, the machines and the space. What the user decided
// stands over what a recipe says, and that over the model's own values.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/search/search.h"
#include "planner/space/plan_choices.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// What somebody asks: the best plan of a model under these choices.
struct PlanRequest {
  std::string model;  ///< A file, or the name of a shipped model.
  PlanChoices choices;
  /// Choices that were made and could not be read, whose errors the reader has: nothing is said about what rests on
  /// them.
  std::vector<PlanChoice> unread = {};

  bool operator==(const PlanRequest&) const = default;
};

/// What the request comes to.
struct ResolvedRequest {
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Space space;
  LargerGpus larger_gpus;    ///< RemedyRequest::larger_gpus.
  std::string batch_origin;  ///< "from recipe sft": where the batch comes from; empty: all of it was given.
};

/// The model's spec. Errors: no such model, and those of its file.
Result<ModelSpec> read_spec(const PlanRequest& request, const std::string& library);

/// Reads the model, unless its spec is `known`, the library of machines and the files that the choices name. Errors:
/// everything that is wrong with them, in one go; the place of a choice is `place_of`. REQUIRES: nothing is unread.
Result<ResolvedRequest> resolve(const PlanRequest& request, const std::string& library,
                                const ModelSpec* known = nullptr);

/// Has the search ask for `objective`, with the batch that the choices fix.
void set_objective(SearchObjective objective, const PlanChoices& choices, ResolvedRequest& request);

/// What can be said of a request, some of whose choices could not be read.
Errors check_request(const PlanRequest& request, const std::string& library);

/// Adds the errors that are not there yet: several requests may have the same ones.
void add_once(Errors& errors, const Errors& more);

/// Recipe, sizes, what is trained. Adds what is wrong with them to `errors`.
Workload workload_of(const PlanChoices& choices, Errors& errors);

/// What choices say about precision, optimizer, model code and allocator, over what the plan has. Adds what is wrong
/// with them to `errors`.
void apply_work_choices(const PlanChoices& choices, Plan& plan, Errors& errors);

}  // namespace fsdp::planner
