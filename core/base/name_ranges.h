#pragma once

// Ranges of module names in short form: "model.layers.{0..27}" for the 28 names from "model.layers.0" on,
// "model.layers.{0..26..2}" for every second one, and "encoder_layer_{0..11}" if the number follows an underscore. In
// files and reports, a change then reads as one line.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fsdp {

/// A range of names that differ in one number: a whole part between dots, or the end of a part after an underscore.
struct NameRange {
  std::string before;  ///< "model.layers.", or "encoder.layers.encoder_layer_"
  std::string after;   ///< "", or ".mlp"
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t step = 1;  ///< Positive.

  std::int64_t count() const { return (last - first) / step + 1; }
  bool operator==(const NameRange&) const = default;
};

/// "model.layers.{0..27}", with a third number for a step other than one.
std::string to_string(const NameRange& range);

/// The range that two names begin; `nullopt` if they differ in more than one number, or if the number does not rise.
std::optional<NameRange> range_of(std::string_view name, std::string_view next);

/// Appends `name` to the range if it is the next one. Returns whether it is.
bool extend(NameRange& range, std::string_view name);

/// A range of names, or one name outside of ranges.
struct NameRow {
  std::string single;
  std::optional<NameRange> range;  ///< `nullopt` if the name is in `single`.
};

/// The same names in the same order, with each range of at least two neighbors (three for a step other than one) as
/// one.
std::vector<NameRow> name_rows(std::span<const std::string> names);

/// The same as texts.
std::vector<std::string> fold_names(std::span<const std::string> names);

inline constexpr std::int64_t kMostNamesOfARange = 1'000'000;

/// The names that a text stands for: itself, or each name of a range. Error, with the place `where`: braces without a
/// range, a range that does not rise, or more than a million names.
Result<std::vector<std::string>> unfold_name(std::string_view text, std::string_view where);

}  // namespace fsdp
