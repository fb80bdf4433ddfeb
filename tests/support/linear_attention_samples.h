#pragma once

// Ops of linear attention and state spaces for tests that walk all kinds.

#include <optional>

#include "core/model/op.h"
#include "core/spec/block_builder.h"

namespace fsdp::simulator {

/// Such an op on "x" [2, 4, 16] or "long_rows" [2, 100, 16]; `nullopt` for another kind.
inline std::optional<BlockValue> linear_attention_sample(BlockBuilder& b, OpKind kind) {
  const BlockValue x = b.input("x"), rows = b.input("long_rows");
  const auto per_head = [&](const char* name) { return b.parameter_of("", name, {4}); };
  switch (kind) {
    case OpKind::CausalConv1d:
      return b.op({.kind = kind, .inputs = {x}, .parameters = {b.parameter_of("", "weight", {16, 1, 4})}})[0];
    case OpKind::DecayRate:
      return b.op({.kind = kind, .inputs = {b.linear("l", x, 4)}, .parameters = {per_head("a"), per_head("b")}})[0];
    case OpKind::GatedDeltaRule: {  // 2 heads of queries and keys of 4, and 4 of values of 4.
      const BlockValue steps = b.linear("l", rows, 4);
      return b.op({.kind = kind,
                   .inputs = {b.linear("m", rows, 32), steps, steps},
                   .attributes = {.heads = 4, .kv_heads = 2, .head_dim = 4, .length = 64}})[0];
    }
    case OpKind::StateSpace:  // 4 heads of 4, and 2 groups with states of 8.
      return b.op({.kind = kind,
                   .inputs = {b.linear("m", rows, 48), b.linear("l", rows, 4)},
                   .parameters = {per_head("a"), per_head("b"), per_head("d")},
                   .attributes = {.heads = 4, .head_dim = 4, .length = 64, .groups = 2}})[0];
    case OpKind::GatedRmsNorm:
      return b.op({.kind = kind,
                   .inputs = {x, b.scale(x, 2)},
                   .parameters = {b.parameter_of("", "weight", {16})},
                   .attributes = {.eps = 1e-6}})[0];
    default:
      return std::nullopt;
  }
}

}  // namespace fsdp::simulator
