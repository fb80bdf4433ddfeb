#pragma once

// Resolves choices to the arguments of a search: the model, the workload, the machines and the space. The user's
// choices override a recipe, and that overrides the model's own values.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/search/search.h"
#include "planner/space/plan_choices.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// A request: the best plan of a model under these choices.
struct PlanRequest {
  std::string model;  ///< A file, or the name of a shipped model.
  PlanChoices choices;
  /// Choices that were given and could not be read; the reader has the errors. We report nothing that depends on them.
  std::vector<PlanChoice> unread = {};

  bool operator==(const PlanRequest&) const = default;
};

/// A request with its model, workload, machines and space.
struct ResolvedRequest {
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Space space;
  LargerGpus larger_gpus;    ///< RemedyRequest::larger_gpus.
  std::string batch_origin;  ///< "from recipe sft": the origin of the batch. Empty if all of it was given.
};

/// The model's spec. Errors: no such model, and those of its file.
Result<ModelSpec> read_spec(const PlanRequest& request, const std::string& library);

/// Reads the model, unless its spec is `known`, the library of machines and the files that the choices name. Errors:
/// all errors of these at once; the place of a choice is `place_of`. REQUIRES: nothing is unread.
Result<ResolvedRequest> resolve(const PlanRequest& request, const std::string& library,
                                const ModelSpec* known = nullptr);

/// Sets the search's objective, with the batch that the choices fix.
void set_objective(SearchObjective objective, const PlanChoices& choices, ResolvedRequest& request);

/// The errors of a request that do not depend on choices that could not be read.
Errors check_request(const PlanRequest& request, const std::string& library);

/// Adds the errors that are not yet in the list: several requests may have the same ones.
void add_once(Errors& errors, const Errors& more);

/// Recipe, sizes, trained parameters. Adds its errors to `errors`.
Workload workload_of(const PlanChoices& choices, Errors& errors);

/// Applies choices of precision, optimizer, model code and allocator to the plan. Adds its errors to `errors`.
void apply_work_choices(const PlanChoices& choices, Plan& plan, Errors& errors);

}  // namespace fsdp::planner
