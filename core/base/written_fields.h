#pragma once

// Objects that a program writes. One list of fields writes them, reads them back and gives their schema, so that the
// three agree. The list takes the object const or not, and writes a const one.
//
//   static void fields_of(Fields& fields, Like<PhaseMark> auto& mark) {
//     fields.required("phase", "Which one.", mark.phase);
//     fields.required("index", "Where it begins.", mark.index, kNatural);
//   }
//   ...
//   fields.optional("phase_marks", "Where phases begin.", memory.phase_marks, JsonLayout::OneLine);
//
// The order of the list is the order in the file. Reading ignores keys outside the list: a newer program of the same
// major version may add some.

#include <concepts>
#include <limits>
#include <tuple>

#include "core/base/object_fields.h"

namespace fsdp {

/// `T` or `const T`.
template <class S, class T>
concept Like = std::same_as<std::remove_const_t<S>, T>;
/// `T`, const if `S` is: for a temporary value.
template <class S, class T>
using ConstAs = std::conditional_t<std::is_const_v<S>, const T, T>;

/// A struct that has a list of fields.
template <class T>
concept HasFields = requires(Fields& fields, T& value) {
  fields_of(fields, value);
};
/// A struct whose list depends on its place, which `way` describes. `way.layout` is the layout for writing.
template <class T, class Way>
concept HasFieldsBy = requires(Fields& fields, T& value, const Way& way) {
  fields_of(fields, value, way);
  { way.layout } -> std::convertible_to<JsonLayout>;
};

/// Counts: no number below zero.
inline constexpr IntegerRange kNatural{0, std::numeric_limits<std::int64_t>::max()};

/// Marks a time that is a number of seconds in the file, at least zero.
struct InSeconds {};
inline constexpr InSeconds kInSeconds{};

/// Marks a number that may be missing: null in the file, NaN in memory.
struct NullIfNotFinite {};
inline constexpr NullIfNotFinite kNullIfNotFinite{};

/// A text from a fixed list.
struct OneOf {
  std::string_view noun;  ///< As in an EnumTable.
  std::span<const std::string_view> names;
};

/// The member of a row that is its key in an object: a text.
template <class Row>
struct TextKey {
  std::string Row::*member;

  std::string_view of(const Row& row) const { return row.*member; }
  bool read(const JsonMember& entry, Row& row, JsonErrors& /*errors*/) const {
    row.*member = entry.key;
    return true;
  }
};
/// The same for a name of an enum: an EnumTable, or a type with `name_of` and `read_json` overloads.
template <class Row, class E, class Names>
struct EnumKey {
  E Row::*member;
  Names names;

  std::string_view of(const Row& row) const { return name_of(names, row.*member); }
  bool read(const JsonMember& entry, Row& row, JsonErrors& errors) const {
    JsonValue name;
    name.type = JsonType::String;
    name.offset = entry.key_offset;
    name.text = entry.key;
    return read_json(name, row.*member, errors, names);
  }
};

/// An object whose keys are the `key`s of rows and whose values are their `value`s: `Keyed{TextKey{&Package::name},
/// &Package::version}`. `args` are arguments for the value's reader.
template <class Key, class Row, class Value, class... Args>
struct Keyed {
  Key key;
  Value Row::*value;
  JsonLayout layout;
  std::tuple<Args...> args;

  Keyed(Key key_of, Value Row::*value_of, JsonLayout written, Args... more)
      : key(key_of), value(value_of), layout(written), args(more...) {}
};

/// An object whose keys are the `key`s of rows and whose values are objects of the rows' other fields, one per line.
template <class Key>
struct KeyedRows {
  Key key;

