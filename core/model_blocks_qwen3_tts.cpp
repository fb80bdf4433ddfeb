// The blocks of Qwen3-TTS: a speaker encoder, embeddings of two tracks that are added up, and a second, small
// transformer that reads every codec frame as a sequence of its own.
//
// One second of speech is 12.5 codec frames of 16 codes. The talker predicts the first code of each frame; the code
// predictor the other 15, from the talker's hidden state:
//
//   text ids ----> text_embedding --+
//   first code --> codec_embedding -+--> sum --> 28 talker layers --> codec_head --> loss
//   15 codes ----> 15 embeddings ---+                 |
//   mel of a reference --> speaker encoder --> one position of the codec track (detached)
//                                                     |
//        frames' hidden states [all frames, 1, H] ----+
//        + 15 of the frames' codes, embedded  --> [all frames, 16, H] --> 5 layers --> 15 heads --> 0.3 x loss
//
// So the talker's length counts text and frames once, and the predictor's tokens are 16 times all frames of a batch.
//
// The step is what the published fine-tuning script does between zero_grad and backward, as the forward of the root
// module: it calls embeddings, the talker's parts and the predictor's heads one by one. Hence none of the modules that
// hold them is entered through its own forward, and only layers, embeddings, norms and heads can be units.
//
// Sources: modeling_qwen3_tts.py of the package qwen-tts 0.1.1; finetuning/sft_12hz.py and dataset.py of
// github.com/QwenLM/Qwen3-TTS at 022e286. Tensor names and shapes equal those of the released checkpoints.
// The speaker encoder: Desplanques et al., "ECAPA-TDNN", Interspeech 2020.
//
// Not modelled: the copies of K and V that a cache makes (use_cache is left on in training; the bytes held stay the
// same), the talker's table of three position channels [3, batch, seq, head_dim] before each layer interleaves it, and
// padding inside a batch: all clips are taken to be as long as the longest. The speaker's position is written in place
// by the script; here it is a concatenation, with the same bytes held.

#include <fmt/format.h>

#include "core/block_kinds.h"

