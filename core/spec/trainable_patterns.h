#pragma once

// Decides which parameters are trained, by patterns of the spec, the recipe and the command line in turn.

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// Applies one level of patterns. If `trainable` is not empty, first freezes everything else; then freezes the matches
/// of `frozen`. A pattern may match a tied parameter by any of its names. Parameters with `is_fixed` stay frozen.
/// Error: a pattern that matches nothing, with the nearest name.
Errors apply_patterns(const std::vector<SpecPattern>& trainable, const std::vector<SpecPattern>& frozen,
                      const std::function<bool(std::size_t parameter)>& is_fixed, Model& model);

/// Patterns of a command line; their place is the flag.
std::vector<SpecPattern> patterns_of(const std::vector<std::string>& texts, const std::string& flag);

}  // namespace fsdp
