#pragma once

// Which parameters are trained: patterns of the spec, the recipe and the command line, one after the other.

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// Applies one level of patterns: where `trainable` is not empty everything else is frozen first; then what `frozen`
/// matches is frozen. A tied parameter is meant by any of its names. Parameters for which `is_fixed` is true stay
/// frozen. Error: a pattern that matches nothing, with the nearest name.
Errors apply_patterns(const std::vector<SpecPattern>& trainable, const std::vector<SpecPattern>& frozen,
                      const std::function<bool(std::size_t parameter)>& is_fixed, Model& model);

/// Patterns of a command line, with the flag as their place.
std::vector<SpecPattern> patterns_of(const std::vector<std::string>& texts, const std::string& flag);

}  // namespace fsdp
