// Bad specs and workloads, with the whole text that a user sees.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

/// A good spec of one line per member; tests replace a piece of it.
constexpr const char* kGood = R"({
  "format_version": "1.0",
  "name": "Small",
  "source": "here",
  "dtype": "float32",
  "dimensions": {"batch": 2, "seq": 16},
  "inputs": {"input_ids": {"shape": ["batch", "seq"], "dtype": "int64"}, "labels": {"shape": ["batch", "seq"], "dtype": "int64"}},
  "modules": [
    {"name": "embed", "block": "token_embedding", "vocab_size": 100, "hidden_size": 32},
    {"name": "rotary", "block": "rotary_table", "head_dim": 8},
    {"name": "layers.{0..1}", "block": "decoder_layer", "num_attention_heads": 4, "intermediate_size": 64},
    {"name": "lm_head", "block": "lm_head", "vocab_size": 100},
    {"name": "", "block": "cross_entropy", "shift": true}
  ],
  "tied": {"lm_head.weight": "embed.weight"},
  "recipes": {"finetune": {"frozen": ["embed"]}}
}
)";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// What a user sees, one line per error.
std::vector<std::string> messages_of(const std::string& text, const Workload& workload = {}) {
  std::vector<std::string> messages;
  const auto add = [&](const Errors& errors) {
    for (const Error& error : errors) messages.push_back(to_string(error));
  };
  const auto spec = parse_model_spec(text, "m.json");
  if (!spec) {
    add(spec.error());
    return messages;
  }
  const auto model = build_model(*spec, workload);
  if (!model) add(model.error());
  return messages;
}

struct Case {
  std::string from;
  std::string to;
  std::vector<std::string> messages;
};

void expect(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(messages_of(with(c.from, c.to)), c.messages) << c.to;
}

TEST(ModelMessages, IntactSpecIsRead) {
  EXPECT_EQ(messages_of(kGood), std::vector<std::string>{});
}

TEST(ModelMessages, ErrorsAtTheTopLevel) {
  expect({
      {R"("name": "Small",)", R"("nam": "Small",)", {R"(m.json:3:3: /nam: Unknown key "nam". Did you mean "name"?)"}},
      {R"("1.0")",
       R"("2.0")",
       {R"(m.json:2:21: /format_version: This program reads format "1.0", not "2.0". Write "1.0", or take the program that the file was written for.)"}},
      {R"("float32")", R"("float33")", {R"(m.json:5:12: /dtype: Unknown dtype "float33". Did you mean "float32"?)"}},
      {R"("float32")",
       R"("int64")",
       {R"(m.json:5:12: /dtype: Parameters have a floating point dtype. Write "bfloat16", "float16" or "float32".)"}},
      {R"("batch": 2, "seq")",
       R"("seq")",
       {R"(m.json:6:17: /dimensions: There is no dimension "batch". It is the size of one micro-batch on one GPU.)",
        R"(m.json:7:38: /inputs/input_ids/shape/0: There is no dimension "batch". Known are seq.)",
        R"(m.json:7:95: /inputs/labels/shape/0: There is no dimension "batch". Known are seq.)"}},
      {R"("seq": 16)",
       R"("seq": 16, "max": 1)",
       {R"(m.json:6:41: /dimensions/max: "max" cannot be the name of a dimension. A name is a letter, then letters, digits and "_", and no function's name.)"}},
      {R"("seq": 16)",
       R"("seq": "batch * lenght")",
       {R"(m.json:6:37: /dimensions/seq: "batch * lenght" uses "lenght", which is not a dimension. Known are batch and seq.)"}},
      {R"("seq": 16)",
       R"("seq": "batch *")",
       {R"(m.json:6:37: /dimensions/seq: The expression "batch *" does not work: It ends too early. Write numbers, names of dimensions, + - * / %, parentheses, floor, ceil, round, min and max.)"}},
      {R"("seq": 16)",
       R"("seq": true)",
       {R"(m.json:6:37: /dimensions/seq: Expected a number or an expression such as "16 * frames", found true.)"}},
      {R"("modules": [)",
       R"("modules": [], "moduls": [)",
       {R"(m.json:8:14: /modules: There is no module. Write at least one.)",
        R"(m.json:8:18: /moduls: Unknown key "moduls". Known are $schema, classes, description, dimensions, dtype, format_version, frozen, initial_values, inputs, loss, modules, name, notes, recipes, registration, source, tied, tokens_per_step and trainable.)"}},
  });
}

