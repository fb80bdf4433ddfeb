// Captured models: two recorded linears and a loss, small enough to check by hand.

#include "core/spec/captured_model.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/spec/model_spec.h"

namespace fsdp {
namespace {

// x [2, 4] -> mm with a weight [4, 4] -> [2, 4] -> ... -> loss, in bfloat16: 16 bytes a tensor, 32 a weight.
constexpr std::string_view kFile = R"({
"format_version": "1.0", "kind": "captured_model", "name": "Net", "source": "captured from `python train.py`",
"command": ["python", "train.py"], "framework": "2.11.0", "gpu": "NVIDIA L4", "accumulation": 2, "matmul_allow_tf32": true,
"optimizer": {"kind": "sgd", "class": "SGD", "foreach": true, "fused": false, "momentum": 0.5, "clip_grad_norm": 2},
"modules": [{"name": "", "class": "Net", "called": true}, {"name": "layers", "class": "ModuleList", "called": false},
            {"name": "layers.0", "class": "Linear", "called": true}, {"name": "layers.1", "class": "Linear"}],
"parameters": [
  {"name": "layers.0.weight", "shape": [4, 4], "dtype": "bfloat16", "trainable": true, "receives_gradient": true},
  {"name": "layers.1.weight", "shape": [4, 4], "dtype": "bfloat16", "trainable": true, "receives_gradient": true}],
"buffers": [{"name": "scale", "shape": [4], "dtype": "float32", "persistent": false}],
"limits": ["The script's evaluation was not captured."],
"points": [{
  "dimensions": {"batch": 2, "width": 4}, "tokens_per_step": 8,
  "values": [{"name": "x", "shape": [2, 4], "dtype": null}, {"name": "h", "shape": [2, 4], "dtype": null},
             {"name": "y", "shape": [2, 4], "dtype": null}, {"name": "loss", "shape": [], "dtype": null}],
  "inputs": [0], "loss": 3,
  "blocks": [
   {"kind": "Linear", "modules": [{"name": "", "class": "Linear", "parent": -1, "called": true}],
    "parameters": [[4, 4]],
    "values": [{"name": "x", "shape": [2, 4], "dtype": null}, {"name": "y", "shape": [2, 4], "dtype": null}],
    "num_inputs": 1, "outputs": [1],
    "ops": [{"name": "aten::mm", "module": 0, "inputs": [0], "outputs": [1], "parameters": [0],
             "backward": true, "saves": true}],
    "tapes": [
     {"dtype": "bfloat16", "checkpointed": false, "storage_op": [0, 0],
      "forward": [[["alloc", 0, 16], ["workspace", 0]]],
      "backward": [[["param_grad", 0, 32], ["alloc", 1, 16], ["release_input", 0], ["release_grad", 0],
                    ["add_grad", 0], ["emit_grad", 1, 0]]],
      "outputs": [{"storage": 0, "bytes": 16, "kept": false}],
      "work": [[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]]},
     {"dtype": "bfloat16", "checkpointed": true, "storage_op": [0, 0, 0],
      "forward": [[["alloc", 0, 16]]],
      "recompute": [["alloc", 2, 16], ["free", 2]],
      "backward": [[["param_grad", 0, 32], ["alloc", 1, 16], ["release_input", 0], ["release_grad", 0],
                    ["add_grad", 0], ["emit_grad", 1, 0]]],
      "outputs": [{"storage": 0, "bytes": 16}],
      "work": [[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]], "recomputed": [true]}]},
   {"kind": "glue", "modules": [{"name": "", "class": "Net", "parent": -1}], "parameters": [],
    "values": [{"name": "y", "shape": [2, 4], "dtype": null}, {"name": "loss", "shape": [], "dtype": null}],
    "num_inputs": 1, "outputs": [1],
    "ops": [{"name": "aten::mean", "module": 0, "inputs": [0], "outputs": [1], "parameters": [],
             "backward": true, "saves": false}],
    "tapes": [
     {"dtype": "bfloat16", "checkpointed": false, "storage_op": [0, 0],
      "forward": [[["alloc", 0, 2], ["release_input", 0]]],
      "backward": [[["alloc", 1, 16], ["release_grad", 0], ["emit_grad", 1, 0, 1]]],
      "outputs": [{"storage": 0, "bytes": 2, "kept": false}],
      "work": [[0, 0, 0, 18, 1, 0, 0, 0, 18, 1]]}]}],
  "calls": [
   {"block": 0, "module": 2, "modules": [2], "parameters": [0], "inputs": [0], "outputs": [1], "repeated": true},
   {"block": 0, "module": 3, "modules": [3], "parameters": [1], "inputs": [1], "outputs": [2], "repeated": true},
   {"block": 1, "module": 0, "modules": [0], "parameters": [], "inputs": [2], "outputs": [3]}],
  "stacks": [{"name": "layers", "class": "Linear", "calls": [0, 1]}]}]})";

