#include "core/plan/autocast_flow.h"

#include <algorithm>

namespace fsdp {

namespace {

std::optional<Dtype> widest_of(const std::vector<std::optional<Dtype>>& inputs) {
  const bool is_wide = std::find(inputs.begin(), inputs.end(), Dtype::Float32) != inputs.end();
  return is_wide ? std::optional(Dtype::Float32) : std::nullopt;
}

}  // namespace

std::optional<Dtype> autocast_result(const Op& op, const std::vector<std::optional<Dtype>>& inputs,
                                     const std::optional<Dtype>& declared) {
  switch (op.kind) {
    case OpKind::LayerNorm:
    case OpKind::GroupNorm:
    case OpKind::Softmax:
    case OpKind::CrossEntropy:
    case OpKind::LinearCrossEntropy:
    case OpKind::MseLoss:
      return Dtype::Float32;
    case OpKind::Gelu:
      if (op.attributes.written_out) return Dtype::Float32;  // torch.pow.
      return inputs.front();
    case OpKind::Linear:
    case OpKind::Linear4bit:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::Attention:
    case OpKind::Embedding:
    case OpKind::Parameter:
      return std::nullopt;
    case OpKind::Cast:
    case OpKind::Constant:
    case OpKind::RotaryTable:
    case OpKind::Router:
    case OpKind::Experts:
    case OpKind::GroupedExperts:
    case OpKind::DenseExperts:
      return declared;
    case OpKind::Mul:
    case OpKind::Add:
    case OpKind::Sub:
    case OpKind::Rotary:
    case OpKind::Cat:
    case OpKind::Stack:
    case OpKind::SetSlice:
      return widest_of(inputs);
    default:
      return inputs.empty() ? declared : inputs.front();
  }
}

}  // namespace fsdp