TEST(ModelMessages, ErrorsInBlocksAfterTheRoot) {
  expect({
      {R"("block": "lm_head",)",
       R"("block": "lm_head", "after_root": true,)",
       {R"(m.json:12:14: /modules/3/name: "lm_head" is a module inside the root, and the entry runs after the root's forward. Write "", or leave "after_root" out.)"}},
      {R"("block": "cross_entropy",)",
       R"("block": "cross_entropy", "after_root": true, "class": "Loss", "keep_outputs": true,)",
       {R"(m.json:13:73: /modules/4/class: An entry after the root's forward is not a module and has no class. Leave it out.)",
        R"(m.json:13:97: /modules/4/keep_outputs: Kept outputs live until the root's forward returns, and this runs after it. Leave "keep_outputs" or "after_root" out.)"}},
      {R"({"name": "lm_head",)",
       R"({"name": "", "ops": [{"op": "scale", "scale": 2, "inputs": ["hidden"], "outputs": ["hidden"]}], "after_root": true},
    {"name": "lm_head",)",
       {R"(m.json:13:5: /modules/4: It comes after an entry that runs after the root's forward. Write "after_root": true here too, or move that entry to the end.)"}},
      {R"({"name": "", "block": "cross_entropy", "shift": true})",
       R"({"name": "", "block": "layer_norm", "after_root": true})",
       {R"(m.json:13:5: /modules/4: An entry after the root's forward has no modules, parameters or buffers. Leave "after_root" out, or keep to ops without them.)"}},
  });
}

TEST(ModelMessages, ErrorsOfEmptyAndDuplicateNames) {
  expect({
      {R"("tied": {)",
       R"("registration": ["embed", "rotary", "embed"],
  "tied": {)",
       {R"(m.json:15:39: /registration/2: "embed" is listed twice. A module is registered once: leave one of the two out.)"}},
      {R"("name": "lm_head",)",
       R"("name": "lm_head", "class": "",)",
       {R"(m.json:12:34: /modules/3/class: A class has a name. Write one such as "LlamaModel".)"}},
      {R"("block": "lm_head",)",
       R"("block": "lm_head", "outputs": {"logits": ""},)",
       {R"(m.json:12:67: /modules/3/outputs/logits: A value has a name. Write one such as "hidden".)"}},
      {R"({"name": "lm_head", "block": "lm_head", "vocab_size": 100},)",
       R"({"name": "lm_head", "block": "lm_head", "vocab_size": 100},
    {"name": "lm_head", "block": "lm_head", "vocab_size": 100},)",
       {R"(m.json:12:5: /modules/3: Nothing reads "lm_head.logits" before a later entry overwrites it. Leave one of the two entries out, or give their outputs different names.)"}},
  });
}

TEST(ModelMessages, WorkloadErrorsNameTheWorkload) {
  EXPECT_EQ(messages_of(kGood, {.dimensions = {{"seq", 1.5}}}),
            std::vector<std::string>{R"(dimension seq: "seq" is 1.5. It must be an integer from 1 to 2^53.)"});
}

TEST(ModelMessages, ErrorsInSizes) {
  expect({
      {R"("seq": 16)",
       R"("seq": 0)",
       {R"(m.json:6:37: /dimensions/seq: The dimension "seq" is 0. Dimensions are positive, and at most 2^53.)"}},
      {R"("seq": 16)",
       R"("seq": -4)",
       {R"(m.json:6:37: /dimensions/seq: The dimension "seq" is -4. Dimensions are positive, and at most 2^53.)"}},
      {R"("seq": 16)",
       R"("seq": 1.5)",
       {R"(m.json:7:47: /inputs/input_ids/shape/1: "seq" is 1.5. It must be an integer from 1 to 2^53.)",
        R"(m.json:7:104: /inputs/labels/shape/1: "seq" is 1.5. It must be an integer from 1 to 2^53.)"}},
      {R"("seq": 16)",
       R"("seq": 9223372036854775808)",
       {R"(m.json:6:37: /dimensions/seq: The dimension "seq" is 9.223372036854776e+18. Dimensions are positive, and at most 2^53.)"}},
      {R"("seq": 16)",
       R"("seq": "later", "later": "seq")",
       {R"(m.json:6:37: /dimensions/seq: The dimension "seq" is defined by itself. Give one of the dimensions of the circle a number.)",
        R"(m.json:6:55: /dimensions/later: The dimension "later" is defined by itself. Give one of the dimensions of the circle a number.)"}},
      {R"("seq": 16)",
       R"("seq": 4503599627370496)",
       {R"(m.json:9:5: /modules/0: The op embedding in "" does not work: The output [2, 4503599627370496, 32] has more than 2^53 elements.)"}},
  });
}

