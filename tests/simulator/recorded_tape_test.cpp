// A recording of what the rules say predicts what the rules predict, to the byte.

#include "simulator/ops/tape_recorded.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/files.h"
#include "core/spec/recording_check.h"
#include "simulator/predictor.h"
#include "tests/support/prepared_plan.h"
#include "tests/support/recorded_model.h"
#include "tests/support/small_models.h"

namespace fsdp::simulator {
namespace {

Model model_of_spec(const ModelSpec& spec) {
  auto model = build_model(spec);
  if (!model) ADD_FAILURE() << to_string(model.error().front());
  return model.value_or(Model{});
}

Plan plan_in(Dtype parameters, std::optional<Dtype> computed, const Mesh& mesh) {
  Plan plan;
  plan.mesh = mesh;
  plan.parameter_dtype = parameters;
  plan.mixed_precision.param_dtype = computed;
  if (computed) plan.mixed_precision.reduce_dtype = Dtype::Float32;
  return plan;
}

Plan in_units(Plan plan, const Model& model, ReshardAfterForward reshard = {}) {
  for (const Call& call : model.calls) {
    if (call.repeated) plan.units.push_back({{model.modules[call.module].name}, reshard});
  }
  plan.units.push_back({{""}, {}});
  return plan;
}

Plan checkpointed(Plan plan, const Model& model, std::size_t blocks) {
  for (const Call& call : model.calls) {
    if (call.repeated && plan.checkpointing.entries.size() < blocks) {
      plan.checkpointing.entries.push_back({model.modules[call.module].name, CheckpointMode::Full});
    }
  }
  return plan;
}

/// Plans that differ in all that the walk of a tape depends on.
std::vector<Plan> plans_for(const Model& model) {
  const Plan sharded = plan_in(Dtype::Float32, Dtype::BFloat16, {1, 4});
  const Plan replicated = plan_in(Dtype::Float32, std::nullopt, {4, 1});
  std::vector<Plan> plans = {in_units(sharded, model), in_units(replicated, model)};
  plans.push_back(in_units(sharded, model, {ReshardAfterForward::Kind::Never, 0}));
  plans.push_back(checkpointed(in_units(sharded, model), model, 2));
  plans.push_back(checkpointed(in_units(replicated, model), model, 100));
  plans.push_back(in_units(plan_in(Dtype::Float32, Dtype::BFloat16, {2, 2}), model));
  for (const std::int64_t accumulation : {2, 5}) {
    for (const bool every : {true, false}) {
      Plan plan = checkpointed(in_units(sharded, model), model, 1);
      plan.accumulation = accumulation;
      plan.sync_every_micro_batch = every;
      plans.push_back(plan);
    }
  }
  Plan root_only = sharded;
  root_only.units.push_back({{""}, {}});
  plans.push_back(root_only);
  Plan offloaded = in_units(sharded, model);
  offloaded.cpu_offload = true;
  plans.push_back(offloaded);
  return plans;
}

void expect_equal_predictions(const Model& model) {
  const Mesh mesh{1, 4};
  Cluster cluster = cluster_of(mesh, 90);
  cluster.host_link.bandwidth.value = BytesPerSecond(1e10);
  const std::vector<Plan> plans = plans_for(model);
  const Model recorded = recorded_model(model, {plans[0], plans[1]}, cluster.gpu);
  for (const Block& block : recorded.blocks) {
    for (const RecordedTape& tape : block.recorded->tapes) {
      const auto mistake = check_recording(block, tape);
      EXPECT_FALSE(mistake) << block.kind << ": " << mistake->part << " " << mistake->op << ": " << mistake->what;
    }
  }
  Predictor by_rules(model, cluster);
  Predictor by_recording(recorded, cluster);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "plan " << i);
    const auto wanted = by_rules.report(plans[i]);
    const auto found = by_recording.report(plans[i]);
    ASSERT_TRUE(wanted.has_value()) << to_string(wanted.error().front());
    ASSERT_TRUE(found.has_value()) << to_string(found.error().front());
    EXPECT_GT(found->memory.peaks.live, Bytes(1'000'000));
    EXPECT_EQ(found->memory.peaks, wanted->memory.peaks);
    EXPECT_EQ(found->memory.phases, wanted->memory.phases);
    EXPECT_EQ(found->memory.at_peak, wanted->memory.at_peak);
    EXPECT_EQ(found->traffic, wanted->traffic);
    EXPECT_EQ(found->time, wanted->time);
  }
}