/// The file with the first occurrence of a text replaced.
std::string with(std::string_view before, std::string_view after) {
  std::string text(kFile);
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return text.replace(at, before.size(), after);
}

/// The first error without its line and column, which say little here: "/points/0/loss: No call makes it. ...".
std::string error_of(std::string text) {
  const auto spec = parse_model_spec(std::move(text), "net.json");
  if (spec) return "none";
  std::string error = to_string(spec.error().front());
  const std::size_t pointer = error.find(": /");
  return pointer == std::string::npos ? error : error.substr(pointer + 2);
}

ModelSpec read_file(std::string text = std::string(kFile)) {
  auto spec = parse_model_spec(std::move(text), "net.json");
  if (!spec) ADD_FAILURE() << to_string(spec.error().front());
  return spec.value_or(ModelSpec{});
}

Model model_in_file(std::string text) {
  auto model = build_model(read_file(std::move(text)));
  if (!model) ADD_FAILURE() << to_string(model.error().front());
  return model.value_or(Model{});
}

TEST(CapturedModel, FileIsASpecWithItsOwnRecipe) {
  const ModelSpec spec = read_file();
  ASSERT_NE(spec.captured, nullptr);
  EXPECT_EQ(spec.name, "Net");
  EXPECT_EQ(spec.dtype, Dtype::BFloat16);
  EXPECT_EQ(spec.captured->gpu, "NVIDIA L4");
  EXPECT_EQ(spec.captured->framework, "2.11.0");
  ASSERT_EQ(spec.recipes.size(), 1U);
  EXPECT_EQ(spec.recipes[0].accumulation, 2);
  EXPECT_EQ(spec.recipes[0].optimizer.kind, OptimizerKind::Sgd);
  EXPECT_EQ(spec.recipes[0].optimizer.momentum, 0.5);
  EXPECT_EQ(spec.recipes[0].optimizer.clip_grad_norm, 2.0);
  EXPECT_EQ(spec.recipes[0].mixed_precision, MixedPrecision{});
  EXPECT_TRUE(spec.recipes[0].matmul_allow_tf32);
  EXPECT_TRUE(spec.recipes[0].cudnn_allow_tf32);
  ASSERT_EQ(spec.dimensions.size(), 2U);
  EXPECT_EQ(spec.dimensions[0].value.text, "2");
}

TEST(CapturedModel, BuildsAModelOfRecordedOps) {
  const auto model = build_model(read_file());
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->modules[3].parent, 1);
  EXPECT_EQ(model->modules[1].children, (std::vector<int>{2, 3}));
  EXPECT_EQ(model->modules[2].parameters, std::vector<int>{0});
  EXPECT_FALSE(model->modules[1].called);
  EXPECT_EQ(model->notes, std::vector<std::string>{"The script's evaluation was not captured."});
  EXPECT_EQ(model->tokens_per_step, 8);
  ASSERT_EQ(model->blocks.size(), 2U);
  const Block& layer = model->blocks[0];
  EXPECT_EQ(layer.ops[0].kind, OpKind::Recorded);
  EXPECT_TRUE(layer.ops[0].attributes.saves);
  EXPECT_FALSE(model->blocks[1].ops[0].attributes.saves);
  EXPECT_EQ(layer.recorded->op_names, std::vector<std::string>{"aten::mm"});
  const RecordedTape* tape = layer.recorded->find(Dtype::BFloat16, true);
  ASSERT_NE(tape, nullptr);
  EXPECT_EQ(tape->recompute[0], (RecordedEvent{.kind = RecordedEvent::Kind::Alloc, .index = 2, .value = 16}));
  EXPECT_EQ(tape->work[0].backward.gemm_flops, 128);
  EXPECT_TRUE(model->blocks[1].recorded->tapes[0].backward[0][2].is_view);
  EXPECT_TRUE(can_checkpoint(*model, Dtype::BFloat16));
  EXPECT_FALSE(can_checkpoint(*model, Dtype::Float32));
}

