// The ECAPA-TDNN speaker encoder: one vector for a voice, from the mel spectrogram of a clip.
//
//   mel [batch, frames, bins] -> blocks.0 (convolution)
//     -> blocks.1..3: 1x1, Res2Net (groups of channels that feed one another), 1x1, squeeze and excitation, + input
//     -> mfa over all three results -> asp: mean and deviation over time, weighted by attention -> fc -> [batch, width]
//
// Every convolution pads by reflection into a copy of its input, even if it adds nothing (kernel 1).
//
// Sources: Desplanques et al., "ECAPA-TDNN: Emphasized Channel Attention, Propagation and Aggregation in TDNN Based
// Speaker Verification", Interspeech 2020; modeling_qwen3_tts.py of the package qwen-tts 0.1.1, whose names it has.
//
// Not modeled: the length mask beyond its bytes (all clips are as long as the longest), and one in-place ReLU.

#include <fmt/format.h>

#include "core/spec/block_kinds.h"

namespace fsdp {
namespace {

/// PyTorch's Conv1d with padding "same" and mode "reflect": first pads into a copy, even by nothing.
BlockValue same_conv1d(BlockBuilder& b, std::string_view module, BlockValue x, std::int64_t channels,
                       std::int64_t kernel, std::int64_t dilation) {
  const std::int64_t length = b.size(x, -1);
  const BlockValue padded = b.pad(x, -1, length + dilation * (kernel - 1), true);
  return b.conv1d(module, padded, channels, {.kernel = kernel, .dilation = dilation});
}

BlockValue time_delay_block(BlockBuilder& b, std::string_view name, BlockValue x, std::int64_t channels,
                            std::int64_t kernel, std::int64_t dilation) {
  const auto scope = b.enter(name, "TimeDelayNetBlock");
  const BlockValue y = same_conv1d(b, "conv", x, channels, kernel, dilation);
  return b.activation("activation", OpKind::Relu, y, "ReLU");
}

/// Channels in `scale` groups; each group but the first convolves itself plus the result of the group before.
BlockValue res2net_block(BlockBuilder& b, BlockValue x, std::int64_t scale, std::int64_t kernel,
                         std::int64_t dilation) {
  const auto scope = b.enter("res2net_block", "Res2NetBlock");
  b.declare("blocks", "ModuleList", false);
  const std::int64_t width = b.size(x, 1) / scale;
  std::vector<BlockValue> parts = b.split(x, static_cast<int>(scale), 1);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const BlockValue sum = i == 1 ? parts[i] : b.add(parts[i], parts[i - 1]);
    parts[i] = time_delay_block(b, fmt::format("blocks.{}", i - 1), sum, width, kernel, dilation);
  }
  return b.cat(parts, 1);
}

BlockValue squeeze_excitation(BlockBuilder& b, BlockValue x, std::int64_t channels) {
  const auto scope = b.enter("se_block", "SqueezeExcitationBlock");
  BlockValue gate = b.mean(x, 2, true);
  gate = b.activation("relu", OpKind::Relu, same_conv1d(b, "conv1", gate, channels, 1, 1), "ReLU");
  gate = same_conv1d(b, "conv2", gate, b.size(x, 1), 1, 1);
  return b.mul(x, b.activation("sigmoid", OpKind::Sigmoid, gate, "Sigmoid"));
}

constexpr double kPoolingEps = 1e-12;  // AttentiveStatisticsPooling.eps of the published code.

struct Statistics {
  BlockValue mean, std;  ///< [batch, channels].
};

/// Mean and standard deviation over time, under weights that sum to one.
Statistics weighted_statistics(BlockBuilder& b, BlockValue x, BlockValue weights) {
  const BlockValue mean = b.sum(b.mul(x, weights), 2, false);
  const BlockValue column = b.reshape(mean, {b.size(x, 0), b.size(x, 1), 1});
  OpAttributes attributes;
  attributes.dim = 2;
  attributes.eps = kPoolingEps;
  const std::vector<BlockValue> std =
      b.op({.kind = OpKind::Std, .inputs = {x, column, weights}, .attributes = attributes});
  return {mean, std.front()};
}

/// [batch, channels] to [batch, channels, length], as a copy (`repeat`).
BlockValue repeat_in_time(BlockBuilder& b, BlockValue x, std::int64_t length) {
  const std::int64_t batch = b.size(x, 0), channels = b.size(x, 1);
  return b.contiguous(b.expand(b.reshape(x, {batch, channels, 1}), {batch, channels, length}));
}

/// [batch, channels, length] to [batch, 2 * channels, 1].
BlockValue attentive_pooling(BlockBuilder& b, BlockValue x, std::int64_t attention_channels) {
  const auto scope = b.enter("asp", "AttentiveStatisticsPooling");
  const std::int64_t batch = b.size(x, 0), channels = b.size(x, 1), length = b.size(x, 2);
  // All positions have equal weight: the mask over its sum.
  const Statistics global = weighted_statistics(b, x, b.constant({batch, 1, length}, 1 / static_cast<double>(length)));
  const BlockValue context =
      b.cat({x, repeat_in_time(b, global.mean, length), repeat_in_time(b, global.std, length)}, 1);
  BlockValue attention = time_delay_block(b, "tdnn", context, attention_channels, 1, 1);
  attention = b.activation("tanh", OpKind::Tanh, attention, "Tanh");
  attention = same_conv1d(b, "conv", attention, channels, 1, 1);
  // The published code fills padded positions with minus infinity; a sum with a mask costs the same bytes.
  attention = b.softmax(b.add(attention, b.constant({batch, 1, length})), 2);
  const Statistics pooled = weighted_statistics(b, x, attention);
  return b.reshape(b.cat({pooled.mean, pooled.std}, 1), {batch, 2 * channels, 1});
}

void build_ecapa_tdnn(BlockBuilder& b, const BlockOptions& options) {
  const std::vector<std::int64_t> channels = options.sizes("channels");
  const std::vector<std::int64_t> kernels = options.sizes("kernels");
  const std::vector<std::int64_t> dilations = options.sizes("dilations");
  const std::int64_t scale = options.integer("res2net_scale", 8);
  if (channels.size() < 3 || channels.size() != kernels.size() || channels.size() != dilations.size()) {
    return b.fail("channels, kernels and dilations must be lists of one length, of at least 3.");
  }
  for (const std::int64_t width : channels) {
    if (width % scale != 0) return b.fail(fmt::format("{} channels do not divide by res2net_scale {}.", width, scale));
  }

  // The script casts the fp32 mel frames by hand; a cast without a dtype casts to that of the activations.
  const BlockValue mels = b.op({.kind = OpKind::Cast, .inputs = {b.input("ref_mels")}}).front();
  b.declare("blocks", "ModuleList", false);
  BlockValue x =
      time_delay_block(b, "blocks.0", b.transpose(mels, 1, 2), channels.front(), kernels.front(), dilations.front());
  std::vector<BlockValue> features;
  for (std::size_t i = 1; i + 1 < channels.size(); ++i) {
    const auto scope = b.enter(fmt::format("blocks.{}", i), "SqueezeExcitationRes2NetBlock");
    BlockValue y = time_delay_block(b, "tdnn1", x, channels[i], 1, 1);
    y = res2net_block(b, y, scale, kernels[i], dilations[i]);
    y = time_delay_block(b, "tdnn2", y, channels[i], 1, 1);
    x = b.add(squeeze_excitation(b, y, options.integer("se_channels", 128)), x);
    features.push_back(x);
  }
  x = time_delay_block(b, "mfa", b.cat(features, 1), channels.back(), kernels.back(), dilations.back());
  x = attentive_pooling(b, x, options.integer("attention_channels", 128));
  x = same_conv1d(b, "fc", x, options.integer("embedding_size"), 1, 1);
  b.output("speaker_embedding", b.reshape(x, {b.size(x, 0), b.size(x, 1)}));
}

std::string speaker_encoder_class(const BlockOptions& /*options*/) {
  return "Qwen3TTSSpeakerEncoder";
}

}  // namespace

std::vector<BlockKind> ecapa_tdnn_blocks() {
  return {
      {"ecapa_tdnn",
       "ref_mels [batch, frames, mel bins] -> speaker_embedding [batch, embedding_size]: the ECAPA-TDNN speaker "
       "encoder.",
       {{"embedding_size", OptionType::Size, true, "Width of the speaker embedding."},
        {"channels", OptionType::Sizes, true, "Channels of the first block, the residual blocks and the aggregation."},
        {"kernels", OptionType::Sizes, true, "Kernel sizes of the same."},
        {"dilations", OptionType::Sizes, true, "Dilations of the same."},
        {"res2net_scale", OptionType::Size, false, "Groups of channels in a residual block. Defaults to 8."},
        {"se_channels", OptionType::Size, false, "Bottleneck of squeeze and excitation. Defaults to 128."},
        {"attention_channels", OptionType::Size, false, "Bottleneck of the pooling's attention. Defaults to 128."}},
       build_ecapa_tdnn,
       speaker_encoder_class},
  };
}

}  // namespace fsdp
