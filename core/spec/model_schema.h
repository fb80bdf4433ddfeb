#pragma once

// The JSON Schema of model specs.

#include <string>

namespace fsdp {

/// What `fsdp-plan schema model` prints and model_specs/schemas/model.schema.json holds.
std::string model_schema();

}  // namespace fsdp
