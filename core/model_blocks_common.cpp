// Blocks that many families share: embeddings, the rotary table, norms, heads and losses.

#include "core/block_kinds.h"

namespace fsdp {
namespace {

void token_embedding(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue ids = b.input("input_ids");
  BlockValue hidden = b.embedding("", ids, options.integer("vocab_size"), options.integer("hidden_size"));
  if (options.has("scale")) hidden = b.scale(hidden, options.number("scale"));
  b.named_output("hidden", hidden);  // inputs_embeds
}

// Hugging Face makes the position ids in the forward pass, [1, seq] for all samples.
void rotary_table(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  const std::int64_t head_dim = options.integer("head_dim");
  b.buffer("inv_freq", {head_dim / 2}, Dtype::Float32, false);
  const auto given = b.optional_input("position_ids");
  const BlockValue positions = given ? *given : b.constant({1, b.size(hidden, 1)}, Dtype::Int64);
  const auto table = b.rotary_table(positions, head_dim);
  b.output("cos", table.cos);
  b.output("sin", table.sin);
}

std::string rotary_class(const BlockOptions& options) {
  return options.text("family", "Llama") + "RotaryEmbedding";
}

void rms_norm(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.rms_norm("", b.input("hidden"), {.unit_offset = options.flag("unit_offset")}));
}

void layer_norm(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.layer_norm("", b.input("hidden"), {.bias = options.flag("bias", true)}));
}

void linear(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.linear("", b.input("hidden"), options.integer("out_features"), {.bias = options.flag("bias")}));
}

void lm_head(BlockBuilder& b, const BlockOptions& options) {
  b.output("logits", b.linear("", b.input("hidden"), options.integer("vocab_size"), {.bias = options.flag("bias")}));
}

void cross_entropy(BlockBuilder& b, const BlockOptions& options) {
  BlockValue logits = b.input("logits");
  if (options.has("softcap")) logits = b.softcap(logits, options.number("softcap"));
  b.output("loss", b.cross_entropy(logits, b.input("labels"), options.flag("shift")));
}

template <const char* kName>
std::string fixed_class(const BlockOptions&) {
  return kName;
}
constexpr char kEmbedding[] = "Embedding";
constexpr char kRmsNorm[] = "RMSNorm";
constexpr char kLayerNorm[] = "LayerNorm";
constexpr char kLinear[] = "Linear";

}  // namespace

std::vector<BlockKind> common_blocks() {
  return {
      {.name = "token_embedding",
       .doc = "input_ids [batch, seq] to hidden [batch, seq, hidden_size] by one table.",
       .options = {{"vocab_size", OptionType::Size, true, "Rows of the table."},
                   {"hidden_size", OptionType::Size, true, "Width of the table."},
                   {"scale", OptionType::Number, false, "Multiplies the embeddings (Gemma: sqrt of hidden_size)."}},
       .build = token_embedding,
       .class_name = fixed_class<kEmbedding>},
      {.name = "rotary_table",
       .doc = "cos and sin for all layers, made once per forward from the positions; no parameters.",
       .options = {{"head_dim", OptionType::Size, true, "Width of a head."},
                   {"family", OptionType::Text, false,
                    "First word of the class name, such as Qwen3; Llama otherwise."}},
       .build = rotary_table,
       .class_name = rotary_class},
      {.name = "rms_norm",
       .doc = "hidden to hidden, normalised by its root mean square.",
       .options = {{"unit_offset", OptionType::Flag, false, "Multiplies by 1 + weight (Gemma)."}},
       .build = rms_norm,
       .class_name = fixed_class<kRmsNorm>},
      {.name = "layer_norm",
       .doc = "hidden to hidden, normalised by mean and variance.",
       .options = {{"bias", OptionType::Flag, false, "Has a bias; true otherwise."}},
       .build = layer_norm,
       .class_name = fixed_class<kLayerNorm>},
      {.name = "linear",
       .doc = "hidden [..., in] to hidden [..., out_features].",
       .options = {{"out_features", OptionType::Size, true, "Width of the output."},
                   {"bias", OptionType::Flag, false, "Has a bias; false otherwise."}},
       .build = linear,
       .class_name = fixed_class<kLinear>},
      {.name = "lm_head",
       .doc = "hidden to logits [batch, seq, vocab_size].",
       .options = {{"vocab_size", OptionType::Size, true, "Number of logits."},
                   {"bias", OptionType::Flag, false, "Has a bias; false otherwise."}},
       .build = lm_head,
       .class_name = fixed_class<kLinear>},
      {.name = "cross_entropy",
       .doc = "logits and labels to loss.",
       .options = {{"shift", OptionType::Flag, false, "Labels are the next tokens: shifted by one first."},
                   {"softcap", OptionType::Number, false, "Caps the logits first: softcap * tanh(logits / softcap)."}},
       .build = cross_entropy},
  };
}

}  // namespace fsdp
