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

/// The words of a line, as they are joined, and the place of each.
class ArgumentLine {
 public:
  explicit ArgumentLine(std::span<const std::string> words);

  /// "--max_length 2048 --packing" of the words from `from` to `to` as {"max_length": "2048", "packing": true}. Several
  /// words after an option are a list, and one that begins with "{" is JSON. `prefix_of` names the object that a key
  /// belongs to: "fsdp_" for the members of "fsdp_config". Errors: a word without an option, an option that is given
  /// twice, and those of JSON.
  Result<JsonDocument> object(std::size_t from, std::size_t to, std::string (*key_of)(const std::string&)) const;

  /// The place of a word, for errors.
  std::string where(std::size_t word) const;

 private:
  std::span<const std::string> words_;
  std::string text_;
  std::vector<std::uint32_t> begins_;  ///< [words]
};

}  // namespace fsdp::planner
