#pragma once

// What BERT and its descendants share.

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

struct BertSizes {
  std::int64_t vocab_size = 1, hidden_size = 1, intermediate_size = 1, layers = 1, heads = 1, positions = 1, types = 1;
  std::optional<std::int64_t> padding;
  double dropout = 0, attention_dropout = 0, eps = 0, initial_std = kUsualInitialStd;
};

/// Reads the sizes, and refuses decoders and other activations and positions. `vocab_size`, `padding`: the family's
/// defaults.
BertSizes read_bert_sizes(HfConfigReader& config, std::int64_t vocab_size, std::int64_t padding);

/// The embeddings and the layers of the encoder, below the module `at`. `embeddings`: their block. `family`: the first
/// word of their classes if it is not Bert.
void write_bert_encoder(HfSpecText& spec, std::string_view at, std::string_view embeddings, const BertSizes& sizes,
                        std::string_view family = {});

/// The number of classes of a classifier, by their names. Refuses one class, which is a regression, and other problems
/// than a single label.
std::int64_t read_classes(HfConfigReader& config);

}  // namespace fsdp::hf_models
