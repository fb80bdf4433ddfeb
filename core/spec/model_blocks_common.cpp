// Blocks that many families share: embeddings, the rotary table, norms, heads and losses.

#include <fmt/format.h>

#include <array>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {

double norm_eps(BlockBuilder& b, const BlockOptions& options, std::string_view name) {
  const double eps = options.number(name);
  if (options.has(name) && !(eps > 0)) b.fail(fmt::format("\"{}\" is {}.", name, eps), "It is above 0.");
  return eps;
}

OptionRule padding_idx_rule() {
  return {"padding_idx", OptionType::Count, false, "The table row that gets no gradient. Defaults to no such row."};
}

OptionRule attention_dropout_rule() {
  return {"attention_dropout", OptionType::Number, false, "Dropout on attention weights. Defaults to \"dropout\"."};
}

OptionRule norm_eps_rule(std::string_view doc) {
  return {"norm_eps", OptionType::Number, false, doc};
}

namespace {

void token_embedding(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue ids = b.input("input_ids");
  BlockValue hidden = b.embedding("", ids, options.integer("vocab_size"), options.integer("hidden_size"),
                                  {.padding_idx = options.integer("padding_idx", -1)});
  if (options.has("scale")) hidden = b.scale(hidden, options.number("scale"), options.flag("round_scale"));
  b.named_output("hidden", hidden);  // inputs_embeds
}

RotaryFrequencies frequencies_of(BlockBuilder& b, const BlockOptions& options) {
  RotaryFrequencies f;
  f.theta = options.number("rope_theta", f.theta);
  f.scaling = parse_rotary_scaling(options.text("rope_scaling", "none")).value_or(RotaryScaling::None);
  constexpr std::array<std::string_view, 4> kOfScaling = {"rope_factor", "low_freq_factor", "high_freq_factor",
                                                          "original_max_positions"};
  for (const std::string_view name : kOfScaling) {
    if (options.has(name) == (f.scaling != RotaryScaling::None)) continue;
    if (options.has(name)) {
      b.fail(fmt::format("\"{}\" belongs to a \"rope_scaling\", and there is none.", name),
             "Add \"rope_scaling\": \"llama3\", or leave it out.");
    } else {
      b.fail(fmt::format("\"rope_scaling\" needs a \"{}\".", name),
             "config.json of the published model has it, below \"rope_scaling\".");
    }
  }
  f.factor = options.number("rope_factor", f.factor);
  f.low_freq_factor = options.number("low_freq_factor", f.low_freq_factor);
  f.high_freq_factor = options.number("high_freq_factor", f.high_freq_factor);
  f.original_positions = options.integer("original_max_positions", f.original_positions);
  if (!(f.theta > 1)) b.fail(fmt::format("rope_theta is {}.", f.theta), "It must be above 1.");
  if (!(f.factor >= 1)) b.fail(fmt::format("A rope_factor of {} shortens.", f.factor), "It is at least 1.");
  if (!(f.low_freq_factor > 0 && f.high_freq_factor > f.low_freq_factor)) {
    b.fail(fmt::format("low_freq_factor {} and high_freq_factor {} leave no frequencies between them.",
                       f.low_freq_factor, f.high_freq_factor),
           "The first is above 0 and below the second.");
  }
  return f;
}

// Hugging Face makes the position ids in the forward pass, [1, seq] for all samples.
void rotary_table(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  const std::int64_t head_dim = options.integer("head_dim");
  b.buffer("inv_freq", {head_dim / 2}, Dtype::Float32, false);
  const auto given = b.optional_input("position_ids");
  const BlockValue positions = given ? *given : b.positions({1, b.size(hidden, 1)});
  const auto table = b.rotary_table(positions, head_dim, frequencies_of(b, options));
  b.output("cos", table.cos);
  b.output("sin", table.sin);
}

std::string rotary_class(const BlockOptions& options) {
  return options.text("family", "Llama") + "RotaryEmbedding";
}

void rms_norm(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.rms_norm("", b.input("hidden"),
                                {.unit_offset = options.flag("unit_offset"), .eps = norm_eps(b, options, "eps")}));
}

void layer_norm(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.layer_norm("", b.input("hidden"),
                                  {.bias = options.flag("bias", true), .eps = norm_eps(b, options, "eps")}));
}

void linear(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.linear("", b.input("hidden"), options.integer("out_features"), {.bias = options.flag("bias")}));
}

void lm_head(BlockBuilder& b, const BlockOptions& options) {
  b.output("logits", b.linear("", b.input("hidden"), options.integer("vocab_size"),
                              {.bias = options.flag("bias"), .is_output_head = true}));
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
                   padding_idx_rule(),
                   {"scale", OptionType::Number, false, "Multiplies the embeddings (Gemma: sqrt of hidden_size)."},
                   {"round_scale", OptionType::Flag, false,
                    "The scale is rounded to the dtype of the embeddings first (Gemma). Defaults to false."}},
       .build = token_embedding,
       .class_name = fixed_class<kEmbedding>},
      {.name = "rotary_table",
       .doc = "cos and sin for all layers, made once per forward from the positions; no parameters.",
       .options = {{"head_dim", OptionType::Size, true, "Width of a head."},
                   {"family", OptionType::Text, false,
                    "First word of the class name, such as Qwen3. Defaults to Llama."},
                   {"rope_theta", OptionType::Number, false, "Base of the frequencies. Defaults to 10000."},
                   {"rope_scaling",
                    OptionType::Text,
                    false,
                    "The scaling of frequencies for longer sequences. Defaults to no scaling.",
                    {"llama3"}},
                   {"rope_factor", OptionType::Number, false, "The divisor of low frequencies."},
                   {"low_freq_factor", OptionType::Number, false,
                    "Waves longer than original_max_positions over it are low frequencies."},
                   {"high_freq_factor", OptionType::Number, false,
                    "Waves shorter than original_max_positions over it stay unscaled."},
                   {"original_max_positions", OptionType::Size, false, "The positions of pre-training."}},
       .build = rotary_table,
       .class_name = rotary_class},
      {.name = "rms_norm",
       .doc = "hidden to hidden, normalized by its root mean square.",
       .options = {{"unit_offset", OptionType::Flag, false, "Multiplies by 1 + weight (Gemma)."},
                   {"eps", OptionType::Number, false, "Added to the mean square. Defaults to 1e-6."}},
       .build = rms_norm,
       .class_name = fixed_class<kRmsNorm>},
      {.name = "layer_norm",
       .doc = "hidden to hidden, normalized by mean and variance.",
       .options = {{"bias", OptionType::Flag, false, "Has a bias. Defaults to true."},
                   {"eps", OptionType::Number, false, "Added to the variance. Defaults to 1e-5."}},
       .build = layer_norm,
       .class_name = fixed_class<kLayerNorm>},
      {.name = "linear",
       .doc = "hidden [..., in] to hidden [..., out_features].",
       .options = {{"out_features", OptionType::Size, true, "Width of the output."},
                   {"bias", OptionType::Flag, false, "Has a bias. Defaults to false."}},
       .build = linear,
       .class_name = fixed_class<kLinear>},
      {.name = "lm_head",
       .doc = "hidden to logits [batch, seq, vocab_size].",
       .options = {{"vocab_size", OptionType::Size, true, "Number of logits."},
                   {"bias", OptionType::Flag, false, "Has a bias. Defaults to false."}},
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
