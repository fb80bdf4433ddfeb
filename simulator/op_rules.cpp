// Dispatch of op kinds to the families of rules.

#include "simulator/op_rules.h"

#include "simulator/kernel_writer.h"

namespace fsdp::simulator {

namespace {

void write_op(KernelWriter& w) {
  switch (w.op().kind) {
    case OpKind::Linear:
    case OpKind::Embedding:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::Parameter:
      return write_dense_op(w);
    case OpKind::RmsNorm:
    case OpKind::LayerNorm:
    case OpKind::GroupNorm:
    case OpKind::BatchNorm:
      return write_norm_op(w);
    case OpKind::RotaryTable:
    case OpKind::Rotary:
    case OpKind::Attention:
      return write_attention_op(w);
    case OpKind::Silu:
    case OpKind::Gelu:
    case OpKind::Relu:
    case OpKind::Sigmoid:
    case OpKind::Tanh:
    case OpKind::Mul:
    case OpKind::Add:
    case OpKind::Sub:
    case OpKind::Scale:
    case OpKind::Softcap:
    case OpKind::Dropout:
    case OpKind::Cast:
    case OpKind::Softmax:
    case OpKind::Mean:
    case OpKind::Sum:
    case OpKind::Std:
    case OpKind::MaxPool2d:
    case OpKind::AdaptiveAvgPool2d:
      return write_elementwise_op(w);
    case OpKind::Detach:
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Slice:
    case OpKind::Select:
    case OpKind::Expand:
    case OpKind::Split:
    case OpKind::Contiguous:
    case OpKind::Cat:
    case OpKind::Stack:
    case OpKind::Index:
    case OpKind::Pad:
    case OpKind::Constant:
      return write_shape_op(w);
    case OpKind::Router:
    case OpKind::Experts:
      return write_expert_op(w);
    case OpKind::CrossEntropy:
    case OpKind::MseLoss:
      return write_loss_op(w);
  }
}

}  // namespace

KernelProgram expand_block(const Block& block, const OpRuleContext& context) {
  KernelWriter writer(block, context);
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    writer.start_op(static_cast<int>(o));
    write_op(writer);
  }
  return writer.take();
}

}  // namespace fsdp::simulator
