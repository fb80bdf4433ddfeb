#pragma once

// The JSON Schema of model specs.

#include <string>

namespace fsdp {

/// The text of `fsdp-plan schema model` and of model_specs/schemas/model.schema.json.
std::string model_schema();

}  // namespace fsdp
