#pragma once

// A Python configuration of torchtitan, which python/fsdp_torchtitan/read_config.py makes torchtitan itself read.

#include <span>
#include <string>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// What torchtitan makes of `arguments`, those after its module on a line that starts with `launcher`: its Python, or
/// torchrun, whose Python is beside it. Errors: there is no such Python; it has no torchtitan 0.3; torchtitan refuses
/// the arguments, with the end of its message.
Result<JsonDocument> read_titan_config(const std::string& launcher, std::span<const std::string> arguments,
                                       const RehearsalPlaces& places);

}  // namespace fsdp::runs
