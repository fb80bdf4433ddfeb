#pragma once

// Patterns over fully qualified names: "model.layers.*.mlp.*", "lm_head", "*.bias".

#include <string>
#include <string_view>

namespace fsdp {

/// Whether a pattern means this name. "*" stands for any characters, dots included, and "?" for one. A pattern that
/// matches a module means all that is below it: "talker" matches "talker.model.norm.weight".
bool matches(std::string_view pattern, std::string_view name);

/// The same, but the whole name must match.
bool matches_exactly(std::string_view pattern, std::string_view name);

/// For choosing modules: the whole name must match, and "*" and "?" stay between two dots, so that "model.layers.*"
/// means the layers and not their parts.
bool matches_module(std::string_view pattern, std::string_view name);

/// "model.layers.*.mlp" for "model.layers.12.mlp": parts that are numbers as "*", which is how people write patterns.
std::string without_numbers(std::string_view name);

}  // namespace fsdp
