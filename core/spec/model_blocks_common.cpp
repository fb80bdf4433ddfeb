// Blocks that many families share: embeddings, the rotary table, norms, heads and losses.

#include <fmt/format.h>

#include <algorithm>

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
  // Each key, the scalings that have it, and those that need it.
  using enum RotaryScaling;
  struct Key {
    std::string_view name;
    std::vector<RotaryScaling> has, needs;
  };
  const std::vector<Key> keys = {{"rope_factor", {Llama3, Linear, Yarn}, {Llama3, Linear, Yarn}},
                                 {"low_freq_factor", {Llama3}, {Llama3}},
                                 {"high_freq_factor", {Llama3}, {Llama3}},
                                 {"original_max_positions", {Llama3, Yarn}, {Llama3, Yarn}},
                                 {"beta_fast", {Yarn}, {}},
                                 {"beta_slow", {Yarn}, {}},
                                 {"truncate", {Yarn}, {}},
                                 {"attention_factor", {Yarn}, {Yarn}}};
  const auto lists = [&](const std::vector<RotaryScaling>& all) {
    return std::find(all.begin(), all.end(), f.scaling) != all.end();
  };
  for (const auto& [name, has, needs] : keys) {
    if (options.has(name) && f.scaling == None) {
      b.fail(fmt::format("\"{}\" belongs to a \"rope_scaling\", and there is none.", name),
             fmt::format("Add \"rope_scaling\": \"{}\", or leave it out.", name_of(has.front())));
    } else if (options.has(name) && !lists(has)) {
      b.fail(fmt::format("\"{}\" belongs to no \"{}\".", name, name_of(f.scaling)), "Leave it out.");
    } else if (!options.has(name) && lists(needs)) {
      b.fail(fmt::format("\"rope_scaling\" needs a \"{}\".", name),
             "config.json of the published model has it, below \"rope_scaling\".");
    }
  }
  f.factor = options.number("rope_factor", f.factor);
  f.low_freq_factor = options.number("low_freq_factor", f.low_freq_factor);
  f.high_freq_factor = options.number("high_freq_factor", f.high_freq_factor);
  f.original_positions = options.integer("original_max_positions", f.original_positions);
  f.beta_fast = options.number("beta_fast", f.beta_fast);
  f.beta_slow = options.number("beta_slow", f.beta_slow);
  f.truncate = options.flag("truncate", f.truncate);
  f.attention_factor = options.number("attention_factor", f.attention_factor);
  if (!(f.theta > 1)) b.fail(fmt::format("rope_theta is {}.", f.theta), "It must be above 1.");
  if (!(f.factor >= 1)) b.fail(fmt::format("A rope_factor of {} shortens.", f.factor), "It is at least 1.");
  if (!(f.low_freq_factor > 0 && f.high_freq_factor > f.low_freq_factor)) {
    b.fail(fmt::format("low_freq_factor {} and high_freq_factor {} leave no frequencies between them.",
                       f.low_freq_factor, f.high_freq_factor),
           "The first is above 0 and below the second.");
  }
  return f;
}

/// The masks of layers that look back `window` tokens, and of layers without a window.
void add_masks(BlockBuilder& b, const BlockOptions& options, BlockValue hidden) {
  const std::int64_t window = options.integer("sliding_window");
  const std::int64_t seq = b.size(hidden, 1);
  if (options.flag("numeric_masks")) {
    const Shape shape = {b.size(hidden, 0), 1, seq, seq};
    b.output("causal_mask", b.filled(shape, {}, {.fill = ConstantFill::CausalMask}));
    if (window > 0) b.output("window_mask", b.filled(shape, {}, {.length = window, .fill = ConstantFill::WindowMask}));
    return;
  }
  if (window == 0 || (seq < window && !b.pads_rows()) || b.is_packed() || b.attends_without_masks()) return;
  const bool in_chunks = options.flag("chunked_mask");
  const std::int64_t rows = b.pads_rows() || in_chunks ? b.size(hidden, 0) : 1;
  const ConstantFill fill = in_chunks ? ConstantFill::ChunkMask : ConstantFill::WindowMask;
  b.output("window_mask", b.filled({rows, 1, seq, seq}, Dtype::Bool, {.length = window, .fill = fill}));
}

}  // namespace

