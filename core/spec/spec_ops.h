#pragma once

// Writes plain ops, for modules without a block.

#include <vector>

#include "core/spec/block_builder.h"
#include "core/spec/block_kinds.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// Writes the ops of an entry without a block. An op without inputs reads the previous op's outputs; the block's
/// outputs are the entry's, or those of the last op. Mistakes go to the builder. REQUIRES: `attributes` [num_ops] are
/// checked against the rules of each op.
void write_plain_ops(BlockBuilder& builder, const SpecModule& module,
                     const std::vector<std::vector<BlockOptions::Evaluated>>& attributes);

}  // namespace fsdp
