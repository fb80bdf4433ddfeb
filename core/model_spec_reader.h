#pragma once

// Between the files that read a model spec; everybody else includes core/model_spec.h.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_kinds.h"
#include "core/json_document.h"
#include "core/model_spec.h"
#include "core/object_reader.h"

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

/// The dtypes that a spec may name.
bool read_dtype(const JsonValue& value, Dtype& out, JsonErrors& errors);

/// Texts with the place where each stands.
/// Reads "class", which has a name where it stands.
void read_class_name(ObjectReader& object, std::string& out, bool required = false);

void read_patterns(ObjectReader& object, std::string_view key, std::vector<SpecPattern>& out);

}  // namespace fsdp::model_spec_reader
