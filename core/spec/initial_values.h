#pragma once

// Initial values in a model spec, and the resulting ones of each parameter.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/model/model.h"

namespace fsdp {

/// By what a standard deviation is divided: the square root of the elements that a result is summed from (In), that an
/// element goes to (Out), or of the mean of both.
enum class Fan : std::uint8_t { None, In, Out, Average };

/// The distribution of initial values, and its width.
struct SpecDraw {
  Distribution distribution = Distribution::Uniform;
  double std = 0.02;
  double value = 0;
  Fan fan = Fan::None;

  bool operator==(const SpecDraw&) const = default;
};

/// Parameters that a pattern matches.
struct SpecInitialRule {
  std::string pattern;
  SpecDraw draw;
  std::string where;

  bool operator==(const SpecInitialRule&) const = default;
};

/// "initial_values" of a spec.
struct SpecInitialValues {
  std::string source;                  ///< Where they come from.
  SpecDraw weights;                    ///< Draw of all that is neither a bias nor the scale of a norm.
  std::vector<SpecInitialRule> rules;  ///< Exceptions; the last one that matches counts.

  bool operator==(const SpecInitialValues&) const = default;
};

void read_initial_values(const JsonValue& value, SpecInitialValues& out, JsonErrors& errors);

/// Definitions of the schema, by name.
std::vector<std::pair<std::string, std::string>> schemas_of_initial_values();

/// Sets Parameter::initial of all. Norms' scales begin as what multiplies by one, biases as zeros, rows that padding
/// reads as zeros. Errors: a pattern that matches nothing, a fan of what has one dimension, a sinusoid of what has not
/// two.
Errors set_initial_values(const SpecInitialValues& spec, Model& model);

}  // namespace fsdp
