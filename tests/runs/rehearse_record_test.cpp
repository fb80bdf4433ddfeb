#include "runs/rehearse_record.h"

#include <gtest/gtest.h>

#include "tests/support/recorded_rank.h"

namespace fsdp::runs {
namespace {

Result<RehearsalRecord> read(const std::string& text) {
  const Result<JsonDocument> document = parse_json(text, "r.json");
  if (!document) return tl::unexpected(document.error());
  return read_record(*document);
}

std::string errors_of_record(const std::string& text) {
  const auto record = read(text);
  std::string lines;
  if (record) return lines;
  for (const Error& error : record.error()) lines += to_string(error) + "\n";
  return lines;
}

TEST(RehearseRecord, IsReadWhole) {
  const auto record = read(recorded_rank());
  ASSERT_TRUE(record) << to_string(record.error().front());
  EXPECT_EQ(record->end, "steps_reached");
  EXPECT_EQ(record->job.world_size, 8);
  EXPECT_EQ(record->seconds, Seconds(4.5));
  EXPECT_EQ(record->seen.torch, "2.11.0+cu130");
  EXPECT_EQ(record->seen.packages, (std::vector<Package>{{"transformers", "5.23.0"}}));
  EXPECT_EQ(record->memory.peaks,
            (MemoryPeaks{Bytes(2000000000), Bytes(2147483648), Bytes(3221225472), Bytes(4294967296)}));
  ASSERT_EQ(record->memory.phases.size(), 2);
  EXPECT_EQ(record->memory.phases[1].peaks, record->memory.peaks);
  EXPECT_EQ(record->memory.peak,
            (PeakMoment{.phase = StepPhase::Backward, .instruction = "step 2", .unit = "", .op = "layers.3.mlp"}));
  EXPECT_EQ(record->seen.peak_stack[1], (PythonFrame{"train.py", 41, "main"}));
  EXPECT_EQ(record->seen.allocations[0], (AllocationSite{{"train.py", 41, "main"}, "autograd", 3, Bytes(1500000000)}));
  EXPECT_EQ(record->seen.peak_at, (PythonFrame{"train.py", 41, "main"}));
  EXPECT_EQ(record->memory.live_over_step, (std::vector<Bytes>{Bytes(1), Bytes(5), Bytes(3)}));
  EXPECT_EQ(record->memory.phase_marks[1], (PhaseMark{StepPhase::Backward, 2}));
  EXPECT_EQ(record->parameters, 1000);
}

TEST(RehearseRecord, TranslatesAppliedSettings) {
  const auto record = read(recorded_rank());
  ASSERT_TRUE(record);
  const AppliedWrapper& wrapper = record->seen.wrappers.at(0);
  EXPECT_EQ(wrapper.name, "FSDP2");
  EXPECT_EQ(wrapper.param_dtype, "bfloat16");
  EXPECT_EQ(wrapper.buffer_dtype, "");
  EXPECT_EQ(wrapper.reshard_after_forward, "true");
  EXPECT_EQ(wrapper.autocast, (std::vector<std::string>{"bfloat16"}));
  EXPECT_EQ(wrapper.units.at(1), (AppliedUnit{"", "Llama", 2, 100}));
  EXPECT_EQ(record->seen.parameter_dtypes, (std::vector<ElementsOfDtype>{{"float32", 1000}}));
  EXPECT_EQ(record->seen.optimizers.at(0), (AppliedOptimizer{"torch.optim.adamw.AdamW", std::nullopt, true, 11}));
  EXPECT_EQ(record->seen.warnings.at(0), (RehearsalWarning{"one_unit", "One unit only.", "train.py", 12}));
  EXPECT_EQ(record->seen.limits.cudnn_plans, 4);
}

TEST(RehearseRecord, NamesTheFailedAllocation) {
  const auto record = read(with(recorded_rank(), "\"at_end_allocated\": 1024,", R"("at_end_allocated": 1024,
    "failed_allocation": {"bytes": 64, "device_free": 32, "phase": "forward", "step": 1, "module": "m", "at": null,
    "stack": [{"file": "train.py", "line": 3, "function": "f"}]},)"));
  ASSERT_TRUE(record) << to_string(record.error().front());
  EXPECT_EQ(record->seen.failed,
            (FailedAllocation{Bytes(64), StepPhase::Forward, 1, "m", Bytes(32), {}, {{"train.py", 3, "f"}}}));
}

TEST(RehearseRecord, HasCollectivesOfAnyKindAndType) {
  const auto record = read(recorded_rank());
  ASSERT_TRUE(record);
  ASSERT_EQ(record->collectives.size(), 2);
  const Collective& gather = record->collectives[0];
  EXPECT_EQ(gather.kind, CollectiveKind::AllGather);
  EXPECT_EQ(gather.unit, "");
  EXPECT_EQ(gather.dtype, Dtype::BFloat16);
  EXPECT_EQ(gather.group, MeshDimension::Other);
  // A type that our words lack counts as bytes of its size.
  EXPECT_EQ(record->collectives[1].kind, CollectiveKind::AllToAll);
  EXPECT_EQ(record->collectives[1].dtype, Dtype::UInt8);
}

TEST(RehearseRecord, NeedsNothingElseForAnException) {
  const auto record = read(R"({"format_version": "1.0", "end": {"why": "exception", "exception": {
    "type": "ImportError", "message": "no", "types": ["ImportError"], "traceback": "Traceback"}}, "more": [1]})");
  ASSERT_TRUE(record) << to_string(record.error().front());
  EXPECT_EQ(record->seen.error, (ScriptError{"ImportError", "no", "Traceback"}));
  EXPECT_EQ(record->memory.peaks.device, Bytes(0));
}

TEST(RehearseRecord, ReportsEveryError) {
  const std::string text =
      errors_of_record(R"({"format_version": "2.0", "end": {"why": "steps_reachd"}, "job": {"rank": 8,
    "world_size": 8}, "memory": {"peaks": {"requested": -1, "allocated": 2199023255552}, "phases": 3},
    "collectives": {"steady_step": [{"kind": "all_gater", "elements": 1, "payload_bytes": 1, "group_size": 0}]}})");
  for (const char* part :
       {"/format_version: This is format \"2.0\".", "Did you mean \"steps_reached\"?",
        "There is no rank 8 in a world of 8.", "/memory/peaks/requested", "/memory/peaks/allocated",
        "\"reserved\" is missing", "/memory/phases: Expected a list", "Did you mean \"all_gather\"?", "/group_size"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

TEST(RehearseRecord, MissingExceptionIsAnError) {
  EXPECT_NE(errors_of_record(with(recorded_rank(), "\"why\": \"steps_reached\"", "\"why\": \"exception\"")), "");
  // A script may catch its out-of-memory errors and end.
  EXPECT_EQ(errors_of_record(with(recorded_rank(), "\"why\": \"steps_reached\"", "\"why\": \"out_of_memory\"")), "");
}

}  // namespace
}  // namespace fsdp::runs
