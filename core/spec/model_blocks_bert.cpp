// BERT as in Hugging Face transformers 4.57: embeddings, post-norm encoder layers, pooler, and the heads of
// pre-training or of masked tokens alone. RoBERTa and XLM-RoBERTa have its layers.
//
//   layer: y = norm(x + dropout(dense(attention(x)))), then norm(y + dropout(dense(gelu(dense(y)))))
//
// Sources: models/bert/modeling_bert.py of transformers 4.57: names, order of registration and order of calls. The
// decoder of the masked-token head shares its weight with the word embeddings and its bias with `predictions.bias`; a
// spec ties them in "tied".

#include <fmt/format.h>

#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

void bert_embeddings(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t width = options.integer("hidden_size");
  const std::int64_t max_positions = options.integer("max_positions");
  const BlockValue ids = b.input("input_ids");
  const std::int64_t seq = b.size(ids, 1);
  if (seq > max_positions) {
    b.fail_by_size(fmt::format("The model has {} positions, fewer than the sequence's {}.", max_positions, seq),
                   fmt::format("Take at most {}.", max_positions));
  }
  for (const char* name : {"word_embeddings", "position_embeddings", "token_type_embeddings"}) {
    b.declare(name, "Embedding");
  }
  b.buffer("position_ids", {1, max_positions}, Dtype::Int64, false);
  b.buffer("token_type_ids", {1, max_positions}, Dtype::Int64, false);
  const BlockValue words =
      b.local("inputs_embeds", b.embedding("word_embeddings", ids, options.integer("vocab_size"), width,
                                           {.padding_idx = options.integer("padding_idx", -1)}));
  const BlockValue types =
      b.embedding("token_type_embeddings", b.input("token_type_ids"), options.integer("type_vocab_size", 2), width);
  b.local("token_type_embeddings", types);
  const BlockValue sum = b.add(words, types);
  const BlockValue positions = b.embedding("position_embeddings", b.positions({1, seq}), max_positions, width);
  b.local("position_embeddings", positions);
  const BlockValue normed =
      b.layer_norm("LayerNorm", b.local("embeddings", b.add(sum, positions)), {.eps = norm_eps(b, options)});
  b.local("embeddings", normed);
  b.named_output("hidden", b.dropout("dropout", normed, options.number("dropout")));  // embedding_output
}

/// norm(residual + dropout(dense(x))): the end of both halves of a layer.
BlockValue bert_output(BlockBuilder& b, std::string_view module, std::string_view class_name, BlockValue x,
                       BlockValue residual, double dropout, double eps) {
  const auto scope = b.enter(module, class_name);
  b.declare("dense", "Linear");
  b.declare("LayerNorm", "LayerNorm");
  const BlockValue dense = b.dropout("dropout", b.linear("dense", x, b.size(residual, -1), {.bias = true}), dropout);
  return b.layer_norm("LayerNorm", b.add(b.local("hidden_states", dense), residual), {.eps = eps});
}

void bert_layer(BlockBuilder& b, const BlockOptions& options) {
  const std::string family = options.text("family", "Bert");
  const double dropout = options.number("dropout");
  const double attention_dropout = options.number("attention_dropout", dropout);
  const std::int64_t heads = options.integer("num_attention_heads");
  const double eps = norm_eps(b, options);
  const LinearOptions biased = {.bias = true};
  const BlockValue hidden = b.input("hidden");
  const std::int64_t width = b.size(hidden, -1);
  BlockValue middle;
  {
    const auto attention = b.enter("attention", family + "Attention");
    BlockValue mixed;
    {
      const auto self = b.enter("self", family + (family == "Bert" ? "SdpaSelfAttention" : "SelfAttention"));
      const BlockValue q = split_heads(b, b.linear("query", hidden, width, biased), heads);
      const BlockValue k = split_heads(b, b.linear("key", hidden, width, biased), heads);
      const BlockValue v = split_heads(b, b.linear("value", hidden, width, biased), heads);
      b.declare("dropout", "Dropout");
      mixed = b.attention(q, k, v, {.causal = false, .dropout = attention_dropout, .bias = attention_mask(b)});
    }
    middle = bert_output(b, "output", family + "SelfOutput", mixed, hidden, dropout, eps);
  }
  BlockValue inner;
  {
    const auto scope = b.enter("intermediate", family + "Intermediate");
    inner = b.linear("dense", middle, options.integer("intermediate_size"), biased);
    inner = b.activation("intermediate_act_fn", OpKind::Gelu, inner, "GELUActivation");
  }
  b.output("hidden", bert_output(b, "output", family + "Output", inner, middle, dropout, eps));
}