// An op that nobody knows takes the upper end away; code that runs compiled may take half of the time.
TEST(RecordedTape, UnknownCostLeavesTheTimeRangeOpen) {
  const Model known = model_of_spec(planner::small_transformer());
  const Plan plan = in_units(plan_in(Dtype::Float32, Dtype::BFloat16, {1, 1}), known);
  Model open = known;
  open.without_cost = {"mylib::scan"};
  open.least_time_share = .5;
  const auto time = [&](const Model& model) { return Predictor(model, cluster_of({1, 1}, 90)).report(plan)->time; };
  EXPECT_GT(time(known).high, time(known).step);
  EXPECT_TRUE(time(known).without_cost.empty());
  EXPECT_EQ(time(open).step, time(known).step);
  EXPECT_EQ(time(open).high, Seconds(0));
  EXPECT_EQ(time(open).without_cost, open.without_cost);
  // Kernels may take half of the time; what the step waits for collectives does not become shorter.
  Model closer = open;
  closer.least_time_share = .25;
  const Seconds saved = time(known).low - time(open).low;
  EXPECT_DOUBLE_EQ(saved.count(), 2 * (time(open).low - time(closer).low).count());
  EXPECT_LE(saved, .5 * time(known).low);
  EXPECT_GE(saved, (.5 - 1e-9) * (time(known).low - time(known).exposed_communication));
}

TEST(RecordedTape, PredictsADecoderAsItsRulesDo) {
  expect_equal_predictions(model_of_spec(planner::small_transformer()));
}

TEST(RecordedTape, PredictsTiedWeightsAsTheirRulesDo) {
  expect_equal_predictions(model_of_spec(planner::small_transformer({.tied = true})));
}

TEST(RecordedTape, PredictsAMixtureAsItsRulesDo) {
  expect_equal_predictions(model_of_spec(planner::small_transformer({.experts = 4})));
}

TEST(RecordedTape, PredictsAnEncoderAndADecoderAsTheirRulesDo) {
  expect_equal_predictions(model_of_spec(planner::small_encoder_decoder()));
}

// The embedding's backward needs so much that it is the peak. What the layers have emitted is there, or was used up.
TEST(RecordedTape, FreesConsumedGradients) {
  const Plan plan = plan_in(Dtype::BFloat16, std::nullopt, {1, 4});
  const Cluster cluster = cluster_of({1, 4}, 90);
  const Model model = model_of_spec(planner::small_transformer());
  const auto live_of = [&](bool drops) {
    Model recorded = recorded_model(model, {plan}, cluster.gpu);
    for (Block& block : recorded.blocks) {
      RecordedTape& tape = block.recorded->tapes.front();
      if (block.kind == "token_embedding") {
        const int storage = static_cast<int>(tape.storage_op.size());
        tape.storage_op.push_back(0);
        auto& events = tape.backward.front();
        events.insert(events.begin(),
                      {RecordedEvent{.kind = RecordedEvent::Kind::Alloc, .index = storage, .value = 1 << 26},
                       RecordedEvent{.kind = RecordedEvent::Kind::Free, .index = storage}});
      }
      if (block.kind == "decoder_layer" && drops) {
        tape.backward.front().push_back({.kind = RecordedEvent::Kind::DropGrad, .index = 0});
      }
    }
    const auto report = Predictor(recorded, cluster).report(in_units(plan, model));
    return report ? report->memory.peaks.live : Bytes(0);
  };
  // batch 2 x seq 64 x hidden 64 x 2 bytes.
  EXPECT_EQ(live_of(false) - live_of(true), Bytes(2 * 64 * 64 * 2));
}