  explicit KeyedRows(Key key_of) : key(key_of) {}
};

// Writing, with the same arguments as read_json and schema_of.
inline void write_json(JsonWriter& writer, bool value) {
  writer.value(value);
}
inline void write_json(JsonWriter& writer, const std::string& value) {
  writer.value(value);
}
inline void write_json(JsonWriter& writer, const std::string& value, const OneOf& /*names*/) {
  writer.value(value);
}
inline void write_json(JsonWriter& writer, std::int64_t value, IntegerRange /*range*/ = {}) {
  writer.value(value);
}
inline void write_json(JsonWriter& writer, double value, RealRange /*range*/ = {}) {
  writer.value(value);
}
inline void write_json(JsonWriter& writer, double value, NullIfNotFinite /*unused*/) {
  writer.value(value);
}
inline void write_json(JsonWriter& writer, Bytes value, InBytes /*unused*/) {
  writer.value(value.count());
}
inline void write_json(JsonWriter& writer, Seconds value, InSeconds /*unused*/) {
  writer.value(value.count());
}
template <class E>
void write_json(JsonWriter& writer, const E& value, const EnumTable<E>& table) {
  writer.value(name_of(table, value));
}
template <class E>
void write_json(JsonWriter& writer, const E& value, const DescribedNames<E>& names) {
  writer.value(name_of(names.table, value));
}
template <HasFields T>
void write_json(JsonWriter& writer, const T& value, JsonLayout layout) {
  writer.begin_object(layout);
  Fields fields(writer);
  fields_of(fields, value);
  writer.end_object();
}
template <class T, class Way>
requires HasFieldsBy<T, Way>
void write_json(JsonWriter& writer, const T& value, const Way& way) {
  writer.begin_object(way.layout);
  Fields fields(writer);
  fields_of(fields, value, way);
  writer.end_object();
}
template <class T, class... Args>
void write_json(JsonWriter& writer, const std::vector<T>& list, const Args&... args) {
  writer.begin_array();
  for (const T& element : list) write_json(writer, element, args...);
  writer.end_array();
}
template <class Key, class Row, class Value, class... Args>
void write_json(JsonWriter& writer, const std::vector<Row>& rows, const Keyed<Key, Row, Value, Args...>& keyed) {
  writer.begin_object(keyed.layout);
  for (const Row& row : rows) {
    writer.key(keyed.key.of(row));
    std::apply([&](const Args&... args) { write_json(writer, row.*keyed.value, args...); }, keyed.args);
  }
  writer.end_object();
}
template <class Row, class Key>
void write_json(JsonWriter& writer, const std::vector<Row>& rows, const KeyedRows<Key>& keyed) {
  writer.begin_object();
  for (const Row& row : rows) {
    writer.key(keyed.key.of(row));
    write_json(writer, row, JsonLayout::OneLine);
  }
  writer.end_object();
}

bool read_json(const JsonValue& value, Seconds& out, JsonErrors& errors, InSeconds);
bool read_json(const JsonValue& value, double& out, JsonErrors& errors, NullIfNotFinite);
bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors, const OneOf& names);
template <HasFields T>
bool read_json(const JsonValue& value, T& out, JsonErrors& errors, JsonLayout /*layout*/) {
  ObjectReader object(value, errors);
  Fields fields(object, UnknownKeys::Ignore);
  fields_of(fields, out);
  return object.finish(UnknownKeys::Ignore);
}
template <class T, class Way>
requires HasFieldsBy<T, Way>
bool read_json(const JsonValue& value, T& out, JsonErrors& errors, const Way& way) {
  ObjectReader object(value, errors);
  Fields fields(object, UnknownKeys::Ignore);
  fields_of(fields, out, way);
  return object.finish(UnknownKeys::Ignore);
}
/// A row for each member of an object; `read(member value, row)` fills in the fields after the key.
template <class Row, class Key, class Read>
bool read_rows(const JsonValue& value, std::vector<Row>& rows, const Key& key, JsonErrors& errors, Read read) {
  rows.clear();
  if (!expect_type(value, JsonType::Object, "an object", errors)) return false;
  bool good = true;
  for (const JsonMember& member : value.members) {
    Row row{};
    good = key.read(member, row, errors) && good;
    good = read(member.value, row) && good;
    rows.push_back(std::move(row));
  }
  return good;
}
template <class Key, class Row, class Value, class... Args>
bool read_json(const JsonValue& value, std::vector<Row>& rows, JsonErrors& errors,
               const Keyed<Key, Row, Value, Args...>& keyed) {
  return read_rows(value, rows, keyed.key, errors, [&](const JsonValue& member, Row& row) {
    const auto read = [&](const Args&... args) { return read_json(member, row.*keyed.value, errors, args...); };
    return std::apply(read, keyed.args);
  });
}
template <class Row, class Key>
bool read_json(const JsonValue& value, std::vector<Row>& rows, JsonErrors& errors, const KeyedRows<Key>& keyed) {
  return read_rows(value, rows, keyed.key, errors, [&](const JsonValue& member, Row& row) {
    return read_json(member, row, errors, JsonLayout::OneLine);
  });
}

std::string schema_of(Seconds value, InSeconds);
std::string schema_of(double value, NullIfNotFinite);
std::string schema_of(const std::string& value, const OneOf& names);
template <HasFields T>
std::string schema_of(const T& /*value*/, JsonLayout /*layout*/) {
  return schema_of_fields(
      [](Fields& fields) {
        T value{};
        fields_of(fields, value);
      },
      UnknownKeys::Ignore);
}
template <class T, class Way>
requires HasFieldsBy<T, Way> std::string schema_of(const T& /*value*/, const Way& way) {
  return schema_of_fields(
      [&](Fields& fields) {
        T value{};
        fields_of(fields, value, way);
      },
      UnknownKeys::Ignore);
}
template <class Key, class Row, class Value, class... Args>
std::string schema_of(const std::vector<Row>& /*rows*/, const Keyed<Key, Row, Value, Args...>& keyed) {
  const auto schema = [](const Args&... args) { return schema_of(Value{}, args...); };
  return R"("type": "object", "additionalProperties": {)" + std::apply(schema, keyed.args) + "}";
}
template <class Row, class Key>
std::string schema_of(const std::vector<Row>& /*rows*/, const KeyedRows<Key>& /*keyed*/) {
  return R"("type": "object", "additionalProperties": {)" + schema_of(Row{}, JsonLayout::OneLine) + "}";
}

/// A figure that is negative if unknown and then left out of the file.
template <class T, class... Args>
void field_if_known(Fields& fields, std::string_view key, FieldDoc doc, T& out, const Args&... args) {
  if constexpr (!std::is_const_v<T>) out = T(-1);
  fields.optional_if(out >= T(0), key, doc, out, args...);
}

/// A text, list or value that is left out of the file if it is empty.
template <class T, class... Args>
void field_if_any(Fields& fields, std::string_view key, FieldDoc doc, T& out, const Args&... args) {
  fields.optional_if(!out.empty(), key, doc, out, args...);
}
template <class T, class... Args>
void field_if_any(Fields& fields, std::string_view key, FieldDoc doc, std::optional<T>& out, const Args&... args) {
  fields.optional_if(out.has_value(), key, doc, out, args...);
}
template <class T, class... Args>
void field_if_any(Fields& fields, std::string_view key, FieldDoc doc, const std::optional<T>& out,
                  const Args&... args) {
  if (out) fields.optional_if(true, key, doc, *out, args...);
}

}  // namespace fsdp
