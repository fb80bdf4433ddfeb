#pragma once

// Patterns over fully qualified names: "model.layers.*.mlp.*", "lm_head", "*.bias".

#include <string>
#include <string_view>

namespace fsdp {

/// Whether a pattern matches this name. "*" stands for any characters, dots included, and "?" for one. A pattern that
/// matches a module also matches everything below it: "talker" matches "talker.model.norm.weight".
bool matches(std::string_view pattern, std::string_view name);

/// The same, but the whole name must match.
bool matches_exactly(std::string_view pattern, std::string_view name);

/// Selects modules: the whole name must match, and "*" and "?" stay between two dots, so that "model.layers.*" matches
/// the layers but not their parts.
bool matches_module(std::string_view pattern, std::string_view name);

/// "model.layers.*.mlp" for "model.layers.12.mlp": replaces numeric parts by "*", as people write patterns.
std::string without_numbers(std::string_view name);

}  // namespace fsdp
