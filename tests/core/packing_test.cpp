// Packed rows: which documents a row has, and the models that can be trained on them.

#include "core/plan/packing.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

using Lengths = std::vector<std::int64_t>;

Lengths documents_in(std::int64_t tokens, const std::string& lengths) {
  const auto documents = documents_of_row(tokens, lengths, "--document-length");
  EXPECT_TRUE(documents.has_value()) << lengths;
  const Lengths row = documents.value_or(Lengths{});
  EXPECT_EQ(std::accumulate(row.begin(), row.end(), std::int64_t{0}), tokens) << lengths;
  return row;
}

std::string row_mistake(std::int64_t tokens, const std::string& lengths) {
  const auto documents = documents_of_row(tokens, lengths, "--document-length");
  return documents ? "it is read" : to_string(documents.error().front());
}

std::string packing_refusal(const std::string& spec, PackedAttention attention, double seq = 1024, double batch = 1) {
  Workload workload{.packing = Packing{.attention = attention, .lengths = "256"}};
  if (seq > 0) workload.dimensions = {{"batch", batch}, {"seq", seq}};
  const auto model = build_model(*read_model_spec("model_specs/" + spec), workload);
  return model ? "it is built" : to_string(model.error().front());
}

Model packed_model(const std::string& spec, PackedAttention attention) {
  return model_of(spec, Workload{.dimensions = {{"batch", 1}, {"seq", 1024}},
                                 .packing = Packing{.attention = attention, .lengths = "256"}});
}

std::vector<Op> packed_attention_of(const Model& model) {
  std::vector<Op> ops;
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind == OpKind::Attention) ops.push_back(op);
    }
  }
  return ops;
}

TEST(PackedRow, HasAsManyDocumentsAsFitByTheMean) {
  EXPECT_EQ(documents_in(4096, "1024"), (Lengths{1024, 1024, 1024, 1024}));
  EXPECT_EQ(documents_in(100, "30"), (Lengths{34, 33, 33})) << "100 / 30 is about 3";
  EXPECT_EQ(documents_in(512, "512"), Lengths{512});
  EXPECT_EQ(documents_in(600, "500"), Lengths{600}) << "a second document would be much shorter";
}

TEST(PackedRow, SpreadsLengthsByTheirDeviation) {
  EXPECT_EQ(documents_in(4096, "1024:300"), (Lengths{1324, 724, 1324, 724}));
  // (1324^2 + 724^2) / 2 is 1024^2 + 300^2.
  EXPECT_DOUBLE_EQ(share_of_scores(documents_in(4096, "1024:300")), 4 * (1024. * 1024 + 300. * 300) / (4096. * 4096));
}

