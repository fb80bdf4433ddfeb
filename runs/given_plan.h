#pragma once

// A user's plan file, with everything that it names.

#include <string>

#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan_file.h"
#include "core/spec/model_spec.h"

namespace fsdp::runs {

/// The plan of a file with its model and its machines.
struct Given {
  std::string path;
  PlanFile file;
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Model model;
};

}  // namespace fsdp::runs
