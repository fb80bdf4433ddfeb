#pragma once

// An entry of a spec's "modules" with its numbers evaluated, ready to become a block.

#include <vector>

#include "core/spec/block_kinds.h"
#include "core/spec/dimensions.h"
#include "core/spec/model_spec.h"

namespace fsdp {

using EvaluatedOptions = std::vector<BlockOptions::Evaluated>;

struct SpecEntry {
  const SpecModule* spec = nullptr;
  const BlockKind* kind = nullptr;           ///< Null for plain ops.
  std::vector<EvaluatedOptions> options;     ///< [num_variations]: one set of options, or several in turn.
  std::vector<EvaluatedOptions> op_options;  ///< [num_ops] of plain ops.
};

/// Evaluates all numbers of an entry and adds problems to `errors`. REQUIRES: the module outlives the entry.
SpecEntry evaluate_entry(const SpecModule& module, const DimensionValues& dimensions, Errors& errors);

}  // namespace fsdp
