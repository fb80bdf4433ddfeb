#include "core/model/model_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/plan/plan.h"
#include "tests/support/assemble_model.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

using nlohmann::json;

json expanded(const Model& model) {
  return json::parse(expanded_model_text(model));
}

json entry_of(const json& list, const std::string& name) {
  for (const json& entry : list) {
    if (entry.at("name") == name) return entry;
  }
  ADD_FAILURE() << "no entry " << name;
  return {};
}

/// Two layers of one block; each hands on its input beside its result.
Model two_layers() {
  ModelAssembler model("two layers", Dtype::BFloat16);
  model.input("x", {2, 4}, std::nullopt);
  for (const char* name : {"layers.0", "layers.1"}) {
    BlockBuilder b = model.block("layer", "Layer");
    const BlockValue x = b.input("x");
    b.output("x", b.relu(b.linear("fc", x, 4)));
    b.output("before", x);
    model.call(name, std::move(b), true);
  }
  BlockBuilder loss = model.block("loss", "Loss");
  const BlockValue both = loss.add(loss.input("x"), loss.input("before"));
  loss.output("loss", loss.mean(loss.mean(both, 1, false), 0, false));
  model.call("", std::move(loss), false, true);
  return model.finish("loss");
}

TEST(ModelJson, ExpandsASharedBlockForEachCall) {
  const json model = expanded(two_layers());
  ASSERT_EQ(model.at("ops").size(), 7U);
  const json& ops = model.at("ops");
  EXPECT_EQ(ops[0].at("module"), "layers.0.fc");
  EXPECT_EQ(ops[0].at("parameters"), json::array({"layers.0.fc.weight"}));
  EXPECT_EQ(ops[2].at("kind"), "linear");
  EXPECT_EQ(ops[2].at("module"), "layers.1.fc");
  EXPECT_EQ(ops[2].at("parameters"), json::array({"layers.1.fc.weight"}));
  EXPECT_EQ(ops[3].at("module"), "layers.1");
  EXPECT_EQ(model.at("calls")[1],
            (json{{"module", "layers.1"}, {"block", "layer"}, {"repeated", true}, {"first_op", 2}, {"num_ops", 2}}));
}

TEST(ModelJson, TensorKeepsItsNumberAcrossOps) {
  const json model = expanded(two_layers());
  const json& ops = model.at("ops");
  EXPECT_EQ(model.at("inputs"), json::array({0}));
  EXPECT_EQ(ops[0].at("inputs"), json::array({0}));
  EXPECT_EQ(ops[2].at("inputs"), ops[1].at("outputs")) << "what layer 0 gives is what layer 1 takes";
  EXPECT_EQ(ops[4].at("inputs")[0], ops[3].at("outputs")[0]);
  EXPECT_EQ(ops[4].at("inputs")[1], ops[1].at("outputs")[0]) << "layer 1 hands out its input as it came";
  EXPECT_EQ(json::array({model.at("loss")}), ops[6].at("outputs"));
  EXPECT_EQ(model.at("tensors").size(), 8U) << "x and one for each op: nothing is numbered twice";
}

TEST(ModelJson, EveryTensorIsAnInputOrMadeByOneOpBeforeItIsRead) {
  for (const char* name : {"qwen3_tts.json", "t5_3b.json", "qwen3_30b_a3b.json", "bert_large.json"}) {
    const json model = expanded(model_of(name));
    std::vector<int> made(model.at("tensors").size(), 0);
    for (const int input : model.at("inputs")) ++made[input];
    for (const json& op : model.at("ops")) {
      for (const int input : op.at("inputs")) EXPECT_EQ(made[input], 1) << name << op;
      for (const int output : op.at("outputs")) ++made[output];
    }
    for (std::size_t t = 0; t < made.size(); ++t) EXPECT_EQ(made[t], 1) << name << " tensor " << t;
  }
}

TEST(ModelJson, TiedParameterIsListedUnderEachName) {
  const json model = expanded(model_of("qwen3_1_7b.json"));
  const json kept = entry_of(model.at("parameters"), "model.embed_tokens.weight");
  const json alias = entry_of(model.at("parameters"), "lm_head.weight");
  EXPECT_EQ(kept.at("tied_to"), nullptr);
  EXPECT_EQ(alias.at("tied_to"), "model.embed_tokens.weight");
  EXPECT_EQ(alias.at("shape"), json::array({151936, 2048}));
  std::int64_t elements = 0;
  for (const json& parameter : model.at("parameters")) {
    if (!parameter.at("tied_to").is_null()) continue;
    std::int64_t product = 1;
    for (const std::int64_t size : parameter.at("shape")) product *= size;
    elements += product;
  }
  EXPECT_EQ(elements, 1720574976) << "the published number";
}

TEST(ModelJson, BothTiesOfBertAreInTheirOwnModules) {
  const json model = expanded(model_of("bert_large.json"));
  EXPECT_EQ(entry_of(model.at("parameters"), "cls.predictions.decoder.weight").at("tied_to"),
            "bert.embeddings.word_embeddings.weight");
  int biases = 0;
  for (const json& parameter : model.at("parameters")) {
    const std::string name = parameter.at("name");
    biases += name == "cls.predictions.bias" || name == "cls.predictions.decoder.bias" ? 1 : 0;
  }
  EXPECT_EQ(biases, 2);
}

TEST(ModelJson, MarksTrainedParametersAndThoseWithGradients) {
  const json model = expanded(model_of("qwen3_tts.json"));
  const json encoder = entry_of(model.at("parameters"), "speaker_encoder.fc.weight");
  EXPECT_EQ(encoder.at("trainable"), true);
  EXPECT_EQ(encoder.at("receives_gradient"), false) << "its result is detached";
  const json frozen = expanded(model_of("qwen3_tts.json", {.recipe = "talker_only"}));
  EXPECT_EQ(entry_of(frozen.at("parameters"), "speaker_encoder.fc.weight").at("trainable"), false);
}

TEST(ModelJson, LeavesOutAttributesThatHaveTheirDefault) {
  const json model = expanded(model_of("gpt2.json"));
  json linear, attention;
  for (const json& op : model.at("ops")) {
    if (op.at("module") == "transformer.h.0.attn.c_attn") linear = op;
    if (op.at("kind") == "attention" && attention.is_null()) attention = op;
  }
  EXPECT_EQ(linear.at("attributes"), (json{{"transposed_weight", true}}));
  EXPECT_EQ(attention.at("attributes"),
            (json{{"heads", 12}, {"kv_heads", 12}, {"head_dim", 64}, {"causal", true}, {"probability", 0.1}}));
}

TEST(ModelJson, CarriesTheFingerprintThatAPlanNames) {
  const Model model = model_of("resnet18.json");
  EXPECT_EQ(expanded(model).at("fingerprint"), fingerprint_of(model));
  EXPECT_EQ(
      entry_of(expanded(model).at("buffers"), "bn1.num_batches_tracked"),
      (json{{"name", "bn1.num_batches_tracked"}, {"shape", json::array()}, {"dtype", "int64"}, {"persistent", true}}));
}

}  // namespace
}  // namespace fsdp