TEST(CapturedModel, ReadsGradientClearingAndBatchContents) {
  std::string text(kFile);
  const std::string before = "\"inputs\": [0], \"loss\": 3,";
  const std::size_t place = text.find(before);
  ASSERT_NE(place, std::string::npos);
  text.insert(place, R"("clears_gradients_at": 2, "buffers": [
    {"name": "beside/script/0", "shape": [640], "dtype": "uint8", "persistent": false, "registered": false}], )");
  const auto model = build_model(read_file(text), {});
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->clears_gradients_at, 2);
  EXPECT_FALSE(model->keeps_gradients);
  EXPECT_TRUE(begins_with_gradients(*model));
  ASSERT_EQ(model->buffers.size(), 2U);
  EXPECT_EQ(model->buffers[1].name, "beside/script/0");
  EXPECT_EQ(buffer_bytes(*model), Bytes(16));
  EXPECT_FALSE(begins_with_gradients(*build_model(read_file(), {})));
}

TEST(CapturedModel, ReadsWhichBuffersCopyAParameter) {
  const std::string scale = R"({"name": "scale", "shape": [4], "dtype": "float32", "persistent": false})";
  const std::string copy =
      R"({"name": "beside/copies/0", "shape": [4, 4], "dtype": "bfloat16", "registered": false, "copy_of": )";
  const auto model = build_model(read_file(with(scale, scale + ", " + copy + "\"layers.1.weight\"}")), {});
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->buffers[0].copy_of, -1);
  EXPECT_EQ(model->buffers[1].copy_of, 1);
  EXPECT_EQ(error_of(with(scale, copy + "\"layers.2.weight\"}")),
            "/buffers/0/copy_of: There is no parameter \"layers.2.weight\".");
}

TEST(CapturedModel, ReadsWhetherTheLoopMarksItsLastMicroBatch) {
  EXPECT_FALSE(model_in_file(std::string(kFile)).says_last_micro_batch);
  EXPECT_TRUE(model_in_file(with("\"accumulation\": 2,", "\"accumulation\": 2, \"says_last_micro_batch\": true,"))
                  .says_last_micro_batch);
  EXPECT_TRUE(Model{}.says_last_micro_batch);
}

TEST(CapturedModel, HasTheSizesThatWereCaptured) {
  const ModelSpec spec = read_file();
  const auto other = build_model(spec, {.dimensions = {{"batch", 3}}});
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(to_string(other.error().front()),
            "dimension batch: Net was not captured with batch 3, width 4. It was with batch 2, width 4: take one of "
            "these, or capture the script with other sizes.");
  EXPECT_TRUE(build_model(spec, {.dimensions = {{"batch", 2}}}).has_value());
  EXPECT_FALSE(build_model(spec, {.dimensions = {{"seq", 2}}}).has_value());
}

TEST(CapturedModel, TrainsWhatItsScriptTrained) {
  const ModelSpec spec = read_file();
  EXPECT_TRUE(build_model(spec, {.trainable = {"layers.*"}}).has_value());
  const auto other = build_model(spec, {.frozen = {"layers.0.weight"}});
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(to_string(other.error().front()),
            "--freeze: The captured script trains \"layers.0.weight\"; another choice's memory was not recorded. Leave "
            "it out, or change the script and capture it again.");
}