TEST(PackedRow, TakesListedLengthsOrOnesLikeThem) {
  EXPECT_EQ(documents_in(1000, "2x400,200"), (Lengths{400, 400, 200}));
  EXPECT_EQ(documents_in(2000, "100,300"), (Lengths{100, 100, 100, 100, 100, 300, 300, 300, 300, 300}))
      << "2000 over the mean of 200";
  EXPECT_EQ(text_of_lengths({900, 900, 92}), "2x900,1x92");
  EXPECT_EQ(documents_in(1892, text_of_lengths({900, 900, 92})), (Lengths{900, 900, 92}));
  EXPECT_EQ(documents_in(512 * 4, text_of_lengths(Lengths(100'000, 512))), Lengths(4, 512)) << "long files are sampled";
}

TEST(PackedRow, ComputesTheSumOfSquaredLengths) {
  EXPECT_DOUBLE_EQ(share_of_scores({}), 1);
  EXPECT_DOUBLE_EQ(share_of_scores({8192}), 1);
  EXPECT_DOUBLE_EQ(share_of_scores(Lengths(8, 1024)), 1. / 8);
  EXPECT_DOUBLE_EQ(share_of_scores({3, 1}), 10. / 16);
}

TEST(PackedRow, CanBeOneDocument) {
  EXPECT_EQ(documents_in(4096, "row"), Lengths{4096});
  EXPECT_EQ(sentence_of({.lengths = "row"}, 8192), "packed to 8,192 (one document)");
}

// A causal row of 4 x 4 blocks of 128 tokens has 4 + 3 + 2 + 1.
TEST(PackedRow, ComputesBlocksOfScoresWhole) {
  EXPECT_DOUBLE_EQ(share_of_blocks({512}), 1);
  EXPECT_DOUBLE_EQ(share_of_blocks(Lengths(4, 128)), 4. / 10);
  EXPECT_DOUBLE_EQ(share_of_blocks({256, 256}), 6. / 10);
  EXPECT_DOUBLE_EQ(share_of_blocks({64, 448}), 1) << "the first block sees itself alone, and the others a part of it";
  EXPECT_DOUBLE_EQ(share_of_blocks({1}), 1);
}

// 8 blocks of 128: four tables of 8 numbers and of 64 indices, each rounded to 128 elements, then the starts of
// documents with one more, 1152, and the number of each token's document.
TEST(PackedRow, HasABlockMaskOfTablesAndDocuments) {
  EXPECT_EQ(elements_of_block_mask(1, 1024), 4 * (128 + 128) + 1152 + 1024);
  EXPECT_EQ(elements_of_block_mask(3, 1024), 4 * (128 + 256) + 3 * 1024) << "3 x 64 indices; the end of each document";
}

TEST(PackedRow, IsNamedWithItsDocuments) {
  EXPECT_EQ(sentence_of({.lengths = "900"}, 8192), "packed to 8,192 (documents of about 910)");
  EXPECT_EQ(sentence_of({.lengths = "8000"}, 8192), "packed to 8,192 (one document)");
}

TEST(PackedRow, MistakesInLengthsAreNamed) {
  constexpr auto kForms =
      " Write a mean (900), a mean and a deviation (900:300), row for one, or the file with a length in each line.";
  for (const std::string text : {"0", "900:x", "9xx", "1,,2", ":3", "x", "99999999999x99999999999", "3000000000"}) {
    EXPECT_EQ(row_mistake(4096, text), "--document-length: \"" + text + "\" says no lengths of documents." + kForms);
  }
  EXPECT_EQ(row_mistake(4096, "900:900"),
            "--document-length: Documents of about 900 tokens cannot be 900 shorter. The deviation is smaller than the "
            "mean.");
  for (const char* text : {"5000", "100,5000"}) {
    EXPECT_EQ(row_mistake(4096, text),
              "--document-length: A document of 5000 tokens does not fit into a row of 4096. Write at most 4096, or a "
              "longer row: trainers cut longer documents.");
  }
}

TEST(PackedModel, GetsBoundariesThatEachAttentionReads) {
  for (const char* spec : {"llama3_2_1b.json", "qwen3_0_6b.json", "gpt2.json", "mistral_7b_v0_1.json"}) {
    const Model model = packed_model(spec, PackedAttention::FlashAttn);
    std::vector<std::string> inputs;
    for (const int input : model.inputs) inputs.push_back(model.values[input].name);
    EXPECT_EQ(inputs,
              (std::vector<std::string>{"input_ids", "labels", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k"}));
    for (const Op& op : packed_attention_of(model)) {
      EXPECT_EQ(op.attributes.documents, Lengths(4, 256));
      EXPECT_EQ(op.inputs.size(), 5U) << spec;
    }
    EXPECT_EQ(fingerprint_of(model), fingerprint_of(model_of(spec))) << "its parameters are the same";
  }
}

TEST(PackedModel, MakesOneMaskForPyTorchsAttention) {
  const Model model = packed_model("llama3_2_1b.json", PackedAttention::Sdpa);
  EXPECT_EQ(model.inputs.size(), 3U);
  std::int64_t masks = 0;
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) masks += op.attributes.fill == ConstantFill::DocumentMask ? 1 : 0;
  }
  EXPECT_EQ(masks, 1);
  for (const Op& op : packed_attention_of(model)) EXPECT_EQ(op.inputs.size(), 4U);
}

TEST(PackedModel, GetsTheBlockMaskOfAllRows) {
  const Model model = model_of("llama3_2_1b.json", Workload{.dimensions = {{"batch", 3}, {"seq", 1024}},
                                                            .packing = Packing{PackedAttention::Flex, "256"}});
  EXPECT_EQ(model.values[model.inputs[2]].shape, (Shape{3, 1024})) << "positions";
  EXPECT_EQ(model.values[model.inputs[3]].shape, Shape{elements_of_block_mask(3, 1024)});
  for (const Op& op : packed_attention_of(model)) {
    EXPECT_EQ(op.inputs.size(), 4U);
    EXPECT_EQ(op.attributes.documents, Lengths(4, 256));
  }
}

TEST(PackedModel, IsRefusedIfDocumentsCannotBeKeptApart) {
  EXPECT_EQ(packing_refusal("vit_b_16.json", PackedAttention::FlashAttn, 0),
            "--packing: ViT-B/16 has no rows of tokens. Leave it out.");
  EXPECT_EQ(
      packing_refusal("bert_large.json", PackedAttention::FlashAttn, 512),
      "--packing: Attention of BertSdpaSelfAttention looks at later tokens, too: it is no causal decoder's. Leave it "
      "out: rows of this model are not packed.");
  EXPECT_EQ(packing_refusal("gemma2_9b.json", PackedAttention::FlashAttn),
            "--packing: Attention of Gemma2Attention caps its scores, which is predicted written out, without "
            "boundaries. Leave it out: rows of this model are not packed.");
  EXPECT_EQ(packing_refusal("mistral_7b_v0_1.json", PackedAttention::Sdpa),
            "--packing: Attention of MistralAttention has a sliding window, whose mask of documents is not predicted. "
            "Write --packed-attention flash_attn, or leave it out.");
  EXPECT_EQ(packing_refusal("mistral_7b_v0_1.json", PackedAttention::Flex),
            "--packing: Attention of MistralAttention has a sliding window, whose mask of documents is not predicted. "
            "Write --packed-attention flash_attn, or leave it out.");
  EXPECT_EQ(packing_refusal("llama3_2_1b.json", PackedAttention::FlashAttn, 1024, 2),
            "--packing: A packed row is a micro-batch of one, and batch is 2. Write a longer row, or more "
            "micro-batches.");
}

}  // namespace
}  // namespace fsdp