TEST(ModelMessages, ErrorsInModules) {
  expect({
      {R"("name": "embed",)",
       R"("name": "embed layer",)",
       {R"(m.json:9:14: /modules/0/name: "embed layer" is not the name of a module. Write names with dots between them, such as "model.embed_tokens"; "" is the root.)"}},
      {R"(layers.{0..1})",
       R"(layers.{0..})",
       {R"(m.json:11:14: /modules/2/name: "layers.{0..}" is not a repetition. Write it at the end, as in "model.layers.{0..27}".)"}},
      {R"(layers.{0..1})",
       R"(layers.{3..1})",
       {R"(m.json:11:14: /modules/2/name: "layers.{3..1}" repeats from 3 to 1. The last number is at least the first; up to 10000 repetitions are read.)"}},
      {R"(layers.{0..1})",
       R"(layers.{0..99999})",
       {R"(m.json:11:14: /modules/2/name: "layers.{0..99999}" repeats from 0 to 99999. The last number is at least the first; up to 10000 repetitions are read.)"}},
      {R"("block": "decoder_layer")",
       R"("block": "decoder_layers")",
       {R"(m.json:11:40: /modules/2/block: Unknown block "decoder_layers". Did you mean "decoder_layer"?)"}},
      {R"("num_attention_heads": 4)",
       R"("num_attention_head": 4)",
       {R"(m.json:11:57: /modules/2/num_attention_head: Unknown key "num_attention_head". Did you mean "num_attention_heads"?)"}},
      {R"("num_attention_heads": 4)",
       R"("num_attention_heads": "four")",
       {R"(m.json:11:80: /modules/2/num_attention_heads: There is no dimension "four". Known are batch and seq.)"}},
      {R"("num_attention_heads": 4)",
       R"("num_attention_heads": 5)",
       {R"(m.json:11:5: /modules/2: The number of heads, 5, does not divide the width 32. Give "head_dim" too.)",
        R"(m.json:11:5: /modules/2: The op rotary in "self_attn" does not work: The tables [1, 16, 8] and [1, 16, 8] do not match a head width of 6.)"}},
      {R"("num_attention_heads": 4)",
       R"("num_attention_heads": 0)",
       {R"(m.json:11:80: /modules/2/num_attention_heads: The value is 0. It must be an integer from 1 to 2^53.)"}},
      {R"("intermediate_size": 64)",
       R"("intermediate_size": 64, "activation": "relu")",
       {R"(m.json:11:122: /modules/2/activation: Unknown activation "relu". Did you mean "gelu"?)"}},
  });
}

