#pragma once

// What a configuration of DeepSpeed decides, beneath what its user decides beside it.

#include <optional>
#include <string>
#include <vector>

#include "core/formats/deepspeed_config.h"
#include "planner/request/plan_request.h"

namespace fsdp::planner {

/// A request with the choices of its configuration of DeepSpeed, if it names one.
struct DeepSpeedRequest {
  PlanRequest request;
  std::optional<DeepSpeedConfig> config;
  std::vector<std::string> assumptions;  ///< What the prediction makes of the file, and which options override it.
};

/// Reads the file that `given` names. Adds what is wrong with it to `errors`; machines that cannot be resolved are not
/// its business.
DeepSpeedRequest with_deepspeed(const PlanRequest& given, const std::string& library, Errors& errors);

/// Puts the sizes of buffers into `zero` that are "auto" in the file, and says which they are; nothing: none is. Adds
/// an error where the model does not tell its hidden_size.
std::optional<std::string> fill_auto_sizes(const DeepSpeedConfig& config, const ModelSpec& spec,
                                           const Workload& workload, ZeroOptions& zero, Errors& errors);

}  // namespace fsdp::planner
