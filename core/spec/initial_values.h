#pragma once

// Initial values in a model spec, and those of each parameter that follow.

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

/// The divisor of a standard deviation: the square root of the number of elements that sum to one result (In), of
/// results that one element contributes to (Out), or of the mean of both.
enum class Fan : std::uint8_t { None, In, Out, Average };

/// The distribution of initial values and its width.
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
  std::string source;                  ///< The origin of the values.
  SpecDraw weights;                    ///< For all parameters but biases and scales of norms.
  std::vector<SpecInitialRule> rules;  ///< Exceptions; the last match counts.

  bool operator==(const SpecInitialValues&) const = default;
};

void read_initial_values(const JsonValue& value, SpecInitialValues& out, JsonErrors& errors);

/// Definitions of the schema, by name.
std::vector<std::pair<std::string, std::string>> schemas_of_initial_values();

/// Sets Parameter::initial for all parameters. Scales of norms start as a factor of one, biases as zeros, rows for
/// padding as zeros. Errors: a pattern that matches nothing, a fan of a parameter with one dimension, a sinusoid
/// without two dimensions.
Errors set_initial_values(const SpecInitialValues& spec, Model& model);

}  // namespace fsdp
