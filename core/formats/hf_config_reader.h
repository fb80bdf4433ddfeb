#pragma once

// Reads one config.json of Hugging Face transformers, key by key. A missing key has transformers' default. A value that
// a block cannot express is an error at its place. The answer names keys that were never read.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/object_reader.h"

namespace fsdp {

/// The largest width, vocabulary or number of positions.
inline constexpr std::int64_t kLargestConfigSize = std::numeric_limits<std::int32_t>::max();
/// The most layers of a stack.
inline constexpr std::int64_t kMostConfigLayers = 4096;

/// The advice for a model that no block can express.
inline constexpr std::string_view kCaptureInstead =
    "capture the script that trains it: fsdp-plan capture -o my.model.json -- python train.py.";

/// REQUIRES: the constructor's arguments outlive it.
class HfConfigReader {
 public:
  /// `whose` names the model in messages: "llama".
  HfConfigReader(const JsonValue& object, std::string whose, JsonErrors& errors);

  /// Another name of a key: transformers' attribute_map. If both are given, they must agree.
  void alias(std::string_view key, std::string_view other);
  void aliases(std::initializer_list<std::array<std::string_view, 2>> pairs);

  /// An integer of 1 to `most`.
  std::int64_t size(std::string_view key, std::int64_t otherwise, std::int64_t most = kLargestConfigSize);
  /// The same; `nullopt` for null.
  std::optional<std::int64_t> size_or_null(std::string_view key, std::optional<std::int64_t> otherwise = {},
                                           std::int64_t most = kLargestConfigSize);
  /// An integer of 0 to `most`.
  std::int64_t count(std::string_view key, std::int64_t otherwise, std::int64_t most = kLargestConfigSize);
  /// A number above 0.
  double positive(std::string_view key, double otherwise);
  /// The same; `nullopt` for null.
  std::optional<double> positive_or_null(std::string_view key, std::optional<double> otherwise);
  /// A probability: 0 to below 1.
  double probability(std::string_view key, double otherwise);
  bool flag(std::string_view key, bool otherwise);
  /// One of `allowed`. Error: another text, with the allowed ones.
  std::string text(std::string_view key, std::string_view otherwise, std::initializer_list<std::string_view> allowed);
  /// A row of an embedding without a gradient, counted from the end if it is negative; `nullopt` for null.
  std::optional<std::int64_t> padding_index(std::string_view key, std::optional<std::int64_t> otherwise,
                                            std::int64_t rows);

  /// Accepts the only value that the blocks have. Error: another value.
  void only(std::string_view key, bool value);
  void only(std::string_view key, double value);
  /// Accepts null, empty or absent values. Error: anything else, with `hint`.
  void only_empty(std::initializer_list<std::string_view> keys, std::string_view hint = {});

  /// Ignores keys that change neither memory, nor work, nor the result.
  void pass_over(std::initializer_list<std::string_view> keys);

  /// The value of a key under any of its names; `nullptr` if absent. Null is a value. Marks the key as read.
  const JsonValue* find(std::string_view key);
  /// Adds an error at a value: "KEY is VALUE." and the allowed values.
  void refuse(const JsonValue& value, std::string_view key, std::string_view allowed);
  /// Adds an error at a key, or at the object if the key is absent.
  void fail(std::string_view key, std::string what, std::string hint);

  JsonErrors& errors() { return errors_; }
  const std::string& whose() const { return whose_; }
  /// Keys that were never read, in the order of the file, except null and false, which request nothing.
  std::vector<std::string> unread() const;

 private:
  std::optional<std::int64_t> integer(const JsonValue& value, std::string_view key, std::int64_t least,
                                      std::int64_t most, std::string_view or_null);

  const JsonValue& object_;
  std::string whose_;
  JsonErrors& errors_;
  std::vector<std::array<std::string_view, 2>> aliases_;
  std::vector<std::string_view> asked_;
};

}  // namespace fsdp