// A second step begins with what the first one left, and so does its peak unless that goes before.
TEST(RecordedTape, CarriesVariablesIntoTheNextStep) {
  constexpr std::int64_t kHeld = 1 << 26;
  const Plan plan = plan_in(Dtype::BFloat16, std::nullopt, {1, 4});
  const Cluster cluster = cluster_of({1, 4}, 90);
  const Model model = model_of_spec(planner::small_transformer());
  const auto live_of = [&](bool carries, bool drops) {
    Model recorded = recorded_model(model, {plan}, cluster.gpu);
    for (Block& block : recorded.blocks) {
      if (block.kind != "token_embedding") continue;
      RecordedTape& tape = block.recorded->tapes.front();
      const int storage = static_cast<int>(tape.storage_op.size());
      tape.storage_op.push_back(0);
      auto& events = tape.forward.front();
      if (drops) events.insert(events.begin(), {.kind = RecordedEvent::Kind::DropCarried, .index = 0});
      if (carries) events.push_back({.kind = RecordedEvent::Kind::Carry, .index = storage, .value = kHeld});
    }
    const auto report = Predictor(recorded, cluster).report(in_units(plan, model));
    return report ? report->memory.peaks.live : Bytes(0);
  };
  EXPECT_EQ(live_of(true, false) - live_of(false, false), Bytes(kHeld));
  EXPECT_LT(live_of(true, true), live_of(true, false));
}

// Logits of 64 MiB that a variable holds into the next step, which lets them go before its own.
TEST(RecordedTape, CountsCarriedTensorsOnce) {
  constexpr std::int64_t kHeld = 1 << 26;
  const Plan plan = plan_in(Dtype::BFloat16, std::nullopt, {1, 4});
  const Cluster cluster = cluster_of({1, 4}, 90);
  const Model model = model_of_spec(planner::small_transformer());
  const auto peaks_of = [&](bool is_held, bool carries) {
    Model recorded = recorded_model(model, {plan}, cluster.gpu);
    for (Block& block : recorded.blocks) {
      if (block.kind != "token_embedding") continue;
      RecordedTape& tape = block.recorded->tapes.front();
      const int storage = static_cast<int>(tape.storage_op.size());
      tape.storage_op.insert(tape.storage_op.end(), {0, 0});
      auto& events = tape.forward.front();
      if (carries) events.insert(events.begin(), {.kind = RecordedEvent::Kind::DropCarried, .index = 0});
      if (is_held) events.push_back({.kind = RecordedEvent::Kind::Alloc, .index = storage, .value = kHeld});
      if (is_held) events.push_back({.kind = RecordedEvent::Kind::Hold, .index = storage});
      if (carries) events.push_back({.kind = RecordedEvent::Kind::Carry, .index = storage + 1, .value = kHeld});
    }
    const auto report = Predictor(recorded, cluster).report(in_units(plan, model));
    return report ? report->memory.peaks : MemoryPeaks{};
  };
  // Dropped before what follows it, so that there is never more than one.
  EXPECT_EQ(peaks_of(true, true).live, peaks_of(true, false).live);
  EXPECT_EQ(peaks_of(true, true).reserved, peaks_of(true, false).reserved);
  EXPECT_GE(peaks_of(true, true).live, peaks_of(false, false).live + Bytes(kHeld));
}

// Weights are sharded over four, 256 x 64 numbers of the table for one; a copy of it is a fourth of it.
TEST(RecordedTape, PredictsCopiesOfParametersLikeParameters) {
  const Cluster cluster = cluster_of({1, 4}, 90);
  const Model model = model_of_spec(planner::small_transformer());
  const auto live_of = [&](Mesh mesh, int copy_of) {
    const Plan plan = plan_in(Dtype::BFloat16, std::nullopt, mesh);
    Model recorded = recorded_model(model, {plan}, cluster.gpu);
    const Parameter& table = recorded.parameters.front();
    if (copy_of >= -1) {
      recorded.buffers.push_back({.name = "beside/copies/0",
                                  .shape = table.shape,
                                  .dtype = table.dtype,
                                  .registered = false,
                                  .copy_of = copy_of});
    }
    const auto report = Predictor(recorded, cluster).report(in_units(plan, model));
    return report ? report->memory.peaks.live : Bytes(0);
  };
  const Mesh sharded{1, 4};
  const Mesh replicated{4, 1};
  const std::int64_t whole = num_elements(model.parameters.front().shape) * 2;
  EXPECT_EQ(live_of(sharded, -1) - live_of(sharded, -2), Bytes(whole));
  EXPECT_EQ(live_of(sharded, 0) - live_of(sharded, -2), Bytes(whole / 4));
  EXPECT_EQ(live_of(replicated, 0) - live_of(replicated, -2), Bytes(whole));
}

