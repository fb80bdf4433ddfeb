#pragma once

// The names of linear layers in torchtitan's decoders, and in transformers', which plans have.

#include <optional>
#include <string_view>

namespace fsdp::planner {

/// The part of a name that the layers have in transformers' models which torchtitan knows by this part, such as
/// "attention.wk". `nullopt` if it is not known.
std::optional<std::string_view> layer_in_transformers(std::string_view titan);

/// The same in the other direction.
std::optional<std::string_view> layer_in_torchtitan(std::string_view ours);

}  // namespace fsdp::planner
