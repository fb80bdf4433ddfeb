#pragma once

// The choices in a DeepSpeed configuration; the user's own override them.

#include <optional>
#include <string>
#include <vector>

#include "core/formats/deepspeed_config.h"
#include "planner/request/plan_request.h"

namespace fsdp::planner {

/// A request with the choices of its DeepSpeed configuration, if it names one.
struct DeepSpeedRequest {
  PlanRequest request;
  std::optional<DeepSpeedConfig> config;
  std::vector<std::string> assumptions;  ///< The prediction's reading of the file, and the options that override it.
};

/// Reads the file that `given` names. Adds its errors to `errors`, except those of machines that cannot be resolved.
DeepSpeedRequest with_deepspeed(const PlanRequest& given, const std::string& library, Errors& errors);

/// Sets the buffer sizes in `zero` that are "auto" in the file, and returns a text that lists them; nullopt if there
/// are none. Adds an error if the hidden size of the model is unknown.
std::optional<std::string> fill_auto_sizes(const DeepSpeedConfig& config, const ModelSpec& spec,
                                           const Workload& workload, ZeroOptions& zero, Errors& errors);

}  // namespace fsdp::planner
