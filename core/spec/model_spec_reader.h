#pragma once

// Between the files that read a model spec; everybody else includes core/spec/model_spec.h.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/object_fields.h"
#include "core/base/object_reader.h"
#include "core/spec/block_kinds.h"
#include "core/spec/model_spec.h"

namespace fsdp::model_spec_reader {

/// A number, or an expression whose names are all in `dimensions`.
bool read_number(const JsonValue& value, SpecNumber& out, const std::vector<SpecDimension>& dimensions,
                 JsonErrors& errors);

/// One option, of the type that its rule wants.
bool read_option(const JsonValue& value, const OptionRule& rule, SpecOption& out,
                 const std::vector<SpecDimension>& dimensions, JsonErrors& errors);

/// All options of `rules` that the object has; those that must be there and are not are errors.
void read_options(ObjectReader& object, std::span<const OptionRule> rules, std::vector<SpecOption>& out,
                  const std::vector<SpecDimension>& dimensions);

/// One entry of "modules".
void read_module(const JsonValue& value, SpecModule& out, const std::vector<SpecDimension>& dimensions,
                 JsonErrors& errors);

/// Marks a dtype that a spec may name.
struct SpecDtype {};
inline constexpr SpecDtype kSpecDtype{};
bool read_json(const JsonValue& value, Dtype& out, JsonErrors& errors, SpecDtype);
std::string schema_of(Dtype value, SpecDtype);

/// A Python class, which has a name where it stands.
inline constexpr std::string_view kClassNameSchema = R"("type": "string", "minLength": 1)";
void read_class_name(const JsonValue& value, std::string& out, JsonErrors& errors);

// What core/spec/model_schema.cpp puts together, each as core/base/object_fields.h has it.
std::string schema_of_spec();                    ///< The whole file.
std::vector<FieldSchema> schemas_of_entry();     ///< Members of every entry of "modules".
std::vector<FieldSchema> schemas_of_op_entry();  ///< Members of every plain op.
/// Definitions by name: those that the members above refer to.
std::vector<std::pair<std::string, std::string>> schemas_of_parts();

}  // namespace fsdp::model_spec_reader