// float32 parameters that were computed with in bfloat16: mixed precision, and nothing else was recorded.
TEST(CapturedModel, ComputesInAPrecisionThatWasRecorded) {
  std::string text(kFile);
  for (const std::string name : {"layers.0.weight", "layers.1.weight"}) {
    const std::string before = "\"" + name + "\", \"shape\": [4, 4], \"dtype\": \"bfloat16\"";
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos);
    text.replace(at + before.size() - 9, 8, "float32");
  }
  const ModelSpec spec = read_file(text);
  ASSERT_EQ(spec.recipes.size(), 1U);
  EXPECT_EQ(spec.dtype, Dtype::Float32);
  EXPECT_EQ(spec.recipes[0].mixed_precision.param_dtype, Dtype::BFloat16);
  EXPECT_EQ(spec.recipes[0].mixed_precision.reduce_dtype, Dtype::Float32);
}

TEST(CapturedModel, NotesAnOptimizerThatIsNotPredicted) {
  const ModelSpec spec = read_file(with(R"("kind": "sgd", "class": "SGD")", R"("kind": null, "class": "Muon")"));
  ASSERT_EQ(spec.notes.size(), 2U);
  EXPECT_EQ(spec.notes[1], "The script's optimizer, Muon, is not predicted: AdamW stands in for it.");
}

TEST(CapturedModel, NamesTheMatricesThatMuonUpdates) {
  std::string text = with(R"("momentum": 0.5, )",
                          R"("momentum": 0.5, "muon": {"nesterov": false, "ns_steps": 6, "steps_last": true}, )");
  const std::string_view first = R"("receives_gradient": true},)";
  text.replace(text.find(first), first.size(), R"("receives_gradient": true, "muon": true},)");
  const ModelSpec spec = read_file(text);
  ASSERT_EQ(spec.recipes.size(), 1U);
  EXPECT_EQ(spec.recipes[0].optimizer.kind, OptimizerKind::Sgd);
  EXPECT_EQ(spec.recipes[0].optimizer.muon, (MuonOptions{.nesterov = false, .ns_steps = 6, .steps_last = true}));
  const auto model = build_model(spec);
  ASSERT_TRUE(model.has_value());
  EXPECT_TRUE(model->parameters[0].is_muon);
  EXPECT_FALSE(model->parameters[1].is_muon);
  const std::string_view shape =
      R"("shape": [4, 4], "dtype": "bfloat16", "trainable": true, "receives_gradient": true, "muon")";
  text.replace(text.find(shape), shape.size(),
               R"("shape": [16], "dtype": "bfloat16", "trainable": true, "receives_gradient": true, "muon")");
  EXPECT_EQ(error_of(text), "/parameters/0: \"layers.0.weight\" is no matrix, and Muon updates only matrices.");
}

TEST(CapturedModel, NamesCollectivesOfTheScript) {
  EXPECT_TRUE(read_file().captured->own_collectives.empty());
  const ModelSpec spec = read_file(with(R"("limits": [)", R"("own_collectives": ["all_gather"], "limits": [)"));
  EXPECT_EQ(spec.captured->own_collectives, std::vector<std::string>{"all_gather"});
}

// What the walk needs and a recorder need not say.
TEST(CapturedModel, NamesOpsWithoutKnownCostAndCountsPackedWeights) {
  const Model known = model_in_file(std::string(kFile));
  EXPECT_TRUE(known.without_cost.empty());
  EXPECT_EQ(known.least_time_share, 1);
  const Model open =
      model_in_file(with(R"("limits": [)", R"("without_cost": ["mylib::scan"], "least_time_share": 0.5, "limits": [)"));
  EXPECT_EQ(open.without_cost, std::vector<std::string>{"mylib::scan"});
  EXPECT_EQ(open.least_time_share, 0.5);
  EXPECT_EQ(open.notes.at(1).substr(0, 34), "No cost is known of mylib::scan. A");
  // One of two weights of 16 numbers holds 64 in four bits each.
  EXPECT_EQ(num_parameters(known), 32);
  EXPECT_EQ(num_parameters(model_in_file(with(R"("trainable": true,)", R"("stands_for": 64, "trainable": true,)"))),
            80);
}

