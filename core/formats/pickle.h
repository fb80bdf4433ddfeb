#pragma once

// Pickles as data. A pickle is a program for a machine that can call any function of Python. This reader executes only
// the operations that build plain values; any other is an error. pickle.cpp lists them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fsdp {

enum class PickleKind : std::uint8_t { None, Bool, Int, Float, Text, Bytes, List, Tuple, Dict };

class PickleDocument;

/// A value inside of a document, which has to outlive it. Lists and dicts may be shared, and a hostile file may put one
/// into itself: callers must limit the depth of a walk.
class PickleValue {
 public:
  PickleValue() = default;
  PickleValue(const PickleDocument* document, std::uint32_t index) : document_(document), index_(index) {}

  PickleKind kind() const;
  bool is_none() const { return kind() == PickleKind::None; }
  /// An Int, or a Bool as 0 or 1; otherwise `nullopt`. Python's integers outside of signed 64 bits are Floats here,
  /// rounded to nearest: a snapshot writes the line of some frames as 2^64 - 1.
  std::optional<std::int64_t> as_int() const;
  /// An Int, a Bool or a Float.
  std::optional<double> as_float() const;
  std::optional<bool> as_bool() const;
  /// A Text. Its bytes are those of the file, which may not be UTF-8.
  std::optional<std::string_view> as_text() const;

  /// Items of a List, a Tuple or a Dict; 0 for anything else.
  std::size_t size() const;
  /// REQUIRES: i < size(). For a Dict: the value.
  PickleValue at(std::size_t i) const;
  PickleValue key_at(std::size_t i) const;
  /// The value of a text key of a Dict; `nullopt` if absent. The last one of repeated keys.
  std::optional<PickleValue> find(std::string_view key) const;

 private:
  const PickleDocument* document_ = nullptr;
  std::uint32_t index_ = 0;
};

struct PickleLimits {
  std::size_t values = std::size_t{1} << 28;      ///< Values of all kinds.
  std::size_t containers = std::size_t{1} << 26;  ///< Lists, tuples and dicts.
  std::size_t depth = 1000;                       ///< Number of open marks.
};

class PickleDocument {
 public:
  PickleValue root() const { return {this, root_}; }

 private:
  friend class PickleReader;
  friend class PickleValue;

  struct Value {
    union {
      std::int64_t integer = 0;  ///< Also the position of a text, and the index of a container.
      double real;
    };
    std::uint32_t length = 0;  ///< Length of a text.
    PickleKind kind = PickleKind::None;
  };

  std::string data_;  ///< The file; texts are views of it.
  std::vector<Value> values_;
  std::vector<std::vector<std::uint32_t>> containers_;  ///< Values; for a dict: key, value, key, value.
  std::uint32_t root_ = 0;
};

/// Whether these are the first bytes of a pickle of protocol 2 or later.
bool is_pickle(std::string_view data);

/// Reads a pickle of protocol 2 to 5. Error, with its place "name: byte N": an operation that does more than build
/// plain data, is unknown or comes too early; a number of more than 64 bits; a missing end; a limit.
Result<PickleDocument> read_pickle(std::string data, std::string_view name, const PickleLimits& limits = {});

}  // namespace fsdp