void bert_pooler(BlockBuilder& b, const BlockOptions& /*options*/) {
  const BlockValue first = b.select(b.input("hidden"), 1, 0);
  const BlockValue dense = b.linear("dense", first, b.size(first, -1), {.bias = true});
  b.output("pooled", b.activation("activation", OpKind::Tanh, dense, "Tanh"));
}

/// hidden to logits below "predictions": the head of both pre-training and masked tokens alone.
void bert_mlm_head(BlockBuilder& b, const BlockOptions& options) {
  const std::int64_t vocab_size = options.integer("vocab_size");
  const BlockValue hidden = b.input("hidden");
  const auto scope = b.enter("predictions", "BertLMPredictionHead");
  b.unused_parameter("bias", {vocab_size});  // Tied to the decoder's, which the ops use.
  BlockValue x;
  {
    const auto transform = b.enter("transform", "BertPredictionHeadTransform");
    b.declare("dense", "Linear");
    x = b.linear("dense", hidden, b.size(hidden, -1), {.bias = true});
    x = b.activation("transform_act_fn", OpKind::Gelu, x, "GELUActivation");
    x = b.layer_norm("LayerNorm", x, {.eps = norm_eps(b, options)});
  }
  b.output("logits", b.linear("decoder", x, vocab_size, {.bias = true, .is_output_head = true}));
}

void bert_pretraining_heads(BlockBuilder& b, const BlockOptions& options) {
  bert_mlm_head(b, options);
  b.output("next_sentence_logits", b.linear("seq_relationship", b.input("pooled"), 2, {.bias = true}));
}

// Masked tokens and next sentences, summed.
void bert_pretraining_loss(BlockBuilder& b, const BlockOptions& /*options*/) {
  const BlockValue tokens = b.cross_entropy(b.input("logits"), b.input("labels"), false);
  const BlockValue sentences = b.cross_entropy(b.input("next_sentence_logits"), b.input("next_sentence_label"), false);
  b.output("loss", b.add(tokens, sentences));
}

std::string embeddings_class(const BlockOptions& /*options*/) {
  return "BertEmbeddings";
}
std::string bert_layer_class(const BlockOptions& options) {
  return options.text("family", "Bert") + "Layer";
}
std::string bert_pooler_class(const BlockOptions& /*options*/) {
  return "BertPooler";
}
std::string mlm_head_class(const BlockOptions& /*options*/) {
  return "BertOnlyMLMHead";
}
std::string heads_class(const BlockOptions& /*options*/) {
  return "BertPreTrainingHeads";
}

}  // namespace

std::vector<BlockKind> bert_blocks() {
  const OptionRule dropout = {"dropout", OptionType::Number, false, "Dropout. Defaults to 0."};
  return {
      {.name = "bert_embeddings",
       .doc = "input_ids and token_type_ids to hidden: words, types and positions, normed.",
       .options = {{"vocab_size", OptionType::Size, true, "Rows of the word table."},
                   {"hidden_size", OptionType::Size, true, "Width of all tables."},
                   {"max_positions", OptionType::Size, true, "Rows of the position table."},
                   padding_idx_rule(),
                   {"type_vocab_size", OptionType::Size, false, "Rows of the table of token types. Defaults to 2."},
                   dropout,
                   norm_eps_rule(kNormEpsDoc)},
       .build = bert_embeddings,
       .class_name = embeddings_class},
      {.name = "bert_layer",
       .doc = "hidden to hidden: one encoder layer of BERT.",
       .options = {{"num_attention_heads", OptionType::Size, true, "Heads."},
                   {"intermediate_size", OptionType::Size, true, "Width inside the MLP."},
                   {"family", OptionType::Text, false, "First word of the class names. Defaults to Bert."},
                   dropout,
                   attention_dropout_rule(),
                   norm_eps_rule(kNormEpsDoc)},
       .build = bert_layer,
       .class_name = bert_layer_class},
      {.name = "bert_pooler",
       .doc = "hidden to pooled: the first token through a dense layer and tanh.",
       .options = {},
       .build = bert_pooler,
       .class_name = bert_pooler_class},
      {.name = "bert_mlm_head",
       .doc = "hidden to logits: only the head of masked tokens.",
       .options = {{"vocab_size", OptionType::Size, true, "Number of logits."}, norm_eps_rule(kNormEpsDoc)},
       .build = bert_mlm_head,
       .class_name = mlm_head_class},
      {.name = "bert_pretraining_heads",
       .doc = "hidden and pooled to logits and next_sentence_logits.",
       .options = {{"vocab_size", OptionType::Size, true, "Number of logits."}, norm_eps_rule(kNormEpsDoc)},
       .build = bert_pretraining_heads,
       .class_name = heads_class},
      {.name = "bert_pretraining_loss",
       .doc = "logits, labels, next_sentence_logits and next_sentence_label to loss.",
       .options = {},
       .build = bert_pretraining_loss},
  };
}

}  // namespace fsdp