void document_mask(BlockBuilder& b, std::int64_t seq) {
  std::vector<std::int64_t> documents = b.masked_documents();
  if (documents.empty()) return;
  b.output(kDocumentMask, b.filled({1, 1, seq, seq}, Dtype::Bool,
                                   {.documents = std::move(documents), .fill = ConstantFill::DocumentMask}));
}

void padding_mask(BlockBuilder& b, std::int64_t rows, std::int64_t seq) {
  if (!b.pads_rows()) return;
  b.output(std::string(kPaddingMask),
           b.filled({rows, 1, seq, seq}, Dtype::Bool, {.length = seq, .fill = ConstantFill::WindowMask}));
}

namespace {

// Each attention of torchtitan 0.3 has a table of its own.
void pass_positions(BlockBuilder& b) {
  if (!b.is_packed()) {
    return b.fail("torchtitan 0.3 has positions for each row of documents.",
                  "Write --packing, too, or --flavor torchtitan.");
  }
  const BlockValue positions = b.input(kPositionIds);
  const Shape shape = {b.size(positions, 0), b.size(positions, 1)};
  b.output("cos", b.reshape(positions, shape));
  b.output("sin", b.reshape(positions, shape));
}

// NeMo Automodel's LlamaRotaryEmbedding: cos and sin of all positions are made in the first forward, and kept.
BlockBuilder::CosSin table_of_positions(BlockBuilder& b, BlockValue positions, std::int64_t seq,
                                        std::int64_t head_dim) {
  for (const char* name : {"_cos_cache", "_sin_cache"}) b.buffer(name, {seq, head_dim}, Dtype::Float32, false);
  return b.rotary_table(positions, head_dim, {}, {.wide = true, .of_positions = true});
}

// Hugging Face makes the position ids in the forward pass, [1, seq] for all samples.
void rotary_table(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  if (b.attends_as_titan()) return pass_positions(b);
  const std::int64_t head_dim = options.integer("head_dim");
  const std::string type = options.text("layer_type", "");
  b.buffer(type + (type.empty() ? "" : "_") + "inv_freq", {head_dim / 2}, Dtype::Float32, false);
  const auto given = b.optional_input("position_ids");
  BlockValue positions = given ? *given : b.positions({1, b.size(hidden, 1)});
  if (options.flag("by_sample")) positions = b.expand(positions, {b.size(hidden, 0), b.size(hidden, 1)});
  const auto table = b.decodes_as_automodel(options.text("family", "Llama"))
                         ? table_of_positions(b, positions, b.size(hidden, 1), head_dim)
                         : b.rotary_table(positions, head_dim, frequencies_of(b, options),
                                          {.wide = options.flag("wide"),
                                           .by_halves = options.flag("by_halves"),
                                           .complex = options.flag("complex"),
                                           .elementwise = options.flag("elementwise"),
                                           .interleaved = options.flag("interleaved")});
  const bool is_local = options.flag("local");
  b.output(is_local ? "cos_local" : "cos", table.cos);
  b.output(is_local ? "sin_local" : "sin", table.sin);
  const std::int64_t seq = b.size(hidden, 1);
  if (!is_local) document_mask(b, seq);
  if (!is_local) padding_mask(b, b.size(hidden, 0), seq);
  add_masks(b, options, hidden);
}

std::string rotary_class(const BlockOptions& options) {
  return options.text("family", "Llama") + "RotaryEmbedding";
}

void rms_norm(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.rms_norm("", b.input("hidden"),
                                {.brief = options.flag("brief"),
                                 .unit_offset = options.flag("unit_offset"),
                                 .wide_weight = options.flag("wide_weight"),
                                 .eps = norm_eps(b, options, "eps")}));
}

void layer_norm(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.layer_norm("", b.input("hidden"),
                                  {.bias = options.flag("bias", true),
                                   .unit_offset = options.flag("unit_offset"),
                                   .wide_weight = options.flag("wide_weight"),
                                   .eps = norm_eps(b, options, "eps")}));
}

void linear(BlockBuilder& b, const BlockOptions& options) {
  b.output("hidden", b.linear("", b.input("hidden"), options.integer("out_features"), {.bias = options.flag("bias")}));
}

