// The blocks of Qwen3-TTS: a speaker encoder, summed embeddings of two tracks, and a second, small transformer that
// reads every codec frame as a sequence of its own.
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
// The forward of the root module is the published fine-tuning script's step between zero_grad and backward: it calls
// embeddings, the talker's parts and the predictor's heads one by one. Hence the modules around them are never entered
// through their own forward, and only layers, embeddings, norms and heads can be units.
//
// Sources: modeling_qwen3_tts.py of the package qwen-tts 0.1.1; finetuning/sft_12hz.py and dataset.py of
// github.com/QwenLM/Qwen3-TTS at 022e286. Tensor names and shapes equal those of the released checkpoints.
// The speaker encoder has a file of its own, core/spec/model_blocks_ecapa_tdnn.cpp.
//
// Not modeled: padding inside a batch. All clips are as long as the longest.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

// ---- Layers.

NormOptions norm_of(BlockBuilder& b, const BlockOptions& options) {
  return {.class_name = "Qwen3TTSRMSNorm", .eps = norm_eps(b, options)};
}

/// The rotary table of the talker has three channels, [3, batch, seq, dim]; every layer interleaves them again: it
/// copies half of the first channel, overwrites parts of it in place, and doubles it.
BlockValue first_channel(BlockBuilder& b, BlockValue table) {
  const BlockValue half = b.contiguous(b.select(b.slice(table, 3, 0, b.size(table, 3) / 2), 0, 0));
  return b.cat({half, half}, -1);
}

/// Grouped-query attention with norms on queries and keys. The layers of either stack share one rotary table.
BlockValue self_attention(BlockBuilder& b, BlockValue x, const BlockOptions& options, bool talker) {
  const std::string_view class_name = talker ? "Qwen3TTSTalkerAttention" : "Qwen3TTSAttention";
  const auto scope = b.enter("self_attn", class_name);
  for (const std::string_view name : {"q_proj", "k_proj", "v_proj", "o_proj"}) b.declare(name, "Linear");
  const std::int64_t batch = b.size(x, 0), seq = b.size(x, 1), head_dim = options.integer("head_dim");
  const std::int64_t heads = options.integer("num_attention_heads"), kv_heads = options.integer("num_key_value_heads");
  const NormOptions norm = norm_of(b, options);
  const auto split_heads = [&](BlockValue y, std::int64_t count) {
    return b.reshape(y, {batch, seq, count, head_dim});
  };

  BlockValue q = split_heads(b.linear("q_proj", x, heads * head_dim), heads);
  q = b.rms_norm("q_norm", q, norm);
  BlockValue k = split_heads(b.linear("k_proj", x, kv_heads * head_dim), kv_heads);
  k = b.rms_norm("k_norm", k, norm);
  const BlockValue v = split_heads(b.linear("v_proj", x, kv_heads * head_dim), kv_heads);
  BlockBuilder::CosSin table{b.input("cos"), b.input("sin")};
  if (talker) table = {first_channel(b, table.cos), first_channel(b, table.sin)};
  const BlockBuilder::QueryKey rotated = b.rotary(q, k, table);
  const BlockBuilder::KeyValue all = b.kv_cache(rotated.key, v);
  b.output("keys", all.key);
  b.output("values", all.value);
  return b.linear("o_proj", b.attention(rotated.query, all.key, all.value, {.causal = true}), b.size(x, -1));
}

BlockValue gated_mlp(BlockBuilder& b, BlockValue x, std::int64_t intermediate_size) {
  const auto scope = b.enter("mlp", "Qwen3TTSTalkerTextMLP");
  for (const std::string_view name : {"gate_proj", "up_proj", "down_proj"}) b.declare(name, "Linear");
  const BlockValue gate =
      b.activation("act_fn", OpKind::Silu, b.linear("gate_proj", x, intermediate_size), "SiLUActivation");
  return b.linear("down_proj", b.mul(gate, b.linear("up_proj", x, intermediate_size)), b.size(x, -1));
}

void build_qwen3_tts_layer(BlockBuilder& b, const BlockOptions& options) {
  const bool talker = options.flag("talker");
  const NormOptions norm = norm_of(b, options);
  BlockValue hidden = b.input("hidden");
  b.declare("self_attn", talker ? "Qwen3TTSTalkerAttention" : "Qwen3TTSAttention");
  b.declare("mlp", "Qwen3TTSTalkerTextMLP");
  const BlockValue normed = b.rms_norm("input_layernorm", hidden, norm);
  hidden = b.add(hidden, self_attention(b, normed, options, talker));
  const BlockValue post = b.rms_norm("post_attention_layernorm", hidden, norm);
  b.output("hidden", b.add(hidden, gated_mlp(b, post, options.integer("intermediate_size"))));
}

