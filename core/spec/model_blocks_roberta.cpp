// RoBERTa and XLM-RoBERTa as in Hugging Face transformers 5.24, as far as they are not BERT: embeddings whose positions
// begin after the padding token's, the head of masked tokens, and that of classes.
//
// Sources: models/{roberta,xlm_roberta}/modeling_*.py of transformers 5.24.0: names, order of registration and order of
// calls.
//
// Not modeled: padding tokens, whose position is their own number; temporaries of the positions.

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

std::string roberta_family(const BlockOptions& options) {
  return options.text("family", "Roberta");
}

void roberta_embeddings(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t width = options.integer("hidden_size"), max_positions = options.integer("max_positions");
  const std::int64_t padding = options.integer("padding_idx", -1);
  const BlockValue ids = b.input("input_ids");
  const std::int64_t batch = b.size(ids, 0), seq = b.size(ids, 1);
  if (seq + padding + 1 > max_positions) {
    b.fail_by_size(fmt::format("A sequence of {} tokens needs {} positions, and the model has {}.", seq,
                               seq + padding + 1, max_positions),
                   fmt::format("Take at most {} tokens.", max_positions - padding - 1));
  }
  for (const char* name : {"word_embeddings", "token_type_embeddings"}) b.declare(name, "Embedding");
  b.declare("LayerNorm", "LayerNorm");
  b.declare("dropout", "Dropout");
  b.buffer("position_ids", {1, max_positions}, Dtype::Int64, false);
  b.buffer("token_type_ids", {1, max_positions}, Dtype::Int64, false);
  const BlockValue numbers = b.filled({batch * seq}, Dtype::Int64,
                                      {.start = padding + 1, .length = seq, .stride = 0, .fill = ConstantFill::Rows});
  const BlockValue position_ids = b.local("position_ids", b.reshape(numbers, {batch, seq}));
  const BlockValue type_ids = b.local("token_type_ids", b.constant({batch, seq}, 0, Dtype::Int64));
  const BlockValue words = b.local("inputs_embeds", b.embedding("word_embeddings", ids, options.integer("vocab_size"),
                                                                width, {.padding_idx = padding}));
  const BlockValue types = b.local("token_type_embeddings", b.embedding("token_type_embeddings", type_ids,
                                                                        options.integer("type_vocab_size", 2), width));
  const BlockValue sum = b.local("embeddings", b.add(words, types));
  const BlockValue positions =
      b.local("position_embeddings",
              b.embedding("position_embeddings", position_ids, max_positions, width, {.padding_idx = padding}));
  const BlockValue all = b.local("embeddings", b.add(sum, positions));
  const BlockValue normed = b.local("embeddings", b.layer_norm("LayerNorm", all, {.eps = norm_eps(b, options)}));
  b.named_output("hidden", b.dropout("dropout", normed, options.number("dropout")));
}

void roberta_classification_head(BlockBuilder& b, const BlockOptions& options) {
  const BlockValue hidden = b.input("hidden");
  const double dropout = options.number("dropout");
  const BlockValue first = b.dropout("", b.select(hidden, 1, 0), dropout);
  const BlockValue dense = b.tanh(b.linear("dense", first, b.size(hidden, -1), {.bias = true}));
  b.declare("dropout", "Dropout");
  b.output("logits",
           b.linear("out_proj", b.dropout("", dense, dropout), options.integer("num_classes"), {.bias = true}));
}

std::string roberta_embeddings_class(const BlockOptions& options) {
  return roberta_family(options) + "Embeddings";
}
std::string roberta_classification_head_class(const BlockOptions& options) {
  return roberta_family(options) + "ClassificationHead";
}

}  // namespace

std::vector<BlockKind> roberta_blocks() {
  const OptionRule family = {"family", OptionType::Text, false, "First word of the class names. Defaults to Roberta."};
  const OptionRule dropout = {"dropout", OptionType::Number, false, "Dropout. Defaults to 0."};
  return {
      {.name = "roberta_classification_head",
       .doc = "hidden to logits: the first token through two layers.",
       .options = {{"num_classes", OptionType::Size, true, "Number of logits."}, family, dropout},
       .build = roberta_classification_head,
       .class_name = roberta_classification_head_class},
      {.name = "roberta_embeddings",
       .doc = "input_ids to hidden: words, types and positions, normed.",
       .options = {{"vocab_size", OptionType::Size, true, "Rows of the word table."},
                   {"hidden_size", OptionType::Size, true, "Width of all tables."},
                   {"max_positions", OptionType::Size, true, "Rows of the position table."},
                   padding_idx_rule(),
                   {"type_vocab_size", OptionType::Size, false, "Rows of the table of token types. Defaults to 2."},
                   family,
                   dropout,
                   norm_eps_rule(kNormEpsDoc)},
       .build = roberta_embeddings,
       .class_name = roberta_embeddings_class},
  };
}

}  // namespace fsdp
