// Reports: what is written is read back, and the schema says something of every key. tests/schemas_test.py compares the
// schema with what the program reads.

#include "core/report/report_json.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "core/base/json_document.h"
#include "core/report/report_reader.h"

namespace fsdp {
namespace {

using namespace literals;

constexpr MemoryPeaks kPeaks{.live = 90_B, .allocated = 100_B, .reserved = 200_B, .device = 300_B};

/// A report in which nothing is as it is made.
StepReport predicted_report() {
  StepReport report{.runtime = "pytorch-fsdp2", .runtime_version = "2.11.0", .verdict = Verdict::DoesNotFit};
  report.model = "m";
  report.parameters = 100;
  report.trainable_parameters = 90;
  report.receives_gradient_parameters = 80;
  report.buffers = 7_B;
  report.gpu = "T4";
  report.gpus_per_node = 4;
  report.nodes = 2;
  report.assumptions = {"One."};
  report.memory = {.rank = 3, .budget = 1000_B, .margin = 50_B, .peaks = kPeaks};
  report.memory.peak = {StepPhase::Backward, "Backward a", "a", "mlp linear"};
  report.memory.at_peak[static_cast<std::size_t>(MemoryCategory::Activation)] = 60_B;
  report.memory.live_at_peak = {{"a: output", MemoryCategory::Activation, 2, 60_B}};
  report.memory.device_terms = {{"reserved", 200_B, Provenance::Derived, "the plan"}};
  report.memory.phases = {{RunPhase::Initialization, {1_B, 2_B, 3_B, 4_B}},
                          {RunPhase::SteadyStep, kPeaks, {{StepPhase::Forward, 80_B}, {StepPhase::Backward, 90_B}}}};
  report.memory.tightness = Tightness::Streams;
  report.memory.cache_flushes = -1;
  report.memory.step_flushes = 2;
  report.memory.flush_time = Seconds(0.5);
  report.memory.host_pinned = 5_B;
  report.memory.host = HostMemory{64_B, 40_B, 30_B, 2_B, {{"shards", 40_B, Provenance::Assumed, "a guess"}}};
  report.memory.live_over_step = {10_B, 90_B, 20_B};
  report.memory.phase_marks = {{StepPhase::Forward, 0}, {StepPhase::Backward, 1}};
  report.traffic.totals[0] = {.count = 10, .payload = 1000_B, .sent_per_rank = 750_B};
  report.traffic.totals[static_cast<std::size_t>(CollectiveKind::Send)] = {2, 64_B, 64_B};
  report.traffic.sent_inside_node = 700_B;
  report.traffic.sent_between_nodes = 50_B;
  Collective reduce{CollectiveKind::ReduceScatter, "a", StepPhase::Backward, Dtype::Float16, 50, 100_B};
  reduce.group = MeshDimension::Replicate;
  reduce.group_size = 2;
  reduce.reduce_op = ReduceOp::Sum;
  reduce.micro_batch = 1;
  reduce.time = Seconds(0.25);
  reduce.exposed = Seconds(0.125);
  reduce.live[static_cast<std::size_t>(MemoryCategory::Temp)] = 12_B;
  reduce.first_step_live = 13_B;
  report.traffic.collectives = {reduce};
  report.time = {Seconds(1.5), Seconds(1), Seconds(0.25), Seconds(0.1), 1024.5, 0.4, Seconds(1.25), Seconds(2)};
  return report;
}

Rehearsal seen() {
  const PythonFrame frame{"train.py", 41, "main"};
  Rehearsal seen{.measured_on = "GPU", .command = {"python", "train.py"}, .end = "out_of_memory"};
  seen.error = ScriptError{"torch.OutOfMemoryError", "Out.", "Traceback"};
  seen.failed = FailedAllocation{64_B, StepPhase::Backward, 2, "mlp", 8_B, frame, {frame, {"other.py", 7, ""}}};
  seen.timing_decides = true;
  seen.python = "3.11.2";
  seen.torch = "2.11.0+cu130";
  seen.cuda = "13.0";
  seen.packages = {{"transformers", "5.0"}};
  seen.steps = 3;
  seen.rank = 1;
  seen.ranks = {{1, false, 100_B, {150_B, 200_B}, {250_B, 300_B}}};
  seen.unplayed = {{2, "Its script failed."}};
  seen.both_bounds = true;
  seen.out_of_memory_errors = 4;
  seen.at_end_requested = 11_B;
  seen.at_end_allocated = 12_B;
  AppliedWrapper wrapper{"FSDP2", "Llama", "FSDPModule", "2.11.0", "FULL_SHARD", 3, {{"a", "Block", 9, 90}}};
  wrapper.param_dtype = "torch.bfloat16";
  wrapper.reduce_dtype = wrapper.buffer_dtype = "torch.float32";
  wrapper.reshard_after_forward = "true";
  wrapper.offload = true;
  wrapper.autocast = {"torch.bfloat16"};
  seen.wrappers = {wrapper, {.name = "plain", .class_name = "none"}};
  seen.parameter_dtypes = {{"torch.float32", 100}};
  seen.optimizers = {{"AdamW", true, false, 9}, {"SGD", std::nullopt, std::nullopt, 1}};
  seen.techniques = {"accumulation over 4 backwards"};
  seen.categories = {{"parameters", 40_B}};
  seen.peak_at = frame;
  seen.peak_stack = {frame};
  seen.allocations = {{frame, "autograd", 2, 30_B}, {{}, "", 5, 3_B}};
  seen.warnings = {{"one_unit", "All in one unit.", "train.py", 9}, {"untied_weights", "Untied.", "", 0}};
  seen.limits = {{{"nonzero", "train.py", 5, 2, true}}, {"cublasFoo"}, 1, 2, 3_B, "balanced", true, true, true};
  return seen;
}

/// What a reader makes of the file.
StepReport read_back(const StepReport& report) {
  const Result<JsonDocument> document = parse_json(to_json(report), "r.json");
  EXPECT_TRUE(document.has_value());
  const Result<StepReport> again = read_report(*document);
  EXPECT_TRUE(again.has_value()) << to_string(again.error().front());
  return again ? *again : StepReport{};
}

TEST(ReportJson, PredictionReadsBackAsWritten) {
  EXPECT_EQ(read_back(predicted_report()), predicted_report());
}

TEST(ReportJson, UnknownValuesAreOmittedAndReadBackAsUnknown) {
  StepReport report = predicted_report();
  report.receives_gradient_parameters = -1;
  report.buffers = Bytes(-1);
  for (MemoryPeaks* peaks : {&report.memory.peaks, &report.memory.phases[0].peaks}) {
    peaks->allocated = peaks->reserved = peaks->device = Bytes(-1);
  }
  report.memory.host->budget.reset();
  report.traffic.sent_inside_node = report.traffic.sent_between_nodes = Bytes(-1);
  report.traffic.collectives[0].reduce_op = ReduceOp::None;
  report.traffic.collectives[0].micro_batch = -1;
  report.traffic.collectives[0].time = report.traffic.collectives[0].exposed = Seconds(0);
  report.time = {};
  EXPECT_EQ(read_back(report), report);
}

TEST(ReportJson, RehearsalReadsBackAsWritten) {
  StepReport report = predicted_report();
  report.kind = "measured";
  report.rehearsal = seen();
  // What only a prediction knows.
  report.memory.rank = 0;
  report.memory.step_flushes = 0;
  report.memory.flush_time = Seconds(0);
  report.memory.at_peak = {};
  report.traffic.collectives[0].live = {};
  report.traffic.collectives[0].first_step_live = std::nullopt;
  EXPECT_EQ(read_back(report), report);
  report.rehearsal->error.reset();
  report.rehearsal->failed.reset();
  report.rehearsal->peak_at = {};
  report.rehearsal->end = "steps_reached";
  EXPECT_EQ(read_back(report), report);
}

TEST(ReportJson, NonFiniteNumberIsWrittenAsNull) {
  ReportAdditions additions;
  additions.steps = {{.number = 1, .loss = std::numeric_limits<double>::quiet_NaN(), .live = 1_B}};
  const std::string text = to_json(predicted_report(), additions);
  EXPECT_NE(text.find(R"("loss": null, "gradient_norm": 0)"), std::string::npos) << text;
  const Result<JsonDocument> document = parse_json(text, "r.json");
  ASSERT_TRUE(document.has_value());
  EXPECT_TRUE(read_report(*document).has_value());
}

TEST(ReportJson, UnmeasuredValuesAreOmittedAndNeverZero) {
  StepReport report = predicted_report();
  report.kind = "measured";
  report.memory.at_peak = {};
  report.time.compute = report.time.exposed_communication = report.time.optimizer = Seconds(-1);
  report.traffic.collectives.front().group_size = -1;
  ReportAdditions additions;
  additions.steps.emplace().push_back({.number = 1});
  const std::string text = to_json(report, additions);
  const auto document = parse_json(text, "r.json");
  ASSERT_TRUE(document);
  for (const char* key : {"compute", "exposed_communication", "optimizer"}) {
    EXPECT_EQ(document->root.find("time")->find(key), nullptr) << key;
  }
  EXPECT_EQ(document->root.find("memory")->find("at_peak"), nullptr);
  EXPECT_EQ(text.find("\"live_peak_bytes\"", text.find("\"steps\"")), std::string::npos);
  const Result<StepReport> read = read_report(*document);
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_LT(read->time.compute, Seconds(0));
  EXPECT_LT(read->time.exposed_communication, Seconds(0));
  EXPECT_LT(read->traffic.collectives.front().group_size, 0);
  EXPECT_EQ(read->time.step, report.time.step);
}

TEST(ReportJson, GroupSizeIsFromOneToTheLargestInt) {
  for (const std::string ranks : {"0", "2147483648"}) {
    std::string text = to_json(predicted_report());
    const std::string group = "\"group_size\": 2";
    text.replace(text.find(group), group.size(), "\"group_size\": " + ranks);
    const Result<StepReport> report = read_report(*parse_json(text, "r.json"));
    ASSERT_FALSE(report.has_value());
    EXPECT_TRUE(report.error().front().where.ends_with("/traffic/collectives/0/group_size"));
    EXPECT_EQ(report.error().front().what, ranks + " is out of range.");
  }
}

TEST(ReportJson, EveryKeyOfTheSchemaIsDescribed) {
  const auto schema = parse_json(report_schema(), "schema");
  ASSERT_TRUE(schema);
  std::size_t described = 0;
  const std::function<void(const std::string&, const JsonValue&)> look = [&](const std::string& of,
                                                                             const JsonValue& value) {
    if (const JsonValue* properties = value.find("properties")) {
      for (const JsonMember& member : properties->members) {
        const JsonValue* text = member.value.find("description");
        EXPECT_TRUE(text != nullptr && !text->text.empty()) << of << "/" << member.key;
        ++described;
        look(of + "/" + member.key, member.value);
      }
    }
    for (const char* inside : {"items", "additionalProperties"}) {
      if (const JsonValue* inner = value.find(inside)) look(of, *inner);
    }
  };
  look("", schema->root);
  EXPECT_GT(described, 200);
}

TEST(ReportReader, AcceptsPhaseNamesOfThePreviousVersion) {
  std::string text = to_json(predicted_report());
  const auto spell = [&](const std::string& before, const std::string& after) {
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, before.size(), after);
  };
  spell("\"initialization\"", "\"initialisation\"");
  spell("\"phase\": \"backward\"", "\"phase\": \"initialisation\"");
  const Result<JsonDocument> document = parse_json(text, "r.json");
  ASSERT_TRUE(document.has_value());
  const Result<StepReport> report = read_report(*document);
  ASSERT_TRUE(report.has_value()) << to_string(report.error().front());
  EXPECT_EQ(report->memory.phases.front().phase, RunPhase::Initialization);
  EXPECT_EQ(report->memory.peak.phase, StepPhase::Initialization);
}

TEST(ReportReader, UnknownPhaseIsAnErrorAtItsPlace) {
  std::string text = to_json(predicted_report());
  const auto spell = [&](const std::string& before, const std::string& after) {
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, before.size(), after);
  };
  spell("\"phase\": \"backward\"", "\"phase\": \"bakward\"");
  spell("\"steady_step\": {", "\"steady_stap\": {");
  const Result<JsonDocument> document = parse_json(text, "r.json");
  ASSERT_TRUE(document.has_value());
  const Result<StepReport> report = read_report(*document);
  ASSERT_FALSE(report.has_value());
  ASSERT_EQ(report.error().size(), 2u);
  EXPECT_EQ(report.error()[0].what, "Unknown phase \"bakward\".");
  EXPECT_EQ(report.error()[0].hint, "Did you mean \"backward\"?");
  EXPECT_EQ(report.error()[1].what, "Unknown phase \"steady_stap\".");
}

}  // namespace
}  // namespace fsdp