TEST(ModelMessages, ErrorsInBlocks) {
  expect({
      {R"("intermediate_size": 64)",
       R"("intermediate_size": 64, "qk_norm": 1)",
       {R"(m.json:11:119: /modules/2/qk_norm: Expected true or false, found the number 1.)"}},
      {R"("intermediate_size": 64)",
       R"("intermediate_size": 64, "per_layer": {"sliding_windw": [1]})",
       {R"(m.json:11:122: /modules/2/per_layer/sliding_windw: The block decoder_layer has no option "sliding_windw". Did you mean "sliding_window"?)"}},
      {R"("intermediate_size": 64)",
       R"("intermediate_size": 64, "recipes": ["finetun"])",
       {R"(m.json:11:120: /modules/2/recipes/0: Unknown recipe "finetun". Did you mean "finetune"?)"}},
      {R"("intermediate_size": 64)",
       R"("intermediate_size": 9007199254740992)",
       {R"(m.json:11:5: /modules/2: The parameter "mlp.gate_proj.weight" would be [9007199254740992, 32]. Sizes start at 1, and a tensor has at most 2^53 elements.)",
        R"(m.json:11:5: /modules/2: The parameter "mlp.up_proj.weight" would be [9007199254740992, 32]. Sizes start at 1, and a tensor has at most 2^53 elements.)"}},
      {R"("head_dim": 8)",
       R"("head_dim": 7)",
       {R"(m.json:10:5: /modules/1: The op rotary_table in "" does not work: A head_dim of 7 is not even.)"}},
      {R"("head_dim": 8)",
       R"("head_dim": 16)",
       {R"(m.json:11:5: /modules/2: The op rotary in "self_attn" does not work: The tables [1, 16, 16] and [1, 16, 16] do not match a head width of 8.)"}},
      {R"("name": "rotary", "block": "rotary_table", "head_dim": 8)",
       R"("name": "rotary", "block": "rms_norm")",
       {R"(m.json:11:5: /modules/2: It needs a value "cos", which no module before it produces. Known are hidden, input_ids and labels.)",
        R"(m.json:11:5: /modules/2: It needs a value "sin", which no module before it produces. Known are hidden, input_ids and labels.)"}},
      {R"("block": "lm_head", )",
       R"("block": "lm_head", "inputs": {"hidden": "hiden"}, )",
       {R"(m.json:12:5: /modules/3: Nothing before it produces "hiden". Did you mean "hidden"?)"}},
      {R"("block": "lm_head", )",
       R"("block": "lm_head", "outputs": {"logit": "logits"}, )",
       {R"(m.json:12:5: /modules/3: The block does not produce "logit". Did you mean "logits"?)"}},
      {R"("block": "lm_head", "vocab_size": 100)",
       R"("vocab_size": 100)",
       {R"(m.json:12:5: /modules/3: The module has neither "block" nor "ops". Name a block, or write the ops of its forward.)"}},
      {R"("block": "lm_head", "vocab_size": 100)",
       R"("ops": [{"op": "liner", "inputs": ["hidden"]}])",
       {R"(m.json:12:40: /modules/3/ops/0/op: Unknown op "liner". Did you mean "linear"?)"}},
  });
}

TEST(ModelMessages, ErrorsInPlainOps) {
  expect({
      {R"("block": "lm_head", "vocab_size": 100)",
       R"("ops": [{"op": "linear", "out_features": 100, "outputs": ["logits"]}])",
       {R"(m.json:12:33: /modules/3/ops/0: The first op does not name its inputs. Add "inputs": later ops read the outputs of the op before.)"}},
      {R"("block": "lm_head", "vocab_size": 100)",
       R"("ops": [{"op": "linear", "inputs": ["hidden"], "out_features": 100}])",
       {R"(m.json:12:5: /modules/3: The last op does not name its output. Add "outputs" to it.)"}},
      {R"("block": "lm_head", "vocab_size": 100)",
       R"("ops": [{"op": "linear", "inputs": ["hidden"], "outputs": ["logits"]}])",
       {R"(m.json:12:33: /modules/3/ops/0: "out_features" is missing. Add "out_features" to this object.)"}},
      {R"("block": "lm_head", "vocab_size": 100)",
       R"("ops": [{"op": "reshape", "inputs": ["hidden"], "shape": ["batch", 7], "outputs": ["logits"]}])",
       {R"(m.json:12:5: /modules/3: The op reshape in "" does not work: [2, 16, 32] does not reshape to [2, 7].)"}},
      {R"("name": "lm_head")",
       R"("name": "embed")",
       {R"(m.json:15:30: /tied/lm_head.weight: There is no parameter "lm_head.weight". Did you mean "embed.weight"?)"}},
  });
}

