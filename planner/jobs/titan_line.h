#pragma once

// Files of torchtitan, and lines that start torchtitan.train.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// Whether a line starts torchtitan.train: `torchrun ... -m torchtitan.train`, or with python in front.
bool is_titan_line(std::span<const std::string> words);

/// The job of such a line. `config`: what its Python configuration is, if own_titan_config asked for it. Errors: those
/// of read_job_line.
Result<JobSource> find_titan_line(std::span<const std::string> words, const std::optional<JsonDocument>& config,
                                  const FileReader& read_file);

/// Whether a TOML is torchtitan's.
bool is_titan_toml(const JsonDocument& file);
JobSource titan_toml_source(JsonDocument file, const std::string& path);

}  // namespace fsdp::planner
