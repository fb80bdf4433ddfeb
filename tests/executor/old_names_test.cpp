#include "executor/checkpoint/old_names.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fsdp::executor {
namespace {

Model model_of(const std::vector<std::string>& names) {
  Model model;
  for (const std::string& name : names) model.parameters.emplace_back().name = name;
  return model;
}

StoredTensors stored_of(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  StoredTensors stored;
  for (const std::string& name : names) stored.tensors.emplace_back().name = name;
  return stored;
}

std::vector<std::string> names_in(const StoredTensors& stored) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : stored.tensors) names.push_back(tensor.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(OldNames, BaseModelNamesGetTheModelsPrefix) {
  StoredTensors stored =
      stored_of({"h.0.attn.bias", "h.0.attn.masked_bias", "h.0.attn.c_attn.bias", "ln_f.bias", "wte.weight"});
  const Names notes = settle_old_names(stored, model_of({"lm_head.weight", "transformer.h.0.attn.c_attn.bias",
                                                         "transformer.ln_f.bias", "transformer.wte.weight"}));
  EXPECT_EQ(names_in(stored),
            (Names{"transformer.h.0.attn.c_attn.bias", "transformer.ln_f.bias", "transformer.wte.weight"}));
  EXPECT_EQ(notes,
            (Names{"names that lack \"transformer.\" in front: 3, as h.0.attn.c_attn.bias",
                   "tensors that the model computes or has no use for, which are left out: 2, as h.0.attn.bias"}));
  EXPECT_NE(stored.find("transformer.wte.weight"), nullptr);  // They are in the order of their names again.
}

TEST(OldNames, GammaAndBetaAreWeightAndBias) {
  StoredTensors stored = stored_of({"bert.a.LayerNorm.beta", "bert.a.LayerNorm.gamma", "bert.embeddings.position_ids"});
  const Names notes = settle_old_names(stored, model_of({"bert.a.LayerNorm.weight", "bert.a.LayerNorm.bias"}));
  EXPECT_EQ(names_in(stored), (Names{"bert.a.LayerNorm.bias", "bert.a.LayerNorm.weight"}));
  EXPECT_EQ(notes, (Names{"names with LayerNorm.gamma or LayerNorm.beta, which are weight and bias now: 2, as "
                          "bert.a.LayerNorm.beta",
                          "tensors that the model computes or has no use for, which are left out: 1, as "
                          "bert.embeddings.position_ids"}));
}

TEST(OldNames, NamesOfTheModelAndUnknownNamesAreUnchanged) {
  const Names mine = {"h.0.attn.bias",       "layers.0.rotary_emb.inv_freq",
                      "new.LayerNorm.gamma", "a.LayerNorm.gamma",
                      "a.LayerNorm.weight",  "h.x.attn.bias",
                      "mylh.0.attn.bias",    "model.norm.weight",
                      "norm.weight"};
  StoredTensors stored = stored_of(mine);
  const Names before = names_in(stored);
  EXPECT_EQ(settle_old_names(stored, model_of({"h.0.attn.bias", "layers.0.rotary_emb.inv_freq", "new.LayerNorm.gamma",
                                               "a.LayerNorm.weight", "model.norm.weight"})),
            Names{});
  EXPECT_EQ(names_in(stored), before);
}

}  // namespace
}  // namespace fsdp::executor
