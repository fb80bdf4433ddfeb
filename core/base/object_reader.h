#pragma once

// Reads values out of a JSON document and collects all its errors, so that a user fixes a file in one go.
//
//   Result<Point> read_point(const JsonDocument& document) {
//     JsonErrors errors(document);
//     Point point;
//     read_json(document.root, point, errors);
//     return std::move(errors).result(std::move(point));
//   }
//
//   bool read_json(const JsonValue& value, Point& point, JsonErrors& errors) {
//     ObjectReader object(value, errors);
//     object.required("name", point.name);
//     object.required("ranks", point.num_ranks, IntegerRange{1, 1024});
//     object.optional("memory", point.memory);           // A `Bytes`: "16GiB".
//     object.optional("dtype", point.dtype, kDTypeTable);  // An enum, by its table of names.
//     object.optional("corners", point.corners);         // A std::vector of anything that read_json reads.
//     return object.finish();                            // Unknown keys and missing ones.
//   }
//
// A type joins by an overload of `read_json` in its own namespace (static instead of in an unnamed namespace, where it
// is not found). It returns whether the value was good. After an error the output is unspecified but valid, and reading
// continues.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/base/units.h"

namespace fsdp {

/// The errors of one document. REQUIRES: the document outlives it.
class JsonErrors {
 public:
  explicit JsonErrors(const JsonDocument& document) : document_(document) {}

  /// Adds an error about a value. Returns false, so that a reader can end with `return errors.add(...)`.
  bool add(const JsonValue& at, std::string what, std::string hint = {}) {
    return add(at.offset, std::move(what), std::move(hint));
  }
  /// Adds an error about the byte at `offset`: a key's or a value's.
  bool add(std::uint32_t offset, std::string what, std::string hint = {});

  bool empty() const { return found_.empty(); }
  const JsonDocument& document() const { return document_; }

  /// All errors in the order of the file; at most 50, and a last one that counts the rest.
  Errors take() &&;
  /// The value if there was no error, otherwise the errors.
  template <class T>
  Result<T> result(T value) && {
    if (found_.empty()) return value;
    return tl::unexpected(std::move(*this).take());
  }

 private:
  struct Found {
    std::uint32_t offset;
    std::string what;
    std::string hint;
  };
  const JsonDocument& document_;
  std::vector<Found> found_;
};

/// Allowed integers, ends included.
struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

/// Ranks of a job or of a group: at least one, and no more than NCCL, MPI and PyTorch count, in an int.
inline constexpr IntegerRange kRanks{1, std::numeric_limits<int>::max()};

/// Allowed real numbers, ends included.
struct RealRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

/// Names of an enum's values: `constexpr EnumName<Color> kColors[] = {{Color::Red, "red"}, ...};` and
/// `constexpr EnumTable<Color> kColorTable{"color", kColors};`.
template <class E>
struct EnumName {
  E value;
  std::string_view name;
};
template <class E>
struct EnumTable {
  std::string_view noun;  ///< "dtype", for `Unknown dtype "bf61".`
  std::span<const EnumName<E>> names;
};

/// The name of a value. REQUIRES: the table has it.
template <class E>
constexpr std::string_view name_of(const EnumTable<E>& table, E value) {
  for (const EnumName<E>& entry : table.names) {
    if (entry.value == value) return entry.name;
  }
  return {};
}

/// The names of a table, in its order.
template <class E>
std::vector<std::string_view> all_names(const EnumTable<E>& table) {
  std::vector<std::string_view> names;
  for (const EnumName<E>& entry : table.names) names.push_back(entry.name);
  return names;
}

/// Marks a size that is an integer number of bytes in the file, as in reports: `required("peak_bytes", peak,
/// kInBytes)`.
struct InBytes {};
inline constexpr InBytes kInBytes{};

/// "the string \"four\"", "the number 1.5", "true", "null", "an object", "a list": a found value in messages.
std::string describe(const JsonValue& value);

/// Adds "Expected <expected>, found <value>." if the value has another type. Returns whether it has this one.
bool expect_type(const JsonValue& value, JsonType type, std::string_view expected, JsonErrors& errors);

bool read_json(const JsonValue& value, bool& out, JsonErrors& errors);
bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors);
bool read_json(const JsonValue& value, std::int64_t& out, JsonErrors& errors, IntegerRange range = {});
bool read_json(const JsonValue& value, int& out, JsonErrors& errors, IntegerRange range = {});
bool read_json(const JsonValue& value, double& out, JsonErrors& errors, RealRange range = {});
/// Quantities are strings with their unit: "16GiB", "450GB/s", "312TFLOPS", "3.5us".
bool read_json(const JsonValue& value, Bytes& out, JsonErrors& errors);
bool read_json(const JsonValue& value, BytesPerSecond& out, JsonErrors& errors);
bool read_json(const JsonValue& value, FlopsPerSecond& out, JsonErrors& errors);
bool read_json(const JsonValue& value, Seconds& out, JsonErrors& errors);
/// A size as an integer of bytes, zero to 2^62.
bool read_json(const JsonValue& value, Bytes& out, JsonErrors& errors, InBytes);

