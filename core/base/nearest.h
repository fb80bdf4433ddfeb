#pragma once

// "Did you mean ...?": the name that a user most likely meant. Used for keys of files, flags, models and GPUs.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// The candidate nearest to `given`, or nothing when none is near enough to be a likely slip. Case, blanks and the
/// difference between "-" and "_" count little. The first of equals wins.
std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string_view> candidates);
std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string> candidates);

/// `Did you mean "x"?` when a candidate is near, else `Known are a, b and c.`, the candidates in the order given (at
/// most 24 of them). Empty without candidates. This is the usual hint of an error about a name.
std::string suggest_name(std::string_view given, std::span<const std::string_view> candidates);
std::string suggest_name(std::string_view given, std::span<const std::string> candidates);

/// "a, b and c". Empty for none.
std::string join_names(std::span<const std::string_view> names, std::string_view last_separator = " and ");

}  // namespace fsdp