std::string qwen3_tts_layer_class(const BlockOptions& options) {
  return options.flag("talker") ? "Qwen3TTSTalkerDecoderLayer" : "Qwen3TTSDecoderLayer";
}

// ---- Embeddings of the talker.

constexpr std::int64_t kSpeakerPosition = 6;  // Position in the codec track, by the script's layout of a sample.

void declare_containers(BlockBuilder& b) {
  b.declare("talker", "Qwen3TTSTalkerForConditionalGeneration", false);
  b.declare("talker.model", "Qwen3TTSTalkerModel", false);
  b.declare("talker.code_predictor", "Qwen3TTSTalkerCodePredictorModelForConditionalGeneration", false);
  b.declare("talker.code_predictor.model", "Qwen3TTSTalkerCodePredictorModel", false);
}

std::string code_embedding_name(std::int64_t index) {
  return fmt::format("talker.code_predictor.model.codec_embedding.{}", index);
}

/// The text projection with its two layers, applied to `text` or only registered.
BlockValue text_projection(BlockBuilder& b, BlockValue text, std::int64_t hidden, bool applied) {
  const std::int64_t text_hidden = b.size(text, -1);
  b.declare("talker.text_projection", "Qwen3TTSTalkerResizeMLP", applied);
  const auto scope = b.enter("talker.text_projection", "Qwen3TTSTalkerResizeMLP");
  if (applied) {
    b.declare("linear_fc1", "Linear");
    b.declare("linear_fc2", "Linear");
    const BlockValue inner = b.linear("linear_fc1", text, text_hidden, {.bias = true});
    const BlockValue active = b.activation("act_fn", OpKind::Silu, inner, "SiLUActivation");
    return b.linear("linear_fc2", active, hidden, {.bias = true});
  }
  for (const auto& [name, out] : {std::pair{"linear_fc1", text_hidden}, std::pair{"linear_fc2", hidden}}) {
    b.declare(name, "Linear", false);
    const auto layer = b.enter(name, "Linear");
    b.unused_parameter("weight", {out, text_hidden});
    b.unused_parameter("bias", {out});
  }
  b.declare("act_fn", "SiLUActivation", false);
  return text;
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

  // After the encoder's call, so that its graph is freed before the first table is gathered.
  const std::optional<BlockValue> detached = speaker ? std::optional(b.detach(*speaker)) : std::nullopt;
  BlockValue text = b.embedding("talker.model.text_embedding", b.select(input_ids, 2, 0),
                                options.integer("text_vocab_size"), options.integer("text_hidden_size"));
  text = b.mul(text_projection(b, text, hidden, options.flag("project_text")), text_mask);
  BlockValue codec = b.embedding("talker.model.codec_embedding", b.select(input_ids, 2, 1),
                                 options.integer("codec_vocab_size"), hidden);
  codec = b.mul(codec, codec_mask);
  if (detached) codec = b.set_slice(codec, b.reshape(*detached, {batch, 1, hidden}), 1, kSpeakerPosition);

  BlockValue sum = b.add(text, codec);
  b.declare("talker.code_predictor.model.codec_embedding", "ModuleList", false);
  for (std::int64_t code = 1; code < b.size(codec_ids, 2); ++code) {
    const BlockValue embedded = b.embedding(code_embedding_name(code - 1), b.select(codec_ids, 2, code),
                                            options.integer("code_vocab_size"), hidden);
    const BlockValue masked = b.mul(embedded, b.reshape(frame_mask, {batch, length, 1}));
    sum = b.add(sum, masked);
    if (code + 1 == b.size(codec_ids, 2)) b.output("code", masked);
  }
  // The last position predicts nothing. Positions are counted from the attention mask, in fp32.
  b.output("hidden", b.slice(sum, 1, 0, length - 1));
  // Variables of the step.
  b.output("text", text);
  b.output("codec", codec);
  b.output("position_ids", b.expand(b.positions({1, batch, length - 1}, Dtype::Float32), {3, batch, length - 1}));
}

// ---- Code predictor.

/// Rows of x [batch, length, ...] with a true mask: the codec frames, which end `behind` rows before each sample does.
/// The script turns the mask into indices, two per row; here both are the row of the flat tensor.
BlockValue masked_rows(BlockBuilder& b, BlockValue x, std::int64_t rows, std::int64_t behind) {
  const std::int64_t per_sample = rows / b.size(x, 0), length = b.size(x, 1);
  const BlockValue indices = b.filled(
      {rows, 2}, Dtype::Int64,
      {.start = length - behind - per_sample, .length = per_sample, .stride = length, .fill = ConstantFill::Rows});
  const BlockValue flat = b.reshape(x, {b.size(x, 0) * b.size(x, 1), b.size(x, 2)});
  return b.index(flat, b.select(indices, 1, 0), 0);
}

