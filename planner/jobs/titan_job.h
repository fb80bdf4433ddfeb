#pragma once

// torchtitan's training: from the TOML of 0.2.2, or from a Python configuration of 0.3.0.

#include <cstdint>
#include <string_view>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "planner/jobs/job.h"

namespace fsdp::planner {

/// The micro-batch if no key has it.
inline constexpr std::int64_t kTitanBatchUnset = 8;

/// What starts the training.
struct TitanLaunch {
  JsonDocument line;         ///< The keys that the line gives, as an object. They count before the file.
  JsonDocument file;         ///< The TOML, or the values of the Python configuration that are not its class's defaults.
  JsonDocument launch_line;  ///< The arguments of torchrun, of which the numbers of processes and nodes are read.
  bool is_toml = true;       ///< The file is of 0.2.2.
};

/// Errors: those of read_job_line.
Result<Job> titan_job(const TitanLaunch& launch);

/// Whether --module names one of torchtitan's own registries: "llama3", or "torchtitan.models.llama3".
bool is_shipped_titan_module(std::string_view module);

/// The values of a configuration in torchtitan 0.3.0's own registries, `--module llama3 --config llama3_8b`. nullopt if
/// `module` is no registry of torchtitan. Errors, at `where`: the registry has no such configuration, with the nearest
/// one; why one is not read.
Result<std::optional<JsonDocument>> shipped_titan_config(std::string_view module, std::string_view config,
                                                         const std::string& where);

}  // namespace fsdp::planner
