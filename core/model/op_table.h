#pragma once

// The facts of each op kind, one row per kind: a new op is a row here and a rule in the simulator and in the
// executor (core/model/op.h).

#include <limits>
#include <string_view>
#include <vector>

#include "core/base/option_rule.h"
#include "core/model/op.h"
#include "core/model/op_shape_rules.h"

namespace fsdp {

inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

/// The numbers of inputs, parameters and outputs of an op.
struct OpArity {
  int min_inputs = 1;
  int max_inputs = 1;
  int min_parameters = 0;
  int max_parameters = 0;
  int num_outputs = 1;  ///< Split: as many as requested.
};

struct OpRow {
  OpKind kind = OpKind::Add;
  std::string_view name;  ///< As in specs: "rms_norm".
  OpArity arity = {};
  op_shape_rules::ShapeRule* shape = op_shape_rules::same;
  std::vector<OptionRule> attributes = {};  ///< Those that a spec may give to a plain op.
  bool saves_tensors = true;                ///< False if the backward needs only sizes, no tensor of the forward.
  bool takes_one_dtype =
      false;                   ///< Products and fused norms: PyTorch refuses an input in another dtype than the weight.
  bool takes_scalars = false;  ///< Only a loss gives a scalar, and only sums of losses compute on one.
  bool is_plain = true;        ///< A spec may write it as a plain op. Not the experts of a mixture, which their block
                               ///< names, nor recorded ops.
};

/// The row of a kind.
const OpRow& op_row(OpKind kind);

}  // namespace fsdp