void lm_head(BlockBuilder& b, const BlockOptions& options) {
  BlockValue logits = b.linear("", b.input("hidden"), options.integer("vocab_size"),
                               {.bias = options.flag("bias"), .is_output_head = true});
  if (options.has("scale")) logits = b.scale(logits, options.number("scale"));
  b.output("logits", logits);
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

namespace {

BlockKind rotary_table_kind() {
  return {
      .name = "rotary_table",
      .doc = "cos and sin for all layers, made once per forward from the positions; no parameters.",
      .options =
          {{"head_dim", OptionType::Size, true, "Width of a head."},
           {"family", OptionType::Text, false, "First word of the class name, such as Qwen3. Defaults to Llama."},
           {"rope_theta", OptionType::Number, false, "Base of the frequencies. Defaults to 10000."},
           {"rope_scaling",
            OptionType::Text,
            false,
            "The scaling of frequencies for longer sequences. Defaults to no scaling.",
            {"llama3", "linear", "yarn"}},
           {"rope_factor", OptionType::Number, false, "The divisor of low frequencies."},
           {"low_freq_factor", OptionType::Number, false,
            "Waves longer than original_max_positions over it are low frequencies."},
           {"high_freq_factor", OptionType::Number, false,
            "Waves shorter than original_max_positions over it stay unscaled."},
           {"original_max_positions", OptionType::Size, false, "The positions of pre-training."},
           {"beta_fast", OptionType::Number, false,
            "Dimensions of more turns than this within original_max_positions stay unscaled. Defaults to 32."},
           {"beta_slow", OptionType::Number, false, "Those of fewer turns than this are divided. Defaults to 1."},
           {"truncate", OptionType::Flag, false, "The ramp between ends at whole dimensions. Defaults to true."},
           {"attention_factor", OptionType::Number, false, "Factor of cos and sin."},
           {"wide", OptionType::Flag, false, "The tables stay in fp32 (OLMo 2)."},
           {"sliding_window", OptionType::Count, false,
            "Makes window_mask too if the sequence is as long: the mask of layers that look back so many "
            "tokens. Defaults to no such layers."},
           {"chunked_mask", OptionType::Flag, false,
            "That mask is of chunks of so many tokens, with a row for each sample (Llama 4)."},
           {"by_halves", OptionType::Flag, false, "The tables are half as wide as a head (gpt-oss)."},
           {"elementwise", OptionType::Flag, false,
            "Angles are products of numbers, not of matrices (transformers 5)."},
           {"interleaved", OptionType::Flag, false, "Each number stands twice, side by side (Cohere)."},
           {"complex", OptionType::Flag, false, "The tables are one of complex numbers (DeepSeek-V2)."},
           {"layer_type", OptionType::Text, false, "First words of the buffer's name, of a module with two tables."},
           {"by_sample", OptionType::Flag, false, "The tables have rows for each sample (Qwen2.5-VL)."},
           {"numeric_masks", OptionType::Flag, false,
            "Makes causal_mask, and window_mask for any sequence, of numbers and for each sample: for attention "
            "that is written out (gpt-oss)."},
           {"local", OptionType::Flag, false, "Makes cos_local and sin_local, a second table (Gemma 3)."}},
      .build = rotary_table,
      .class_name = rotary_class};
}

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
      rotary_table_kind(),
      {.name = "rms_norm",
       .doc = "hidden to hidden, normalized by its root mean square.",
       .options = {{"unit_offset", OptionType::Flag, false, "Multiplies by 1 + weight (Gemma)."},
                   {"brief", OptionType::Flag, false, "Its numbers in fp32 live until they are cast (Llama 4)."},
                   {"wide_weight", OptionType::Flag, false,
                    "Multiplies by the weight in fp32, and casts last (OLMo 2)."},
                   {"eps", OptionType::Number, false, "Added to the mean square. Defaults to 1e-6."}},
       .build = rms_norm,
       .class_name = fixed_class<kRmsNorm>},
      {.name = "layer_norm",
       .doc = "hidden to hidden, normalized by mean and variance.",
       .options = {{"bias", OptionType::Flag, false, "Has a bias. Defaults to true."},
                   {"unit_offset", OptionType::Flag, false, "Multiplies by 1 + weight (Nemotron)."},
                   {"wide_weight", OptionType::Flag, false, "Written out in fp32, cast last, without a bias (Cohere)."},
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
                   {"scale", OptionType::Number, false, "Factor of the logits (Granite)."},
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
