#pragma once

// The members of an object of a file, named in one list that both reads them and gives their JSON Schema.
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
// A schema is passed around as the text of an object's members, without the braces: `"type": "boolean"`.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_writer.h"
#include "core/object_reader.h"

namespace fsdp {

/// What people are told of a member.
struct FieldDoc {
  std::string_view text;
  std::string_view examples = {};  ///< A JSON list of values; empty: none.

  FieldDoc(const char* sentence) : text(sentence) {}  // NOLINT(google-explicit-constructor): read as a sentence.
  FieldDoc(std::string_view sentence, std::string_view list) : text(sentence), examples(list) {}
};

// What a reader of object_reader.h takes, in the schema language. Types of their own join by an overload in their
// namespace.
std::string schema_of(bool value);
std::string schema_of(const std::string& value);
std::string schema_of(std::int64_t value, IntegerRange range = {});
std::string schema_of(int value, IntegerRange range = {});
std::string schema_of(double value, RealRange range = {});
std::string schema_of_names(const std::vector<std::string_view>& names);

template <class E>
std::string schema_of(const E& /*value*/, const EnumTable<E>& table) {
  std::vector<std::string_view> names;
  for (const EnumName<E>& entry : table.names) names.push_back(entry.name);
  return schema_of_names(names);
}
template <class T, class... Args>
std::string schema_of(const std::vector<T>& /*value*/, const Args&... args) {
  return R"("type": "array", "items": {)" + schema_of(T{}, args...) + "}";
}
template <class T, class... Args>
std::string schema_of(const std::optional<T>& /*value*/, const Args&... args) {
  return schema_of(T{}, args...);
}

// What a missing member means, as JSON: the value of the field as it is made. Empty: nothing that JSON can say.
std::string default_of(bool value);
std::string default_of(const std::string& value);
std::string default_of(std::int64_t value, IntegerRange range = {});
std::string default_of(int value, IntegerRange range = {});
std::string default_of(double value, RealRange range = {});
template <class E>
std::string default_of(const E& value, const EnumTable<E>& table) {
  return json_quoted(name_of(table, value));
}
template <class... Any>
std::string default_of(const Any&... /*unused*/) {
  return {};
}

/// The schema of one member.
struct FieldSchema {
  std::string_view key;
  std::string schema;  ///< With description, examples and default.
  bool required = false;
};

/// One object: it reads, or it collects schemas. In the second case every call returns false.
class Fields {
 public:
  explicit Fields(ObjectReader& object) : object_(&object) {}
  explicit Fields(std::vector<FieldSchema>& schemas) : schemas_(&schemas) {}

  /// As `ObjectReader::required` and `optional`.
  template <class T, class... Args>
  bool required(std::string_view key, FieldDoc doc, T& out, const Args&... args) {
    if (object_ != nullptr) return object_->required(key, out, args...);
    return describe(key, doc, schema_of(out, args...), true);
  }
  template <class T, class... Args>
  bool optional(std::string_view key, FieldDoc doc, T& out, const Args&... args) {
    if (object_ != nullptr) return object_->optional(key, out, args...);
    return describe(key, doc, schema_of(out, args...), false, default_of(out, args...));
  }

  /// A member that `read(value, errors)` reads and whose schema is `schema`. True when it is there.
  template <class Read>
  bool required_as(std::string_view key, FieldDoc doc, std::string_view schema, Read read) {
    if (object_ == nullptr) return describe(key, doc, schema, true);
    return run(object_->required_value(key), read);
  }
  template <class Read>
  bool optional_as(std::string_view key, FieldDoc doc, std::string_view schema, Read read) {
    if (object_ == nullptr) return describe(key, doc, schema, false);
    return run(object_->optional_value(key), read);
  }

  /// A member that is for others, whatever it holds: "$schema".
  void ignore(std::string_view key, FieldDoc doc) {
    if (object_ == nullptr) describe(key, doc, {}, false);
    if (object_ != nullptr) object_->ignore(key);
  }

 private:
  template <class Read>
  bool run(const JsonValue* value, Read& read) {
    if (value != nullptr) read(*value, object_->errors());
    return value != nullptr;
  }
  bool describe(std::string_view key, const FieldDoc& doc, std::string_view schema, bool required,
                std::string_view otherwise = {});

  ObjectReader* object_ = nullptr;
  std::vector<FieldSchema>* schemas_ = nullptr;
};

/// The schema of an object that has these members and no others.
std::string schema_of_object(const std::vector<FieldSchema>& fields);

template <class Visit>
std::vector<FieldSchema> schemas_of_fields(Visit visit) {
  std::vector<FieldSchema> schemas;
  Fields fields(schemas);
  visit(fields);
  return schemas;
}
template <class Visit>
std::string schema_of_fields(Visit visit) {
  return schema_of_object(schemas_of_fields(visit));
}

/// `"allOf": [{"$ref": "#/definitions/NAME"}]`: beside "$ref" a schema may say nothing else.
std::string schema_reference(std::string_view definition);

/// JSON text laid out to be read and compared: an object or a list that fits stands on one line.
/// REQUIRES: it is JSON.
std::string lay_out_json(const std::string& text);

}  // namespace fsdp
