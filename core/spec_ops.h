#pragma once

// Plain ops, for modules that have no block: what attributes they take in a spec, and how they become ops.

#include <span>

#include "core/block_builder.h"
#include "core/block_kinds.h"
#include "core/model_spec.h"

namespace fsdp {

/// Whether a spec may write this kind as a plain op. The experts of a mixture cannot: their block names them.
bool is_plain_op(OpKind kind);

/// The attributes that a kind takes. REQUIRES: is_plain_op(kind).
std::span<const OptionRule> attribute_rules(OpKind kind);

/// Writes one op whose inputs are known. REQUIRES: attributes checked against the kind's rules.
std::vector<BlockValue> write_plain_op(BlockBuilder& builder, const SpecOp& op, const BlockOptions& attributes,
                                       const std::vector<BlockValue>& inputs);

}  // namespace fsdp
