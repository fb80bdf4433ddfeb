#pragma once

// One config.json of Hugging Face transformers, key by key. A key is read with the value that transformers has for it
// where it is absent; what a block cannot say is an error at its place; keys that nobody asked for are left over, and
// are named in the answer.

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

/// No width, vocabulary or number of positions is larger.
inline constexpr std::int64_t kLargestConfigSize = std::numeric_limits<std::int32_t>::max();
/// No stack has more layers.
inline constexpr std::int64_t kMostConfigLayers = 4096;

/// The advice for a model that no block can express.
inline constexpr std::string_view kCaptureInstead =
    "capture the script that trains it: fsdp-plan capture -o my.model.json -- python train.py.";

/// REQUIRES: what it is made from outlives it.
class HfConfigReader {
 public:
  /// `whose` is a word for the model in messages: "llama".
  HfConfigReader(const JsonValue& object, std::string whose, JsonErrors& errors);

  /// The other name that a key may have: transformers' attribute_map. Where both are given they must agree.
  void alias(std::string_view key, std::string_view other);
  void aliases(std::initializer_list<std::array<std::string_view, 2>> pairs);

  /// An integer of 1 to `most`.
  std::int64_t size(std::string_view key, std::int64_t otherwise, std::int64_t most = kLargestConfigSize);
  /// The same, or nothing for null.
  std::optional<std::int64_t> size_or_null(std::string_view key, std::optional<std::int64_t> otherwise = {},
                                           std::int64_t most = kLargestConfigSize);
  /// An integer of 0 to `most`.
  std::int64_t count(std::string_view key, std::int64_t otherwise, std::int64_t most = kLargestConfigSize);
  /// A number above 0.
  double positive(std::string_view key, double otherwise);
  /// The same, or nothing for null.
  std::optional<double> positive_or_null(std::string_view key, std::optional<double> otherwise);
  /// A probability: 0 to below 1.
  double probability(std::string_view key, double otherwise);
  bool flag(std::string_view key, bool otherwise);
  /// One of `allowed`. Error: another, with those.
  std::string text(std::string_view key, std::string_view otherwise, std::initializer_list<std::string_view> allowed);
  /// A row of an embedding that gets no gradient, counted from the end where it is negative; null: none.
  std::optional<std::int64_t> padding_index(std::string_view key, std::optional<std::int64_t> otherwise,
                                            std::int64_t rows);

  /// The blocks have one value for these. Error: another.
  void only(std::string_view key, bool value);
  void only(std::string_view key, double value);
  /// Null, or empty, or absent. Error: anything else, with `hint`.
  void only_empty(std::initializer_list<std::string_view> keys, std::string_view hint = {});

  /// Keys that change neither memory, nor work, nor what is computed.
  void pass_over(std::initializer_list<std::string_view> keys);

  /// The value of a key under any of its names, or nullptr; null counts as a value. The key counts as read.
  const JsonValue* find(std::string_view key);
  /// An error at a value: "KEY is VALUE." and what may stand there.
  void refuse(const JsonValue& value, std::string_view key, std::string_view allowed);
  /// An error at a key, or at the object where it is absent.
  void fail(std::string_view key, std::string what, std::string hint);

  JsonErrors& errors() { return errors_; }
  const std::string& whose() const { return whose_; }
  /// Keys that nobody asked for, in the order of the file; not those that are null or false, which ask for nothing.
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
