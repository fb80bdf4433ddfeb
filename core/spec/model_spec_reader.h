#pragma once

// For the files that read a model spec; all others include core/spec/model_spec.h.

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

/// One option, of the type in its rule.
bool read_option(const JsonValue& value, const OptionRule& rule, SpecOption& out,
                 const std::vector<SpecDimension>& dimensions, JsonErrors& errors);

/// All options of `rules` in the object. Missing required ones are errors.
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

/// A required Python class name.
inline constexpr std::string_view kClassNameSchema = R"("type": "string", "minLength": 1)";
void read_class_name(const JsonValue& value, std::string& out, JsonErrors& errors);

// The parts of core/spec/model_schema.cpp, in the form of core/base/object_fields.h.
std::string schema_of_spec();                    ///< The whole file.
std::vector<FieldSchema> schemas_of_entry();     ///< Members of every entry of "modules".
std::vector<FieldSchema> schemas_of_op_entry();  ///< Members of every plain op.
/// Definitions by name, for references in the members above.
std::vector<std::pair<std::string, std::string>> schemas_of_parts();

}  // namespace fsdp::model_spec_reader
