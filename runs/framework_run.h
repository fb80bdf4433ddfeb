#pragma once

// Runs a plan of a framework other than FSDP2 with that framework: python/fsdp_plan_runner drives it, one Python
// process for each rank.

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// A Python that may have a framework's packages.
struct FrameworkPython {
  std::string program;
  std::string path;  ///< PYTHONPATH: the runner's packages, the framework's, and the inherited value.

  /// The words that start one rank of a job. Options of the rank follow.
  std::vector<std::string> words(const std::string& job) const;
  std::vector<std::pair<std::string, std::string>> environment() const;
};

/// The program that trains the plans of a framework.
struct FrameworkTrainer {
  Framework framework = kDefaultFramework;
  std::string_view name;  ///< The usual name: "PyTorch's DDP".
  /// The environment of ./scripts/rehearsal_env with its packages; empty if PyTorch has it.
  std::string_view packages = {};
  bool is_fsdp_exec = false;  ///< Our own program, without Python.
  // Effects that a prediction for CPUs omits.
  bool makes_whole = false;        ///< Each rank first makes more than its part.
  bool gathers_into_list = false;  ///< Over Gloo, which fills a list from one more tensor.
};
inline constexpr std::array kFrameworkTrainers = {
    FrameworkTrainer{.framework = Framework::Fsdp2, .name = "fsdp-exec", .is_fsdp_exec = true},
    FrameworkTrainer{
        .framework = Framework::Fsdp1, .name = "PyTorch's FSDP1", .makes_whole = true, .gathers_into_list = true},
    FrameworkTrainer{.framework = Framework::Ddp, .name = "PyTorch's DDP"},
    FrameworkTrainer{.framework = Framework::Zero1, .name = "DeepSpeed's ZeRO", .packages = "deepspeed"},
    FrameworkTrainer{.framework = Framework::Zero2, .name = "DeepSpeed's ZeRO", .packages = "deepspeed"},
    FrameworkTrainer{
        .framework = Framework::Zero3, .name = "DeepSpeed's ZeRO", .packages = "deepspeed", .makes_whole = true},
    FrameworkTrainer{.framework = Framework::SimpleFsdp,
                     .name = "torchtitan's SimpleFSDP",
                     .packages = "simple-fsdp",
                     .makes_whole = true},
};
constexpr const FrameworkTrainer& framework_trainer(Framework framework) {
  return row_of(kFrameworkTrainers, framework);
}

/// `given` (--python), or the first Python with torch (`find_torch_python`), with the folder of the framework's
/// packages that ./scripts/rehearsal_env makes beside its environment, if there is one. Error: no Python has torch.
Result<FrameworkPython> find_framework_python(const std::string& given, const RehearsalPlaces& places,
                                              Framework framework);

/// Asks the runner before any rank starts why a job with these options cannot run on so many ranks, including
/// missing packages, each with a remedy. Empty if it can. Error: the runner does not answer.
Result<Errors> check_framework_run(const FrameworkPython& python, const std::string& job,
                                   const std::vector<std::string>& options, std::int64_t ranks, const std::string& log);

}  // namespace fsdp::runs