/// The index of a string in `names`. Error: another type, or an unknown name, with the nearest one.
std::optional<std::size_t> read_name(const JsonValue& value, std::string_view noun,
                                     std::span<const std::string_view> names, JsonErrors& errors);

template <class E>
bool read_json(const JsonValue& value, E& out, JsonErrors& errors, const EnumTable<E>& table) {
  for (const EnumName<E>& entry : table.names) {
    if (value.type == JsonType::String && value.text == entry.name) {
      out = entry.value;
      return true;
    }
  }
  return read_name(value, table.noun, all_names(table), errors).has_value();
}

template <class T, class... Args>
bool read_json(const JsonValue& value, std::vector<T>& out, JsonErrors& errors, const Args&... args) {
  out.clear();
  if (!expect_type(value, JsonType::Array, "a list", errors)) return false;
  out.reserve(value.elements.size());
  bool good = true;
  for (const JsonValue& element : value.elements) {
    T item{};
    good = read_json(element, item, errors, args...) && good;
    out.push_back(std::move(item));
  }
  return good;
}

template <class T, class... Args>
bool read_json(const JsonValue& value, std::optional<T>& out, JsonErrors& errors, const Args&... args) {
  return read_json(value, out.emplace(), errors, args...);
}

/// The treatment of unknown keys: slips in files that people write, additions in files that a newer program of the same
/// major version wrote.
enum class UnknownKeys { Refuse, Ignore };

/// The fields of one object. If the value is not an object, adds one error and finds no members. REQUIRES: value and
/// errors outlive it; `finish` is called last.
class ObjectReader {
 public:
  ObjectReader(const JsonValue& value, JsonErrors& errors);

  /// Reads a required member. Returns true if it is present and good.
  template <class T, class... Args>
  bool required(std::string_view key, T& out, const Args&... args) {
    const JsonValue* value = required_value(key);
    return value != nullptr && keep(read_json(*value, out, errors_, args...));
  }

  /// Reads an optional member; leaves `out` unchanged if it is missing. Returns true if it is present and good.
  template <class T, class... Args>
  bool optional(std::string_view key, T& out, const Args&... args) {
    const JsonValue* value = optional_value(key);
    return value != nullptr && keep(read_json(*value, out, errors_, args...));
  }

  /// The member itself, if the calls above are not enough; `nullptr` if it is missing. Marks the key as known.
  const JsonValue* required_value(std::string_view key);
  const JsonValue* optional_value(std::string_view key);

  /// Accepts a key and ignores its value: "$schema".
  void ignore(std::string_view key) { optional_value(key); }

  /// Adds an error about member `key`, or about the object itself if it lacks the member. Returns false.
  bool fail(std::string_view key, std::string what, std::string hint = {});

  bool is_object() const { return is_object_; }
  JsonErrors& errors() { return errors_; }

  /// Reports unknown keys, with the nearest known one, and missing ones. Returns true if the whole object was good.
  bool finish(UnknownKeys unknown = UnknownKeys::Refuse);

 private:
  bool keep(bool good) {
    good_ = good_ && good;
    return good;
  }
  const JsonMember* find(std::string_view key);

  const JsonValue& value_;
  JsonErrors& errors_;
  bool is_object_;
  bool good_;
  std::size_t next_ = 0;                 ///< The likely position of the next key: readers ask in the order of the file.
  std::vector<std::string_view> known_;  ///< Requested keys, in that order.
  std::vector<std::string_view> missing_;  ///< Missing required keys.
  std::vector<bool> asked_;                ///< Per member: whether a reader requested it.
};

}  // namespace fsdp
