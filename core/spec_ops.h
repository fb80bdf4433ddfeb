#pragma once

// Plain ops, for modules that have no block: what attributes they take in a spec, and how they become ops.

#include <span>
#include <vector>

#include "core/block_builder.h"
#include "core/block_kinds.h"
#include "core/model_spec.h"

namespace fsdp {

/// Whether a spec may write this kind as a plain op. The experts of a mixture cannot: their block names them.
bool is_plain_op(OpKind kind);

/// The attributes that a kind takes. REQUIRES: is_plain_op(kind).
std::span<const OptionRule> attribute_rules(OpKind kind);

/// Writes the ops of an entry that has no block. An op without inputs reads what the op before gave; the block's
/// outputs are the entry's, or those of the last op. Mistakes go to the builder. REQUIRES: `attributes` [num_ops] are
/// checked against the rules of each op.
void write_plain_ops(BlockBuilder& builder, const SpecModule& module,
                     const std::vector<std::vector<BlockOptions::Evaluated>>& attributes);

}  // namespace fsdp