namespace fsdp {
namespace {

// ---- Speaker encoder.

/// Conv1d of PyTorch with padding "same" and mode "reflect": pads into a copy first, even by nothing.
BlockValue same_conv1d(BlockBuilder& b, std::string_view module, BlockValue x, std::int64_t channels,
                       std::int64_t kernel, std::int64_t dilation) {
  const std::int64_t length = b.size(x, -1);
  const BlockValue padded = b.pad(x, -1, length + dilation * (kernel - 1));
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

struct Statistics {
  BlockValue mean, std;  ///< [batch, channels].
};

/// Mean and standard deviation over time, under weights that sum to one.
Statistics weighted_statistics(BlockBuilder& b, BlockValue x, BlockValue weights) {
  const BlockValue mean = b.sum(b.mul(x, weights), 2, false);
  const BlockValue column = b.reshape(mean, {b.size(x, 0), b.size(x, 1), 1});
  OpAttributes attributes;
  attributes.dim = 2;
  const std::vector<BlockValue> std =
      b.op({.kind = OpKind::Std, .inputs = {x, column, weights}, .attributes = attributes});
  return {mean, std.front()};
}

/// [batch, channels] to [batch, channels, length], in memory of its own (`repeat`).
BlockValue repeat_in_time(BlockBuilder& b, BlockValue x, std::int64_t length) {
  const std::int64_t batch = b.size(x, 0), channels = b.size(x, 1);
  return b.contiguous(b.expand(b.reshape(x, {batch, channels, 1}), {batch, channels, length}));
}

/// [batch, channels, length] to [batch, 2 * channels, 1].
BlockValue attentive_pooling(BlockBuilder& b, BlockValue x, std::int64_t attention_channels) {
  const auto scope = b.enter("asp", "AttentiveStatisticsPooling");
  const std::int64_t batch = b.size(x, 0), channels = b.size(x, 1), length = b.size(x, 2);
  const Statistics global = weighted_statistics(b, x, b.constant({batch, 1, length}));
  const BlockValue context =
      b.cat({x, repeat_in_time(b, global.mean, length), repeat_in_time(b, global.std, length)}, 1);
  BlockValue attention = time_delay_block(b, "tdnn", context, attention_channels, 1, 1);
  attention = b.activation("tanh", OpKind::Tanh, attention, "Tanh");
  attention = same_conv1d(b, "conv", attention, channels, 1, 1);
  // Padded positions are filled with minus infinity; a sum with a mask costs the same bytes.
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

  // The mel frames come in fp32 and are cast by hand; a cast without a dtype gives that of the activations.
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

// ---- Embeddings of the talker.

constexpr std::int64_t kSpeakerPosition = 6;  // Of the codec track; the script's layout of a sample.

void declare_containers(BlockBuilder& b) {
  b.declare("talker", "Qwen3TTSTalkerForConditionalGeneration", false);
  b.declare("talker.model", "Qwen3TTSTalkerModel", false);
  b.declare("talker.code_predictor", "Qwen3TTSTalkerCodePredictorModelForConditionalGeneration", false);
  b.declare("talker.code_predictor.model", "Qwen3TTSTalkerCodePredictorModel", false);
}

std::string code_embedding_name(std::int64_t index) {
  return fmt::format("talker.code_predictor.model.codec_embedding.{}", index);
}

/// The text projection with its two layers: applied to `text`, or only registered.
BlockValue text_projection(BlockBuilder& b, BlockValue text, std::int64_t hidden, bool applied) {
  const std::int64_t text_hidden = b.size(text, -1);
  b.declare("talker.text_projection", "Qwen3TTSTalkerResizeMLP", applied);
  const auto scope = b.enter("talker.text_projection", "Qwen3TTSTalkerResizeMLP");
  if (applied) {
    const BlockValue inner = b.silu(b.linear("linear_fc1", text, text_hidden, {.bias = true}));
    return b.linear("linear_fc2", inner, hidden, {.bias = true});
  }
  for (const auto& [name, out] : {std::pair{"linear_fc1", text_hidden}, std::pair{"linear_fc2", hidden}}) {
    b.declare(name, "Linear", false);
    const auto layer = b.enter(name, "Linear");
    b.unused_parameter("weight", {out, text_hidden});
    b.unused_parameter("bias", {out});
  }
  return text;
}

/// Puts the speaker's embedding at its position of the codec track.
BlockValue place_speaker(BlockBuilder& b, BlockValue codec, BlockValue speaker) {
  const std::int64_t batch = b.size(codec, 0), length = b.size(codec, 1), hidden = b.size(codec, 2);
  const std::int64_t after = kSpeakerPosition + 1;
  return b.cat({b.slice(codec, 1, 0, kSpeakerPosition), b.reshape(speaker, {batch, 1, hidden}),
                b.slice(codec, 1, after, length - after)},
               1);
}

void build_dual_track_embedding(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t hidden = options.integer("hidden_size");
  const BlockValue input_ids = b.input("input_ids");
  const BlockValue codec_ids = b.input("codec_ids");
  const BlockValue text_mask = b.input("text_embedding_mask");
  const BlockValue codec_mask = b.input("codec_embedding_mask");
  const BlockValue frame_mask = b.input("codec_mask");
  const std::optional<BlockValue> speaker = b.optional_input("speaker_embedding");
  const std::int64_t batch = b.size(codec_ids, 0), length = b.size(codec_ids, 1);
  declare_containers(b);

  BlockValue text = b.embedding("talker.model.text_embedding", b.select(input_ids, 2, 0),
                                options.integer("text_vocab_size"), options.integer("text_hidden_size"));
  text = b.mul(text_projection(b, text, hidden, options.flag("project_text")), text_mask);
  BlockValue codec = b.embedding("talker.model.codec_embedding", b.select(input_ids, 2, 1),
                                 options.integer("codec_vocab_size"), hidden);
  codec = b.mul(codec, codec_mask);
  if (speaker) codec = place_speaker(b, codec, b.detach(*speaker));

  BlockValue sum = b.add(text, codec);
  b.declare("talker.code_predictor.model.codec_embedding", "ModuleList", false);
  for (std::int64_t code = 1; code < b.size(codec_ids, 2); ++code) {
    const BlockValue embedded = b.embedding(code_embedding_name(code - 1), b.select(codec_ids, 2, code),
                                            options.integer("code_vocab_size"), hidden);
    sum = b.add(sum, b.mul(embedded, b.reshape(frame_mask, {batch, length, 1})));
  }
  // The last position has nothing to predict. Positions are counted from the attention mask, in fp32.
  b.output("hidden", b.slice(sum, 1, 0, length - 1));
  b.output("position_ids", b.constant({batch, length - 1}, Dtype::Float32));
}

// ---- Code predictor.

/// Rows of x [batch, length, ...] where a mask is true. The mask becomes its indices, one row of two for each.
BlockValue masked_rows(BlockBuilder& b, BlockValue x, std::int64_t rows) {
  const BlockValue indices = b.constant({rows, 2}, Dtype::Int64);
  const BlockValue flat = b.reshape(x, {b.size(x, 0) * b.size(x, 1), b.size(x, 2)});
  return b.index(flat, b.select(indices, 1, 0), 0);
}

void build_codec_frames(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t frames = options.integer("num_frames");
  const BlockValue hidden = b.input("hidden");
  const BlockValue codec_ids = b.input("codec_ids");
  const std::int64_t codes = b.size(codec_ids, 2), width = b.size(hidden, 2);
  declare_containers(b);

  const BlockValue frame_hidden = masked_rows(b, hidden, frames);
  const BlockValue frame_codes = masked_rows(b, codec_ids, frames);
  std::vector<BlockValue> tokens = {b.reshape(frame_hidden, {frames, 1, width})};
  tokens.push_back(b.embedding("talker.model.codec_embedding", b.slice(frame_codes, 1, 0, 1),
                               options.integer("codec_vocab_size"), width));
  b.declare("talker.code_predictor.model.codec_embedding", "ModuleList", false);
  for (std::int64_t code = 1; code + 1 < codes; ++code) {
    tokens.push_back(b.embedding(code_embedding_name(code - 1), b.slice(frame_codes, 1, code, 1),
                                 options.integer("code_vocab_size"), width));
  }
  b.output("hidden", b.cat(tokens, 1));
  b.output("labels", b.slice(frame_codes, 1, 1, codes - 1));
  b.output("position_ids", b.constant({1, codes}, Dtype::Int64));
}

void build_codec_heads(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  const BlockValue labels = b.input("labels");
  declare_containers(b);
  b.declare("talker.code_predictor.lm_head", "ModuleList", false);
  std::vector<BlockValue> logits;
  for (std::int64_t code = 1; code < b.size(hidden, 1); ++code) {
    logits.push_back(b.linear(fmt::format("talker.code_predictor.lm_head.{}", code - 1), b.select(hidden, 1, code),
                              options.integer("code_vocab_size")));
  }
  // Labels and logits are in line already, and the loss shifts them once more: so does the published code.
  b.output("loss", b.cross_entropy(b.stack(logits, 1), labels, true));
}

std::string speaker_encoder_class(const BlockOptions& /*options*/) {
  return "Qwen3TTSSpeakerEncoder";
}

std::string root_class(const BlockOptions& /*options*/) {
  return "Qwen3TTSForConditionalGeneration";
}

}  // namespace

std::vector<BlockKind> qwen3_tts_blocks() {
  const OptionRule code_vocab = {"code_vocab_size", OptionType::Size, true, "Codes of each of the other codebooks."};
  const OptionRule codec_vocab = {"codec_vocab_size", OptionType::Size, true,
                                  "Codes of the first codebook, and marks."};
  return {
      {"codec_frames",
       "hidden [batch, seq, H], codec_ids [batch, length, codes] -> hidden [frames, codes, H], labels [frames, codes - "
       "1], position_ids: each codec frame of the batch as a sequence of its own (Qwen3-TTS, the code predictor's "
       "input).",
       {{"num_frames", OptionType::Size, true, "Codec frames of the whole batch."}, codec_vocab, code_vocab},
       build_codec_frames,
       root_class},
      {"codec_heads",
       "hidden [frames, codes, H], labels [frames, codes - 1] -> loss: one head for each code but the first, over one "
       "position each (Qwen3-TTS).",
       {code_vocab},
       build_codec_heads,
       root_class},
      {"dual_track_embedding",
       "input_ids [batch, length, 2], codec_ids [batch, length, codes], three masks, speaker_embedding (optional, "
       "detached) -> hidden [batch, length - 1, H], position_ids: the sum of the text, codec and code embeddings of "
       "each position (Qwen3-TTS).",
       {{"hidden_size", OptionType::Size, true, "Width of the talker."},
        {"text_vocab_size", OptionType::Size, true, "Text tokens."},
        {"text_hidden_size", OptionType::Size, true, "Width of the text embedding."},
        codec_vocab,
        code_vocab,
        {"project_text", OptionType::Flag, false, "Run text_projection; false: it is registered and never called."}},
       build_dual_track_embedding,
       root_class},
      {"ecapa_tdnn",
       "ref_mels [batch, frames, mel bins] -> speaker_embedding [batch, embedding_size]: the ECAPA-TDNN speaker "
       "encoder.",
       {{"embedding_size", OptionType::Size, true, "Width of the speaker embedding."},
        {"channels", OptionType::Sizes, true, "Of the first block, the residual blocks and the aggregation."},
        {"kernels", OptionType::Sizes, true, "Kernel sizes of the same."},
        {"dilations", OptionType::Sizes, true, "Dilations of the same."},
        {"res2net_scale", OptionType::Size, false, "Groups of channels in a residual block; 8."},
        {"se_channels", OptionType::Size, false, "Bottleneck of squeeze and excitation; 128."},
        {"attention_channels", OptionType::Size, false, "Bottleneck of the pooling's attention; 128."}},
       build_ecapa_tdnn,
       speaker_encoder_class},
  };
}

}  // namespace fsdp
