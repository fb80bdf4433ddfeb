#include "core/op_arity.h"

#include <fmt/format.h>

namespace fsdp {

OpArity arity_of(OpKind kind) {
  switch (kind) {
    case OpKind::Linear:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
      return {.min_parameters = 1, .max_parameters = 2};
    case OpKind::Embedding:
      return {.min_parameters = 1, .max_parameters = 1};
    case OpKind::Parameter:
      return {.min_inputs = 0, .max_inputs = 0, .min_parameters = 1, .max_parameters = 1};
    case OpKind::RmsNorm:
      return {.max_parameters = 1};
    case OpKind::LayerNorm:
    case OpKind::GroupNorm:
    case OpKind::BatchNorm:
      return {.max_parameters = 2};
    case OpKind::RotaryTable:
      return {.num_outputs = 2};
    case OpKind::Rotary:
      return {.min_inputs = 4, .max_inputs = 4, .num_outputs = 2};
    case OpKind::Attention:
      return {.min_inputs = 3, .max_inputs = 4};
    case OpKind::Mul:
    case OpKind::Add:
    case OpKind::Sub:
    case OpKind::Index:
    case OpKind::SetSlice:
    case OpKind::CrossEntropy:
    case OpKind::MseLoss:
      return {.min_inputs = 2, .max_inputs = 2};
    case OpKind::Cat:
    case OpKind::Stack:
      return {.max_inputs = kAnyNumber};
    case OpKind::Std:
      return {.min_inputs = 2, .max_inputs = 3};
    case OpKind::KvCache:
      return {.min_inputs = 2, .max_inputs = 2, .num_outputs = 2};
    case OpKind::Router:
      return {.num_outputs = 2};
    case OpKind::Experts:
      return {.min_inputs = 3, .max_inputs = 3, .min_parameters = 3, .max_parameters = kAnyNumber};
    case OpKind::Constant:
      return {.min_inputs = 0, .max_inputs = 0};
    default:
      return {};
  }
}

std::string to_string(int min, int max) {
  if (min == max) return fmt::format("{}", min);
  if (max == kAnyNumber) return fmt::format("at least {}", min);
  return fmt::format("{} to {}", min, max);
}

}  // namespace fsdp
