#pragma once

// The timed parts of a step, named so that a time measured in one plan is found again in another: ops by kind,
// dtype and parameters, other instructions by kind and dtypes. The executor measures under these names, and
// the simulator looks them up (core/cluster/machine_tables.h).

#include <string>

#include "core/base/dtype.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Work under its name, and how much of it: `WorkTimes` has the same three.
struct NamedWork {
  std::string work;
  double depth = 0;
  double size = 0;

  bool operator==(const NamedWork&) const = default;
};

/// An op of a call: elements of its inputs and outputs. For attention `depth` is how many keys a query has.
NamedWork work_of_op(const ModelIndex& index, int call, int op, Dtype activation, const Implementations& use);

/// Work of an instruction beside ops and waits for collectives; a size in bytes. `work` is empty for Forward and
/// Backward, and for a Free, which belongs to its action.
NamedWork work_of_action(const Instruction& step, const Model& model, const Layout& layout, const Plan& plan);

/// The same of the optimizer and of clipping, which no instruction varies.
NamedWork work_of_optimizer(const Layout& layout, const Plan& plan);
NamedWork work_of_clipping(const Layout& layout);

/// One stretch of ops of a Forward or Backward: what it takes beyond them. The size is 1.
NamedWork work_of_stretch(const Instruction& step);

}  // namespace fsdp