/// A capture of micro-batches of one, two and four sequences.
std::vector<Model> captured_points() {
  std::vector<Model> points;
  for (const int batch : {2, 1, 4}) {
    const Model model = model_of_spec(planner::small_transformer({.layers = 4, .batch = batch}));
    const Plan plan = plan_in(Dtype::BFloat16, std::nullopt, {1, 4});
    points.push_back(recorded_model(model, {plan}, cluster_of({1, 4}, 90).gpu));
  }
  return points;
}

// The command's tests plan this file. After a change of the rules: copy the new one from where the message says.
TEST(RecordedTape, MatchesTheGoldenCapture) {
  const std::string text = captured_text(captured_points());
  const auto golden = read_text_file("tests/golden/captured/small_decoder.json");
  if (golden && *golden == text) return;
  const std::string path = testing::TempDir() + "small_decoder.json";
  std::ofstream(path) << text;
  ADD_FAILURE() << "tests/golden/captured/small_decoder.json is another text than " << path;
}

TEST(RecordedTape, ReadsBackAsWritten) {
  const std::vector<Model> points = captured_points();
  const auto spec = parse_model_spec(captured_text(points), "small.model.json");
  ASSERT_TRUE(spec.has_value()) << to_string(spec.error().front());
  for (const Model& point : points) {
    const auto model = build_model(*spec, {.dimensions = point.dimensions});
    ASSERT_TRUE(model.has_value()) << to_string(model.error().front());
    EXPECT_EQ(model->modules, point.modules);
    // A captured model says nothing of what parameters begin with, so that they get what such specs mean.
    std::vector<Parameter> parameters = point.parameters;
    ASSERT_EQ(model->parameters.size(), parameters.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].initial = model->parameters[p].initial;
      parameters[p].is_muon = false;  // A script without Muon marks no matrices.
    }
    EXPECT_EQ(model->parameters, parameters);
    EXPECT_EQ(model->values, point.values);
    EXPECT_EQ(model->blocks, point.blocks);
    EXPECT_EQ(model->calls, point.calls);
    EXPECT_EQ(model->stacks, point.stacks);
    EXPECT_EQ(model->tokens_per_step, point.tokens_per_step);
    EXPECT_EQ(model->loss, point.loss);
  }
}

// What a recorded op has is not a rule: without its recording there is nothing.
TEST(RecordedTape, IsRefusedOnCpuMachines) {
  const Model model = captured_points().front();
  Cluster cpus = cluster_of({1, 4}, 0);
  Predictor predictor(model, cpus);
  const auto report = predictor.report(in_units(plan_in(Dtype::BFloat16, std::nullopt, {1, 4}), model));
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(to_string(report.error().front()),
            "model: A captured model was recorded on a GPU; the CPU kernels' memory is not known. Plan it for GPUs.");
}

TEST(RecordedTape, RefusesUnrecordedSettings) {
  const Model model = model_of_spec(planner::small_transformer());
  const Cluster cluster = cluster_of({1, 4}, 90);
  const Plan sharded = in_units(plan_in(Dtype::Float32, Dtype::BFloat16, {1, 4}), model);
  Predictor predictor(recorded_model(model, {sharded}, cluster.gpu), cluster);
  const auto error_of = [&](const Plan& plan) {
    const auto report = predictor.report(plan);
    return report ? std::string("none") : to_string(report.error().front());
  };
  EXPECT_EQ(error_of(in_units(plan_in(Dtype::Float32, std::nullopt, {1, 4}), model)),
            "model: The capture has no recording in float32. It has bfloat16: take that for parameters or mixed "
            "precision, or capture the script again.");
  Plan selective = checkpointed(sharded, model, 1);
  selective.checkpointing.entries.front().mode = CheckpointMode::Selective;
  EXPECT_EQ(error_of(selective),
            "model: The capture has no recording with selective checkpointing in bfloat16. Take another "
            "--activation-checkpointing, or capture the script again.");
  Plan not_early = checkpointed(sharded, model, 1);
  not_early.checkpointing.early_stop = false;
  EXPECT_EQ(error_of(not_early),
            "model: The capture has no recording with checkpointing that does not stop early in bfloat16. Take another "
            "--activation-checkpointing, or capture the script again.");
  Plan other_code = sharded;
  other_code.runtime.implementations.keep_logits = true;
  EXPECT_EQ(error_of(other_code),
            "model: A captured model runs the script's own code, which no other implementations can replace. Leave "
            "--flavor, or runtime/implementations of the plan, out; change the script and capture it again.");
}

}  // namespace
}  // namespace fsdp::simulator
