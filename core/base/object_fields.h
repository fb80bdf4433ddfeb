#pragma once

// The members of an object in a file, in one list that both reads them and gives their JSON Schema. For files that
// programs write, the same list writes them, too: core/base/written_fields.h.
//
//   void point_fields(Fields& fields, Point& point) {
//     fields.required("name", "How people call it.", point.name);
//     fields.optional("ranks", "GPUs of the job.", point.num_ranks, IntegerRange{1, 1024});
//     fields.required_as("shape", "Its sizes.", R"("$ref": "#/definitions/sizes")", [&](const JsonValue& value,
//                        JsonErrors& errors) { read_shape(value, point.shape, errors); });
//   }
//
// Reading: `ObjectReader object(value, errors); Fields fields(object); point_fields(fields, point);`.
// Its schema: `schema_of_fields([](Fields& fields) { Point point; point_fields(fields, point); })`.
//
// A schema is passed as the text of an object's members, without the braces: `"type": "boolean"`.

#include <cassert>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/json_writer.h"
#include "core/base/object_reader.h"

namespace fsdp {

/// Documentation of a member.
struct FieldDoc {
  std::string_view text;
  std::string_view examples = {};  ///< A JSON list of values; may be empty.

  FieldDoc(const char* sentence) : text(sentence) {}  // NOLINT(google-explicit-constructor): read as a sentence.
  FieldDoc(std::string_view sentence, std::string_view list) : text(sentence), examples(list) {}
};

// The schemas of the values that object_reader.h reads. Other types add an overload in their namespace.
std::string schema_of(bool value);
std::string schema_of(const std::string& value);
std::string schema_of(std::int64_t value, IntegerRange range = {});
std::string schema_of(int value, IntegerRange range = {});
std::string schema_of(double value, RealRange range = {});
/// A size as an integer of bytes.
std::string schema_of(Bytes value, InBytes);
std::string schema_of_names(const std::vector<std::string_view>& names);

template <class E>
std::string schema_of(const E& /*value*/, const EnumTable<E>& table) {
  return schema_of_names(all_names(table));
}
template <class T, class... Args>
std::string schema_of(const std::vector<T>& /*value*/, const Args&... args) {
  return R"("type": "array", "items": {)" + schema_of(T{}, args...) + "}";
}
template <class T, class... Args>
std::string schema_of(const std::optional<T>& /*value*/, const Args&... args) {
  return schema_of(T{}, args...);
}

/// The names of an enum, with a sentence on each in the same order.
template <class E>
struct DescribedNames {
  const EnumTable<E>& table;
  std::span<const std::string_view> sentences;
};
template <class E>
DescribedNames(const EnumTable<E>&, std::span<const std::string_view>) -> DescribedNames<E>;
std::string schema_of_names(const std::vector<std::string_view>& names, std::span<const std::string_view> sentences);

template <class E>
bool read_json(const JsonValue& value, E& out, JsonErrors& errors, const DescribedNames<E>& names) {
  return read_json(value, out, errors, names.table);
}
template <class E>
std::string schema_of(const E& /*value*/, const DescribedNames<E>& names) {
  return schema_of_names(all_names(names.table), names.sentences);
}

/// A text that may not be empty. The members are the error message.
struct NotEmpty {
  std::string_view what;
  std::string_view hint;
};
bool read_json(const JsonValue& value, std::string& out, JsonErrors& errors, NotEmpty rule);
std::string schema_of(const std::string& value, NotEmpty rule);

// Quantities with a unit refer to the file's definitions: those of `quantity_schemas`.
std::string schema_of(Bytes value);
std::string schema_of(BytesPerSecond value);
std::string schema_of(FlopsPerSecond value);
std::string schema_of(Seconds value);
std::vector<std::pair<std::string, std::string>> quantity_schemas();

// The value of a missing member, as JSON: the field's default. Empty if JSON cannot express it.
std::string default_of(bool value);
std::string default_of(const std::string& value);
std::string default_of(std::int64_t value, IntegerRange range = {});
std::string default_of(int value, IntegerRange range = {});
std::string default_of(double value, RealRange range = {});
std::string default_of(Bytes value, InBytes);
template <class E>
std::string default_of(const E& value, const EnumTable<E>& table) {
  return json_quoted(name_of(table, value));
}
template <class E>
std::string default_of(const E& value, const DescribedNames<E>& names) {
  return json_quoted(name_of(names.table, value));
}
template <class... Any>
std::string default_of(const Any&... /*unused*/) {
  return {};
}

/// A value that a function reads.
template <class Read>
struct ReadBy {
  Read& read;
};
template <class Read>
bool read_json(const JsonValue& value, ReadBy<Read>& out, JsonErrors& errors) {
  if constexpr (std::is_same_v<decltype(out.read(value, errors)), bool>) {
    return out.read(value, errors);
  } else {
    out.read(value, errors);
    return true;
  }
}

/// The schema of one member.
struct FieldSchema {
  std::string_view key;
  std::string schema;  ///< With description, examples and default.
  bool required = false;
};

class Fields;
/// The schema of an object with these members. Allows others only if unknown ones are ignored.
std::string schema_of_object(const std::vector<FieldSchema>& fields, UnknownKeys unknown = UnknownKeys::Refuse);
template <class Visit>
std::vector<FieldSchema> schemas_of_fields(Visit visit, UnknownKeys unknown = UnknownKeys::Refuse);
template <class Visit>
std::string schema_of_fields(Visit visit, UnknownKeys unknown = UnknownKeys::Refuse) {
  return schema_of_object(schemas_of_fields(visit, unknown), unknown);
}

/// One object: reads it, collects its schema, or writes it. Calls return true only if they read a good value. `unknown`
/// also applies to the objects inside.
class Fields {
 public:
  explicit Fields(ObjectReader& object, UnknownKeys unknown = UnknownKeys::Refuse)
      : object_(&object), unknown_(unknown) {}
  explicit Fields(std::vector<FieldSchema>& schemas, UnknownKeys unknown = UnknownKeys::Refuse)
      : schemas_(&schemas), unknown_(unknown) {}
  explicit Fields(JsonWriter& writer) : writer_(&writer) {}