TEST(CapturedModel, AddsReleasesThatTheRecorderOmits) {
  using enum RecordedEvent::Kind;
  std::string text = with(R"(["release_input", 0], )", "");
  const std::string_view one = R"(["param_grad", 0, 32], ["alloc", 1, 16])";
  text.replace(text.find(one), one.size(), R"(["param_grad", 0, 32], ["param_grad", 0, 32], ["alloc", 1, 16])");
  const std::string_view added = R"(["add_grad", 0])";
  text.replace(text.find(added), added.size(), R"(["add_grad", 0], ["add_grad", 0])");
  const auto model = build_model(read_file(text));
  ASSERT_TRUE(model.has_value());
  std::vector<RecordedEvent::Kind> kinds;
  for (const RecordedEvent& event : model->blocks[0].recorded->tapes[0].backward[0]) kinds.push_back(event.kind);
  EXPECT_EQ(kinds, (std::vector{ParamGrad, AddGrad, ParamGrad, Alloc, ReleaseGrad, AddGrad, EmitGrad, ReleaseInput}));
}

TEST(CapturedModel, ReportsWhyTheCaptureFailed) {
  EXPECT_EQ(error_of(R"({"format_version": "1.0", "kind": "captured_model", "error": "The script never trained."})"),
            "/error: The script could not be captured: The script never trained. Capture the script again.");
}

TEST(CapturedModel, HandwrittenSpecCannotUseRecordedOps) {
  const auto spec = parse_model_spec(R"({"format_version": "1.0", "name": "n", "source": "s", "dtype": "float32",
    "dimensions": {"batch": 1}, "inputs": {"x": {"shape": ["batch", 4]}},
    "modules": [{"name": "m", "class": "M", "ops": [{"op": "recorded", "inputs": ["x"], "outputs": ["loss"]}]}]})",
                                     "n.json");
  ASSERT_FALSE(spec.has_value());
  EXPECT_NE(to_string(spec.error().front()).find("Unknown op \"recorded\"."), std::string::npos)
      << to_string(spec.error().front());
}

// Autocast: products in another dtype than the activations.
TEST(CapturedModel, ReadsTheDtypeOfItsProducts) {
  constexpr std::string_view kWork = R"("work": [[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]]})";
  const std::string with_dtype = std::string(kWork.substr(0, kWork.size() - 1)) + R"(, "arithmetic": ["float16"]})";
  const auto model = build_model(read_file(with(kWork, with_dtype)));
  ASSERT_TRUE(model.has_value()) << to_string(model.error().front());
  const Recording& recording = *model->blocks[0].recorded;
  EXPECT_EQ(recording.find(Dtype::BFloat16, false)->work[0].arithmetic, Dtype::Float16);
  EXPECT_EQ(recording.find(Dtype::BFloat16, true)->work[0].arithmetic, std::nullopt);
}

/// What is wrong with a damaged file, and where.
TEST(CapturedModel, RefusesTapesThatCannotBeWalked) {
  struct Case {
    std::string_view before;
    std::string_view after;
    std::string_view error;
  };
  const std::string again = " Capture the script again.";
  for (const Case& c : {
           Case{R"(["alloc", 0, 16], ["workspace", 0])", R"(["alloc", 0, 16], ["alloc", 0, 16])",
                "/points/0/blocks/0/tapes/0/forward/0/1: Storage 0 is there already."},
           Case{R"(["alloc", 2, 16], ["free", 2])", R"(["alloc", 2, 16])",
                "/points/0/blocks/0/tapes/1/backward: Storage 2 is never freed."},
           Case{R"(["alloc", 2, 16], ["free", 2])", R"(["alloc", 2, 16], ["free", 2], ["free", 2])",
                "/points/0/blocks/0/tapes/1/recompute/2: Storage 2 is not there."},
           Case{R"(["alloc", 2, 16], ["free", 2])", R"(["alloc", 2, 16], ["free", 2], ["free", 0])",
                "/points/0/blocks/0/tapes/1/recompute/2: Storage 0 is an output, which others hold."},
           Case{R"(["emit_grad", 1, 0]])", R"(["emit_grad", 1, 0], ["free", 1]])",
                "/points/0/blocks/0/tapes/0/backward/0/6: Storage 1 was handed out before."},
           Case{R"(["release_input", 0], )", R"(["release_input", 0], ["hold_input", 0], )",
                "/points/0/blocks/0/tapes/0/backward/0/3: Input 0 was released before."},
           Case{R"(["workspace", 0]])", R"(["emit_grad", 0, 0]])",
                "/points/0/blocks/0/tapes/0/forward/0/1: A gradient is handed out before the backward."},
           Case{R"(["add_grad", 0], )", R"()",
                "/points/0/blocks/0/tapes/0/backward: The gradient of parameter 0 never reaches it."},
           Case{R"(["alloc", 0, 16], ["workspace", 0])", R"(["workspace", 0])",
                "/points/0/blocks/0/tapes/0/outputs/0: The forward does not make storage 0."},
           Case{R"("outputs": [{"storage": 0, "bytes": 16, "kept": false}])",
                R"("outputs": [{"storage": 0, "bytes": 16, "kept": true}])",
                "/points/0/blocks/0/tapes/0/backward: Output storage 0 is kept and never released."},
       }) {
    EXPECT_EQ(error_of(with(c.before, c.after)), std::string(c.error) + again) << c.after;
  }
}