TEST(ModelMessages, ErrorsInTiesPatternsAndNames) {
  expect({
      {R"("embed.weight"})",
       R"("embed.weigth"})",
       {R"(m.json:15:30: /tied/lm_head.weight: There is no parameter "embed.weigth". Did you mean "embed.weight"?)"}},
      {R"("embed.weight"})",
       R"("lm_head.weight"})",
       {R"(m.json:15:30: /tied/lm_head.weight: "lm_head.weight" is tied to itself in a circle. One parameter of a group keeps its name, and the others are tied to it.)"}},
      {R"("lm_head.weight": "embed.weight")",
       R"("lm_head.weight": "embed.weight", "embed.weight": "lm_head.weight")",
       {R"(m.json:15:62: /tied/embed.weight: "embed.weight" is tied to itself in a circle. One parameter of a group keeps its name, and the others are tied to it.)"}},
      {R"("lm_head.weight": "embed.weight")",
       R"("lm_head.weight": "layers.0.mlp.up_proj.weight")",
       {R"(m.json:15:30: /tied/lm_head.weight: "lm_head.weight" is [100, 32], but "layers.0.mlp.up_proj.weight" is [64, 32]. Tied parameters have one shape.)"}},
      {R"(["embed"])",
       R"(["embd"])",
       {R"(m.json:16:39: /recipes/finetune/frozen/0: The pattern "embd" matches no parameter of Small. Did you mean "embed"?)"}},
      {R"(["embed"])",
       R"(["layers.*.mpl"])",
       {R"(m.json:16:39: /recipes/finetune/frozen/0: The pattern "layers.*.mpl" matches no parameter of Small. Did you mean "layers.*.mlp"?)"}},
      {R"("recipes": {)",
       R"("registration": ["layrs"], "recipes": {)",
       {R"(m.json:16:20: /registration/0: There is no module "layrs". Did you mean "layers"?)"}},
      {R"("recipes": {)",
       R"("classes": {"modle": "Model"}, "recipes": {)",
       {R"(m.json:16:15: /classes/modle: There is no module "modle". Write its fully qualified name.)"}},
      {R"("recipes": {)",
       R"("loss": "los", "recipes": {)",
       {R"(m.json: No module produces the loss "los". Did you mean "cos"?)"}},
      {R"("recipes": {)",
       R"("tokens_per_step": "batch / 4", "recipes": {)",
       {R"(m.json:16:22: /tokens_per_step: "batch / 4" is 0.5. It must be an integer from 1 to 2^53.)"}},
      {R"({"frozen")",
       R"({"dimensions": {"sequence": 4}, "frozen")",
       {R"(m.json:16:43: /recipes/finetune/dimensions/sequence: The model has no dimension "sequence". Known are batch and seq.)"}},
      {R"({"frozen")",
       R"({"optimizer": {"kind": "adamm"}, "frozen")",
       {R"(m.json:16:50: /recipes/finetune/optimizer/kind: Unknown optimizer "adamm". Did you mean "adamw"?)"}},
  });
}

TEST(ModelMessages, EveryErrorComesInTheOrderOfTheFile) {
  std::string text = with(R"("dtype": "float32")", R"("dtype": "float33")");
  text.replace(text.find("head_dim"), 8, "head_dims");
  text.replace(text.find("decoder_layer"), 13, "decoder_layr");
  EXPECT_EQ(messages_of(text),
            (std::vector<std::string>{
                R"(m.json:5:12: /dtype: Unknown dtype "float33". Did you mean "float32"?)",
                R"(m.json:10:49: /modules/1/head_dims: Unknown key "head_dims". Did you mean "head_dim"?)",
                R"(m.json:11:40: /modules/2/block: Unknown block "decoder_layr". Did you mean "decoder_layer"?)"}));
}

TEST(ModelMessages, ErrorsInWorkloads) {
  const auto expect_message = [](const Workload& workload, const std::string& message) {
    EXPECT_EQ(messages_of(kGood, workload), std::vector<std::string>{message});
  };
  expect_message(Workload{.recipe = "finetun"},
                 R"(--recipe: The model Small has no recipe "finetun". Did you mean "finetune"?)");
  expect_message(Workload{.dimensions = {{"sequence", 4}}},
                 "dimension sequence: The model Small has no such dimension. Known are batch and seq.");
  expect_message(Workload{.dimensions = {{"seq", 0}}},
                 R"(dimension seq: The dimension "seq" is 0. Dimensions are positive, and at most 2^53.)");
  expect_message(Workload{.dimensions = {{"seq", std::nan("")}}}, "dimension seq: nan is not a size.");
  expect_message(
      Workload{.trainable = {"layers.*.self_atn"}},
      R"(--trainable: The pattern "layers.*.self_atn" matches no parameter of Small. Did you mean "layers.*.self_attn"?)");
  expect_message(
      Workload{.frozen = {"xyz"}},
      R"(--freeze: The pattern "xyz" matches no parameter of Small. Write a module or a parameter, with * for any characters.)");
}

TEST(ModelMessages, SequenceBeyondThePositionsIsAnError) {
  const auto spec = read_model_spec("model_specs/gpt2.json");
  const auto model = build_model(*spec, Workload{.dimensions = {{"seq", 2048}}});
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(to_string(model.error().front()),
            "seq 2048: The model has 1024 positions, fewer than the sequence's 2048. Take at most 1024.");
}

}  // namespace
}  // namespace fsdp