  /// As `ObjectReader::required` and `optional`. Writes a const value. REQUIRES: the value is const if and only if this
  /// writes.
  template <class T, class... Args>
  bool required(std::string_view key, FieldDoc doc, T& out, const Args&... args) {
    if constexpr (std::is_const_v<T>) {
      return write(key, out, args...);
    } else {
      if (object_ != nullptr) return object_->required(key, out, args...);
      return describe(key, doc, schema_of(out, args...), true);
    }
  }
  template <class T, class... Args>
  bool optional(std::string_view key, FieldDoc doc, T& out, const Args&... args) {
    if constexpr (std::is_const_v<T>) {
      return write(key, out, args...);
    } else {
      if (object_ != nullptr) return object_->optional(key, out, args...);
      return describe(key, doc, schema_of(out, args...), false, default_of(out, args...));
    }
  }

  /// A member that is written under a condition. It has no default.
  template <class T, class... Args>
  bool optional_if(bool is_written, std::string_view key, FieldDoc doc, T& out, const Args&... args) {
    if constexpr (std::is_const_v<T>) {
      return is_written && write(key, out, args...);
    } else {
      if (object_ != nullptr) return object_->optional(key, out, args...);
      return describe(key, doc, schema_of(out, args...), false);
    }
  }

  /// A member that `read(value, errors)` reads and whose schema is `schema`. `read` may return whether the value was
  /// good.
  template <class Read>
  bool required_as(std::string_view key, FieldDoc doc, std::string_view schema, Read read) {
    if (object_ == nullptr) return describe(key, doc, schema, true);
    ReadBy<Read> reader{read};
    return object_->required(key, reader);
  }
  template <class Read>
  bool optional_as(std::string_view key, FieldDoc doc, std::string_view schema, Read read) {
    if (object_ == nullptr) return describe(key, doc, schema, false);
    ReadBy<Read> reader{read};
    return object_->optional(key, reader);
  }

  /// A member that is an object with the fields that `visit(fields)` names. `layout` is for writing.
  template <class Visit>
  void required_object(std::string_view key, FieldDoc doc, Visit visit, JsonLayout layout = JsonLayout::Lines) {
    if (writer_ != nullptr) return write_object(key, visit, layout);
    required_as(key, doc, object_ == nullptr ? schema_of_fields(visit, unknown_) : std::string(), reader_of(visit));
  }
  /// `relation`: constraints between fields, as members of the object's schema.
  template <class Visit>
  void optional_object(std::string_view key, FieldDoc doc, Visit visit, JsonLayout layout = JsonLayout::Lines,
                       std::string_view relation = {}) {
    if (writer_ != nullptr) return write_object(key, visit, layout);
    std::string schema;
    if (object_ == nullptr) schema = schema_of_fields(visit, unknown_).append(relation);
    optional_as(key, doc, schema, reader_of(visit));
  }

  /// The reader, for checks that no list can express; `nullptr` if this does not read.
  ObjectReader* object() { return object_; }

  /// A member for other programs, with any value: "$schema".
  void ignore(std::string_view key, FieldDoc doc) {
    if (object_ == nullptr) describe(key, doc, {}, false);
    if (object_ != nullptr) object_->ignore(key);
  }

 private:
  template <class Visit>
  auto reader_of(Visit& visit) const {
    return [&visit, unknown = unknown_](const JsonValue& value, JsonErrors& errors) {
      ObjectReader object(value, errors);
      Fields fields(object, unknown);
      visit(fields);
      return object.finish(unknown);
    };
  }
  template <class T, class... Args>
  bool write(std::string_view key, const T& value, const Args&... args) {
    assert(writer_ != nullptr);
    writer_->key(key);
    write_json(*writer_, value, args...);
    return false;
  }
  template <class Visit>
  void write_object(std::string_view key, Visit& visit, JsonLayout layout) {
    writer_->key(key);
    writer_->begin_object(layout);
    visit(*this);
    writer_->end_object();
  }
  bool describe(std::string_view key, const FieldDoc& doc, std::string_view schema, bool required,
                std::string_view otherwise = {});

  ObjectReader* object_ = nullptr;
  std::vector<FieldSchema>* schemas_ = nullptr;
  JsonWriter* writer_ = nullptr;
  UnknownKeys unknown_ = UnknownKeys::Refuse;
};

template <class Visit>
std::vector<FieldSchema> schemas_of_fields(Visit visit, UnknownKeys unknown) {
  std::vector<FieldSchema> schemas;
  Fields fields(schemas, unknown);
  visit(fields);
  return schemas;
}

/// The formatted text of a whole schema. `definitions`: the targets of "#/definitions/NAME".
std::string schema_of_file(std::string_view name, std::string_view title, std::string_view description,
                           std::string_view schema, const std::vector<FieldSchema>& definitions);

/// `"allOf": [{"$ref": "#/definitions/NAME"}]`, because a schema may have nothing else beside "$ref".
std::string schema_reference(std::string_view definition);

}  // namespace fsdp
