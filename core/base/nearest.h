#pragma once

// "Did you mean ...?": the name that a user most likely meant, for keys of files, flags, models and GPUs.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// The candidate nearest to `given`; `nullopt` if none is near enough to be a likely slip. Case, blanks and the
/// difference between "-" and "_" count little. The first of equals wins.
std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string_view> candidates);
std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string> candidates);

/// The usual hint of an error about a name: `Did you mean "x"?` if a candidate is near, otherwise `Known are a, b and
/// c.` with at most 24 candidates in the given order. Empty without candidates.
std::string suggest_name(std::string_view given, std::span<const std::string_view> candidates);
std::string suggest_name(std::string_view given, std::span<const std::string> candidates);

/// "a, b and c". Empty for none.
std::string join_names(std::span<const std::string_view> names, std::string_view last_separator = " and ");

}  // namespace fsdp
