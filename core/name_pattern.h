#pragma once

// Patterns over fully qualified names: "model.layers.*.mlp.*", "lm_head", "*.bias".

#include <string_view>

namespace fsdp {

/// Whether a pattern means this name. "*" stands for any characters, dots included, and "?" for one. A pattern that
/// matches a module means all that is below it: "talker" matches "talker.model.norm.weight".
bool matches(std::string_view pattern, std::string_view name);

/// The same, but the whole name must match.
bool matches_exactly(std::string_view pattern, std::string_view name);

}  // namespace fsdp
