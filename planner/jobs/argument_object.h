#pragma once

// The arguments of a Python program as an object, whose members have places on the line.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp::planner {

/// An object without arguments.
JsonDocument no_arguments();

/// The words of a line, as they are joined, and the place of each.
class ArgumentLine {
 public:
  explicit ArgumentLine(std::span<const std::string> words);

  /// "--max_length 2048 --packing" of the words from `from` to `to` as {"max_length": "2048", "packing": true}. Several
  /// words after an option are a list, and one that begins with "{" is JSON. `key_of` gives the place of an option in
  /// the object, such as "fsdp_config.fsdp_version" for --fsdp_version, or "" to leave the option out. Errors: a word
  /// without an option, an option that is given twice, and those of JSON.
  Result<JsonDocument> object(std::size_t from, std::size_t to, std::string (*key_of)(const std::string&)) const;

  /// "a.b=2 +c=[x,y]" as {"a": {"b": 2}, "c": ["x", "y"]}, as Hydra reads the words from `from` to `to`. A name without
  /// a dot chooses a group, and is a member of "hydra"; so is --config-name. The last value of a key counts. Errors:
  /// words of another kind; keys that are removed; interpolations, which another file resolves.
  Result<JsonDocument> overrides(std::size_t from, std::size_t to) const;

  /// The place of a word, for errors.
  std::string where(std::size_t word) const;

 private:
  std::span<const std::string> words_;
  std::string text_;
  std::vector<std::uint32_t> begins_;  ///< [words]
};

}  // namespace fsdp::planner
