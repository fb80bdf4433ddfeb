#pragma once

// Runs a plan of a framework other than FSDP2 with that framework: python/fsdp_plan_runner drives it, one Python
// process for each rank.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// A Python that may have a framework's packages.
struct FrameworkPython {
  std::string program;
  std::string path;  ///< PYTHONPATH: the runner's packages, the framework's, and the inherited value.

  /// The words that start one rank of a job. Options of the rank follow.
  std::vector<std::string> words(const std::string& job) const;
  std::vector<std::pair<std::string, std::string>> environment() const;
};

/// "PyTorch's DDP": the usual name of the framework that trains a plan.
std::string_view trainer_name(Framework framework);

/// `given` (--python), or the first Python with torch (`find_torch_python`), with the folder of the framework's
/// packages that ./scripts/rehearsal_env makes beside its environment, if there is one. Error: no Python has torch.
Result<FrameworkPython> find_framework_python(const std::string& given, const RehearsalPlaces& places,
                                              Framework framework);

/// Asks the runner before any rank starts why a job with these options cannot run on so many ranks, including
/// missing packages, each with a remedy. Empty if it can. Error: the runner does not answer.
Result<Errors> check_framework_run(const FrameworkPython& python, const std::string& job,
                                   const std::vector<std::string>& options, std::int64_t ranks, const std::string& log);

}  // namespace fsdp::planner
