#pragma once

// How many inputs, parameters and outputs an op has.

#include <limits>
#include <string>

#include "core/op.h"

namespace fsdp {

inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

struct OpArity {
  int min_inputs = 1;
  int max_inputs = 1;
  int min_parameters = 0;
  int max_parameters = 0;
  int num_outputs = 1;  ///< Split: as many as are asked for.
};

OpArity arity_of(OpKind kind);

/// "2", "1 to 3" or "at least 1".
std::string to_string(int min, int max);

}  // namespace fsdp
