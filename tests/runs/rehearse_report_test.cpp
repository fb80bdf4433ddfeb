#include "runs/rehearse_report.h"

#include <gtest/gtest.h>

#include "render/render_rehearsal.h"
#include "runs/rehearse_failure.h"
#include "tests/support/recorded_rank.h"

namespace fsdp::runs {
namespace {

using namespace literals;

RankRun run_of(const std::string& text, RankJob job = {}) {
  const Result<JsonDocument> document = parse_json(text, "r.json");
  RankRun run{.job = job, .status = ExitStatus{}};
  const auto record = read_record(*document);
  EXPECT_TRUE(record) << to_string(record.error().front());
  run.record = *record;
  return run;
}

RehearsalSettings settings() {
  RehearsalSettings settings{.command = {"torchrun", "train.py"}, .program = "/bin/true"};
  settings.cluster.gpu.name = "H100 SXM";
  settings.cluster.gpu.usable_memory.value = 79_GiB;
  settings.cluster.gpus_per_node = 8;
  settings.context = {"CUDA context", 590_MiB, Provenance::Assumed, "an estimate"};
  settings.nccl = {{8, {"NCCL", 434_MiB, Provenance::Derived, "of 8 ranks"}}};
  return settings;
}

TEST(RehearseReport, DeviceTermsHaveTheirSourcesAndAddUp) {
  const StepReport report = measured_report(settings(), {run_of(recorded_rank())});
  EXPECT_EQ(report.kind, "measured");
  EXPECT_EQ(report.runtime, "pytorch-fsdp2");
  EXPECT_EQ(report.runtime_version, "2.11.0");
  EXPECT_EQ(report.model, "Llama");
  EXPECT_EQ(report.verdict, Verdict::Fits);
  const auto& terms = report.memory.device_terms;
  ASSERT_EQ(terms.size(), 3);
  // 4 GiB less 590 and 434 MiB.
  EXPECT_EQ(terms[0].bytes, 3072_MiB);
  EXPECT_EQ(terms[1].source, "an estimate");
  EXPECT_EQ(terms[2], (DeviceTerm{"NCCL", 434_MiB, Provenance::Derived, "of 8 ranks"}));
  EXPECT_EQ(report.memory.budget, 79_GiB);
}

TEST(RehearseReport, TrafficIsCountedByKindAndRingBytes) {
  const StepReport report = measured_report(settings(), {run_of(recorded_rank())});
  // 7 of 8 parts of 2000 bytes; 3 of 4 parts of 800.
  EXPECT_EQ(report.traffic.totals[0], (TrafficTotal{1, 2000_B, 1750_B}));
  EXPECT_EQ(report.traffic.totals[static_cast<std::size_t>(CollectiveKind::AllToAll)], (TrafficTotal{1, 800_B, 600_B}));
  EXPECT_EQ(report.traffic.sent_inside_node, 2350_B);
}

TEST(RehearseReport, LinksOfGroupsAreUnknownOverSeveralNodes) {
  const std::string two_nodes = with(recorded_rank(), "\"local_world_size\": 8", "\"local_world_size\": 4");
  const StepReport report = measured_report(settings(), {run_of(two_nodes)});
  EXPECT_EQ(report.gpus_per_node, 4);
  EXPECT_EQ(report.nodes, 2);
  EXPECT_EQ(report.traffic.sent_inside_node, Bytes(-1));
}

TEST(RehearseReport, DescribesTheRankThatNeedsMost) {
  const std::string larger = with(with(recorded_rank(), "\"rank\": 0,", "\"rank\": 5,"),
                                  "\"reserved\": 3221225472,\n   \"device\": 4294967296",
                                  "\"reserved\": 4294967296,\n   \"device\": 5368709120");
  const StepReport report =
      measured_report(settings(), {run_of(recorded_rank(), {.rank = 0}), run_of(larger, {.rank = 5})});
  EXPECT_EQ(report.memory.peaks.device, 5_GiB);
  EXPECT_EQ(report.rehearsal->rank, 5);
  ASSERT_EQ(report.rehearsal->ranks.size(), 2);
  EXPECT_EQ(report.rehearsal->ranks[0].device, (PeakRange{4_GiB, 4_GiB}));
  EXPECT_FALSE(report.rehearsal->both_bounds);
}

TEST(RehearseReport, OutOfMemoryRankIsWorseThanALargerOne) {
  const std::string failed = with(with(recorded_rank(), "\"rank\": 0,", "\"rank\": 5,"), "\"why\": \"steps_reached\"",
                                  "\"why\": \"out_of_memory\"");
  const std::string larger = with(recorded_rank(), "\"reserved\": 3221225472,\n   \"device\": 4294967296",
                                  "\"reserved\": 4294967296,\n   \"device\": 5368709120");
  const StepReport report = measured_report(settings(), {run_of(larger, {.rank = 0}), run_of(failed, {.rank = 5})});
  EXPECT_EQ(report.rehearsal->rank, 5);
  EXPECT_EQ(report.verdict, Verdict::DoesNotFit);
  EXPECT_EQ(report.memory.peaks.device, 4_GiB);
}

TEST(RehearseReport, TwoBoundsMakeARangeAndTheWorseOneDecides) {
  const std::string timed = with(recorded_rank(), "\"allocator_event_queries\": 0", "\"allocator_event_queries\": 7");
  const std::string held = with(with(timed, "\"reserved\": 3221225472,\n   \"device\": 4294967296",
                                     "\"reserved\": 4294967296,\n   \"device\": 5368709120"),
                                "\"why\": \"steps_reached\"", "\"why\": \"out_of_memory\"");
  const RankRun done = run_of(timed);
  EXPECT_EQ(jobs_at_other_bound(settings(), {done}), (std::vector<RankJob>{{0, EventBound::Hold}}));
  EXPECT_TRUE(jobs_at_other_bound(settings(), {run_of(recorded_rank())}).empty());
  RehearsalSettings one_bound = settings();
  one_bound.bound = EventBound::Done;
  EXPECT_TRUE(jobs_at_other_bound(one_bound, {done}).empty());

  const StepReport report = measured_report(settings(), {done, run_of(held, {0, EventBound::Hold})});
  EXPECT_EQ(report.verdict, Verdict::DoesNotFit);
  EXPECT_TRUE(report.rehearsal->both_bounds);
  EXPECT_TRUE(report.rehearsal->timing_decides);
  EXPECT_EQ(report.rehearsal->ranks.at(0).reserved, (PeakRange{3_GiB, 4_GiB}));
  EXPECT_FALSE(report.rehearsal->ranks.at(0).fits);
}

TEST(RehearseReport, CloseFitWarnsAboutEstimates) {
  RehearsalSettings tight = settings();
  tight.cluster.gpu.usable_memory.value = 4196_MiB;  // 100 MiB free, of a context of 590 MiB that is assumed.
  const auto limits = render::limits_of(measured_report(tight, {run_of(recorded_rank())}));
  ASSERT_FALSE(limits.empty());
  EXPECT_EQ(limits.front(), "It is close: only 100 MiB are free, and 590 MiB of the peak are estimates.");
}

struct Mistake {
  const char* type;
  const char* message;
  const char* starts;
};

TEST(RehearseFailure, ExceptionsAreExplained) {
  const Mistake cases[] = {
      {"ModuleNotFoundError", "No module named 'torch'", "rank 0: This Python has no torch."},
      {"ModuleNotFoundError", "No module named 'wandb'", "rank 0: This Python lacks a module of the script:"},
      {"requests.exceptions.ConnectionError", "Max retries", "rank 0: The script needs the network:"},
      {"huggingface_hub.errors.LocalEntryNotFoundError", "x", "rank 0: The script needs the network:"},
      {"ImportError", "cannot import name 'x' from 'torch.distributed' (y)",
       "rank 0: The script, or a package of it, wants another torch than 2.11.0+cu130:"},
      {"AttributeError", "module 'torch' has no attribute 'foo'",
       "rank 0: The script, or a package of it, wants another torch than 2.11.0+cu130:"},
      {"ValueError", "bad\nlines", "rank 0: The script raised ValueError: bad (train.py:7)."},
  };
  for (const Mistake& each : cases) {
    RankRun run = run_of(recorded_rank());
    run.record->end = "exception";
    run.record->error_types = {each.type};
    run.record->seen.error = ScriptError{
        each.type, each.message, "  File \"train.py\", line 7, in f\n  File \"/usr/lib/python3.11/x.py\", line 9\n"};
    EXPECT_FALSE(run.has_result());
    const Errors errors = explain_failure(run, settings());
    ASSERT_EQ(errors.size(), 1);
    EXPECT_TRUE(to_string(errors[0]).starts_with(each.starts)) << to_string(errors[0]);
  }
}

TEST(RehearseFailure, ShowsOnlyTheLastLines) {
  RankRun run;
  for (int i = 0; i < 100; ++i) run.log_tail += "line " + std::to_string(i) + "\n";
  const std::string kept = kept_output(run);
  EXPECT_TRUE(kept.starts_with("line 75\n")) << kept;
  EXPECT_TRUE(kept.ends_with("line 99\n"));
  run.log_tail = "one line";
  EXPECT_EQ(kept_output(run), "one line\n");
  run.log_tail = "\n\n";
  EXPECT_EQ(kept_output(run), "");
}

}  // namespace
}  // namespace fsdp::runs