TEST(CapturedModel, RefusesIndicesOutOfRange) {
  struct Case {
    std::string_view before;
    std::string_view after;
    std::string_view error;
  };
  for (const Case& c : {
           Case{R"(["alloc", 1, 16])", R"(["alloc", 2, 16])", "/points/0/blocks/0/tapes/0/backward/0/1/1: "},
           Case{R"(["param_grad", 0, 32])", R"(["param_grad", 1, 32])", "/points/0/blocks/0/tapes/0/backward/0/0/1: "},
           Case{R"(["alloc", 1, 16])", R"(["alloc", 1, -16])", "/points/0/blocks/0/tapes/0/backward/0/1/2: "},
           Case{R"(["workspace", 0])", R"(["workspce", 0])",
                "/points/0/blocks/0/tapes/0/forward/0/1/0: Unknown event \"workspce\". Did you mean \"workspace\"?"},
           Case{R"("storage_op": [0, 0])", R"("storage_op": [0, 1])", "/points/0/blocks/0/tapes/0/storage_op/1: "},
           Case{R"("loss": 3)", R"("loss": 9)", "/points/0/loss: "},
           Case{R"("outputs": [1], "repeated": true)", R"("outputs": [0], "repeated": true)",
                "/points/0/calls/0/outputs: Value 0 is made twice."},
           Case{R"("module": 3, "modules": [3])", R"("module": 3, "modules": [2])",
                "/points/0/calls/1/modules: A module is not below that of the call."},
           Case{R"("inputs": [0], "outputs": [1], "repeated": true)",
                R"("inputs": [2], "outputs": [1], "repeated": true)",
                "/points/0/calls/0/inputs: No call before makes value 2."},
           Case{R"("name": "layers.0", "class")", R"("name": "other.0", "class")",
                "/modules/2: \"other.0\" does not follow its parent or one of its siblings."},
           Case{R"("trainable": true, "receives_gradient": true)", R"("trainable": true, "receives_gradient": false)",
                "/points/0/calls: A call makes a gradient of \"layers.0.weight\", which receives none."},
           Case{R"("backward": true, "saves": true)", R"("backward": false, "saves": true)",
                "/points/0/calls/0: Op 0 (aten::mm) of its block has a backward, and no gradient reaches it."},
           Case{R"([[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]])", R"([[64]])",
                "/points/0/blocks/0/tapes/0/work/0: The work of an op is 10 numbers, not 1."},
           Case{R"([[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]]})", R"([[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]], "arithmetic": []})",
                "/points/0/blocks/0/tapes/0/arithmetic: It has 0 entries where there must be 1."},
           Case{R"([[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]]})",
                R"([[64, 0, 0, 0, 1, 128, 0, 0, 0, 2]], "arithmetic": ["int8"]})",
                "/points/0/blocks/0/tapes/0/arithmetic/0: "},
           Case{R"("format_version": "1.0")", R"("format_version": "2.0")", "/format_version: "},
       }) {
    EXPECT_TRUE(error_of(with(c.before, c.after)).starts_with(c.error))
        << c.after << ": " << error_of(with(c.before, c.after));
  }
}

}  // namespace
}  // namespace fsdp
