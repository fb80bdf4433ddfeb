#pragma once

// The shipped models, schemas and clusters, by name.

#include <string>
#include <vector>

#include "core/result.h"

namespace fsdp::planner {

/// Names of the shipped models, sorted: "qwen3_tts". Empty when the folder is not there.
std::vector<std::string> model_names(const std::string& library);

/// The file that an argument means: "-", an existing path, or a shipped model with or without ".json". A path beside
/// `near` (the folder of a plan file) counts too. Error: neither, with the nearest shipped name.
Result<std::string> find_model_file(const std::string& argument, const std::string& library,
                                    const std::string& near = "");

}  // namespace fsdp::planner
