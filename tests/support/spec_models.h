#pragma once

// Models of the library in model_specs/, and questions that tests ask about them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/spec/model_spec.h"

namespace fsdp {

/// The model of model_specs/<file>. Ends the test program with the errors when there are any.
Model model_of(const std::string& file, const Workload& workload = {});

/// Elements of the parameters whose name begins with `prefix`.
std::int64_t elements_below(const Model& model, std::string_view prefix);
/// Elements of the parameters that satisfy a predicate.
template <class Predicate>
std::int64_t elements_where(const Model& model, Predicate predicate) {
  std::int64_t total = 0;
  for (const Parameter& parameter : model.parameters) {
    if (predicate(parameter)) total += num_elements(parameter.shape);
  }
  return total;
}

/// nullptr: the model has none of that name.
const Parameter* find_parameter(const Model& model, std::string_view name);
const Module* find_module(const Model& model, std::string_view name);
const Buffer* find_buffer(const Model& model, std::string_view name);

/// An op where it runs: with the shapes of one call.
struct PlacedOp {
  std::string module = {};  ///< Fully qualified.
  OpKind kind = OpKind::Add;
  OpAttributes attributes = {};
  std::vector<Shape> inputs = {};
  std::vector<Shape> outputs = {};
};

/// Every op that runs in the forward of this module itself, in forward order.
std::vector<PlacedOp> ops_of(const Model& model, std::string_view module);
/// The same for one kind of op. Ends the test program when there is none.
PlacedOp op_of(const Model& model, std::string_view module, OpKind kind);

}  // namespace fsdp
