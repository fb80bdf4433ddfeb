#pragma once

// Running a plan of another framework than FSDP2 for real: by that framework itself, which python/fsdp_plan_runner
// drives, one process of a Python for each rank.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// A Python that may have what a framework needs.
struct FrameworkPython {
  std::string program;
  std::string path;  ///< PYTHONPATH: the runner's packages, those of the framework, and what was there.

  /// The words that start one rank of a job, whose options follow.
  std::vector<std::string> words(const std::string& job) const;
  std::vector<std::pair<std::string, std::string>> environment() const;
};

/// "PyTorch's DDP": what trains a plan, as people call it.
std::string_view trainer_name(Framework framework);

/// `given` (--python), or the first that has torch (`find_torch_python`), with the folder of the framework's packages
/// that ./scripts/rehearsal_env makes beside its environment, if there is one. Error: none has torch.
Result<FrameworkPython> find_framework_python(const std::string& given, const RehearsalPlaces& places,
                                              Framework framework);

/// What stands against running a job with these options on so many ranks, packages that are missing among it, each with
/// what would do: asked of the runner before any rank is started. Empty: nothing. Error: the runner cannot be asked.
Result<Errors> check_framework_run(const FrameworkPython& python, const std::string& job,
                                   const std::vector<std::string>& options, std::int64_t ranks, const std::string& log);

}  // namespace fsdp::planner
