#pragma once

// What a command line means: the model, the workload, the machines and the space to search.

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/cluster_library.h"
#include "core/model_spec.h"
#include "core/result.h"
#include "planner/cli_options.h"
#include "planner/search.h"
#include "planner/space.h"

namespace fsdp::planner {

struct PlanRequest {
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Space space;
  LargerGpus larger_gpus;         ///< RemedyRequest::larger_gpus.
  bool batch_is_default = false;  ///< No option says anything of the batch.
  std::string batch_origin;       ///< "from recipe sft": where the batch comes from; empty: all of it was given.
};

/// Errors: everything that is wrong with the options and with the files that they name, in one go.
Result<PlanRequest> read_request(const CommandLine& line, const std::string& library);

/// The workload of a command line: recipe, sizes, what is trained. Adds what is wrong with it to `errors`.
Workload read_workload(const CommandLine& line, Errors& errors);

/// What a command line says about precision, optimizer, model code and allocator, over what the plan has. Adds what is
/// wrong with it to `errors`.
void apply_work_options(const CommandLine& line, Plan& plan, Errors& errors);

/// The machines of a command line. Without any option about them: nothing is given, and nothing is assumed. Errors:
/// unknown names, sizes that make no sense, options that exclude each other.
Result<Cluster> read_machines(const CommandLine& line, const std::string& library);

/// The same with a library that was read before.
Result<Cluster> read_machines(const CommandLine& line, const ClusterLibrary& library);

/// True when an option about machines is given.
bool names_machines(const CommandLine& line);

/// A machine option over the machines of a plan file: `--mem` alone changes the memory of its GPUs.
Result<Cluster> override_machines(const CommandLine& line, const Cluster& cluster, const std::string& library);

}  // namespace fsdp::planner