void build_codec_frames(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t frames = options.integer("num_frames");
  const BlockValue hidden = b.input("hidden");
  const BlockValue codec_ids = b.input("codec_ids");
  const std::int64_t codes = b.size(codec_ids, 2), width = b.size(hidden, 2);
  declare_containers(b);

  if (frames % b.size(hidden, 0) != 0 || frames / b.size(hidden, 0) > b.size(hidden, 1) - 1) {
    b.fail(
        fmt::format("{} codec frames do not lie in {} sequences of {}.", frames, b.size(hidden, 0), b.size(hidden, 1)),
        "All samples have the same number, and one position more at least.");
    return;
  }
  // The end mark follows the frames; the hidden state that predicts a frame is the previous one.
  const BlockValue frame_hidden = masked_rows(b, hidden, frames, 1);
  const BlockValue frame_codes = masked_rows(b, codec_ids, frames, 1);
  std::vector<BlockValue> tokens = {b.reshape(frame_hidden, {frames, 1, width})};
  tokens.push_back(b.embedding("talker.model.codec_embedding", b.slice(frame_codes, 1, 0, 1),
                               options.integer("codec_vocab_size"), width));
  b.declare("talker.code_predictor.model.codec_embedding", "ModuleList", false);
  for (std::int64_t code = 1; code + 1 < codes; ++code) {
    tokens.push_back(b.embedding(code_embedding_name(code - 1), b.slice(frame_codes, 1, code, 1),
                                 options.integer("code_vocab_size"), width));
  }
  b.output("hidden", b.cat(tokens, 1));
  b.output("frame_hidden", frame_hidden);
  b.output("frame_codes", frame_codes);
  b.output("labels", b.slice(frame_codes, 1, 1, codes - 1));
  b.output("position_ids", b.positions({1, codes}));
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
  // Labels and logits are aligned already, and the loss shifts them once more, as in the published code.
  const BlockValue all_logits = b.stack(logits, 1);
  b.output("logits", all_logits);
  b.output("loss", b.cross_entropy(all_logits, labels, true));
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
       "hidden [batch, seq, H], codec_ids [batch, length, codes] -> hidden [frames, codes, H], frame_hidden, "
       "frame_codes, labels [frames, codes - 1], position_ids: each codec frame of the batch as a sequence of its own "
       "(Qwen3-TTS, the code predictor's "
       "input).",
       {{"num_frames", OptionType::Size, true, "Codec frames of the whole batch."}, codec_vocab, code_vocab},
       build_codec_frames,
       root_class},
      {"codec_heads",
       "hidden [frames, codes, H], labels [frames, codes - 1] -> logits, loss: one head for each code but the first, "
       "over one "
       "position each (Qwen3-TTS).",
       {code_vocab},
       build_codec_heads,
       root_class},
      {"dual_track_embedding",
       "input_ids [batch, length, 2], codec_ids [batch, length, codes], three masks, speaker_embedding (optional, "
       "detached) -> hidden [batch, length - 1, H], text, codec, code, position_ids: the sum of the text, codec and "
       "code embeddings of "
       "each position (Qwen3-TTS).",
       {{"hidden_size", OptionType::Size, true, "Width of the talker."},
        {"text_vocab_size", OptionType::Size, true, "Text tokens."},
        {"text_hidden_size", OptionType::Size, true, "Width of the text embedding."},
        codec_vocab,
        code_vocab,
        {"project_text", OptionType::Flag, false, "Run text_projection; false: it is registered and never called."}},
       build_dual_track_embedding,
       root_class},
      {"qwen3_tts_layer",
       "hidden [batch, seq, width], cos and sin, of the talker [3, batch, seq, dim] -> hidden: a decoder layer with "
       "norms on queries and keys (Qwen3-TTS).",
       {{"num_attention_heads", OptionType::Size, true, "Query heads."},
        {"num_key_value_heads", OptionType::Size, true, "Key and value heads."},
        {"head_dim", OptionType::Size, true, "Width of a head."},
        {"intermediate_size", OptionType::Size, true, "Width of the MLP."},
        norm_eps_rule(kRmsNormEpsDoc),
        {"talker", OptionType::Flag, false, "Interleaves the three channels of its rotary table."}},
       build_qwen3_tts_layer,
       qwen3_tts_layer_class},
  };
}

}  // namespace fsdp
