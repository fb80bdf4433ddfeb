// The blocks of ResNet, with torchvision's names.
//
//   stem        conv1 7x7 / 2 -> bn1 -> relu -> maxpool 3x3 / 2
//   basic block conv1 3x3 -> bn1 -> relu -> conv2 3x3 -> bn2 -> + input -> relu
//                                      (input through downsample: conv 1x1 and norm, if the shape changes)
//   head        average pool -> flatten -> fc -> cross entropy
//
// Sources: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; torchvision/models/resnet.py.
//
// Not modeled: torchvision computes the activations and the residual sum in place, so a block here briefly needs one
// more tensor. The tensors saved for the backward are the same.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

BlockValue relu(BlockBuilder& b, BlockValue x) {
  return b.activation("relu", OpKind::Relu, x, "ReLU");
}

NormOptions batch_norm_of(BlockBuilder& b, const BlockOptions& options) {
  return {.eps = norm_eps(b, options), .momentum = options.number("norm_momentum", NormOptions().momentum)};
}

void build_resnet_stem(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t kernel = options.integer("kernel", 7);
  const std::int64_t stride = options.integer("stride", 2);
  BlockValue x = b.conv2d("conv1", b.input("images"), options.integer("channels"),
                          {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false});
  x = relu(b, b.batch_norm("bn1", x, batch_norm_of(b, options)));
  if (options.flag("max_pool", true)) {
    b.declare("maxpool", "MaxPool2d");
    OpAttributes window;
    window.kernel = 3;
    window.stride = 2;
    window.padding = 1;
    x = b.op({.kind = OpKind::MaxPool2d, .module = "maxpool", .inputs = {x}, .attributes = window}).front();
  }
  b.output("hidden", x);
}

void build_resnet_basic_block(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t channels = options.integer("channels");
  const std::int64_t stride = options.integer("stride", 1);
  const NormOptions norm = batch_norm_of(b, options);
  const BlockValue hidden = b.input("hidden");

  BlockValue x = b.conv2d("conv1", hidden, channels, {.kernel = 3, .stride = stride, .padding = 1, .bias = false});
  x = relu(b, b.batch_norm("bn1", x, norm));
  x = b.conv2d("conv2", x, channels, {.kernel = 3, .padding = 1, .bias = false});
  x = b.batch_norm("bn2", x, norm);

  BlockValue shortcut = hidden;
  if (stride != 1 || b.size(hidden, 1) != channels) {
    const auto scope = b.enter("downsample", "Sequential");
    shortcut = b.conv2d("0", hidden, channels, {.stride = stride, .bias = false});
    shortcut = b.batch_norm("1", shortcut, norm);
  }
  b.output("hidden", relu(b, b.add(x, shortcut)));
}

void build_resnet_head(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  b.declare("avgpool", "AdaptiveAvgPool2d");
  OpAttributes pool;
  pool.length = 1;
  const BlockValue pooled =
      b.op({.kind = OpKind::AdaptiveAvgPool2d, .module = "avgpool", .inputs = {hidden}, .attributes = pool}).front();
  const BlockValue features = b.reshape(pooled, {b.size(hidden, 0), b.size(hidden, 1)});
  const BlockValue logits = b.linear("fc", features, options.integer("num_classes"), {.bias = true});
  b.output("loss", b.cross_entropy(logits, b.input("labels"), false));
}

std::string resnet_class(const BlockOptions& /*options*/) {
  return "ResNet";
}

std::string basic_block_class(const BlockOptions& /*options*/) {
  return "BasicBlock";
}

}  // namespace

std::vector<BlockKind> conv_blocks() {
  const OptionRule momentum = {"norm_momentum", OptionType::Number, false,
                               "Momentum of the norms' running statistics. Defaults to 0.1."};
  return {
      {"resnet_basic_block",
       "hidden [batch, channels, height, width] -> hidden: two 3x3 convolutions and a shortcut (ResNet-18 and 34).",
       {{"channels", OptionType::Size, true, "Channels that come out."},
        {"stride", OptionType::Size, false, "Stride of the first convolution. Defaults to 1."},
        norm_eps_rule(kNormEpsDoc),
        momentum},
       build_resnet_basic_block,
       basic_block_class},
      {"resnet_head",
       "hidden [batch, channels, height, width], labels [batch] -> loss: average pool, fc, cross entropy.",
       {{"num_classes", OptionType::Size, true, "Classes."}},
       build_resnet_head,
       resnet_class},
      {"resnet_stem",
       "images [batch, colors, height, width] -> hidden: the first convolution, norm and pooling of a ResNet.",
       {{"channels", OptionType::Size, true, "Channels that come out."},
        {"kernel", OptionType::Size, false, "Kernel size of the convolution. Defaults to 7."},
        {"stride", OptionType::Size, false, "Stride of the convolution. Defaults to 2."},
        {"max_pool", OptionType::Flag, false, "Ends with a 3x3 max pool. Defaults to true."},
        norm_eps_rule(kNormEpsDoc),
        momentum},
       build_resnet_stem,
       resnet_class},
  };
}

}  // namespace fsdp
