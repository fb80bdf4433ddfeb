#include "core/report/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/report/report_json.h"
#include "core/report/report_reader.h"

namespace fsdp {
namespace {

using namespace literals;

StepReport small_report() {
  StepReport report{.runtime = "pytorch-fsdp2", .runtime_version = "2.11.0", .verdict = Verdict::Fits, .model = "m"};
  report.parameters = 100;
  report.trainable_parameters = 90;
  report.gpu = "T4";
  report.gpus_per_node = 4;
  report.memory.budget = 1000_B;
  report.memory.peaks = {.live = 90_B, .allocated = 100_B, .reserved = 200_B, .device = 300_B};
  report.memory.phases = {{RunPhase::FirstStep, report.memory.peaks}};
  report.traffic.totals[0] = {.count = 10, .payload = 1000_B, .sent_per_rank = 750_B};
  return report;
}

TEST(Compare, PutsTheWorstTermFirst) {
  const StepReport predicted = small_report();
  StepReport measured = small_report();
  measured.memory.peaks.reserved = 160_B;       // 40 of 160 too much: +25 %.
  measured.traffic.totals[0].payload = 2000_B;  // 1000 of 2000 too little: -50 %.
  const Comparison comparison = compare(predicted, measured);
  ASSERT_GE(comparison.terms.size(), 2);
  EXPECT_EQ(comparison.terms[0], (ComparedTerm{"all_gather payload", TermUnit::Bytes, 1000, 2000}));
  EXPECT_EQ(comparison.terms[0].difference(), -1000);
  EXPECT_EQ(comparison.terms[0].relative(), -0.5);
  EXPECT_EQ(comparison.terms[1], (ComparedTerm{"reserved peak", TermUnit::Bytes, 200, 160}));
  EXPECT_EQ(comparison.terms[1].relative(), 0.25);
  for (std::size_t i = 2; i < comparison.terms.size(); ++i) EXPECT_EQ(comparison.terms[i].relative(), 0);
  EXPECT_FALSE(is_within(comparison, 0.49));
  EXPECT_TRUE(is_within(comparison, 0.5));
}

TEST(Compare, EqualReportsHaveExactTermsOnly) {
  const Comparison comparison = compare(small_report(), small_report());
  // Four peaks of the run and four of its phase, all-gathers by count and payload, two counts of parameters.
  EXPECT_EQ(comparison.terms.size(), 12);
  EXPECT_TRUE(is_within(comparison, 0));
  EXPECT_TRUE(comparison.notes.empty());
}

TEST(Compare, ValuesMissingFromOneReportAreLeftOut) {
  StepReport measured = small_report();
  for (MemoryPeaks* peaks : {&measured.memory.peaks, &measured.memory.phases[0].peaks}) {
    peaks->allocated = peaks->reserved = peaks->device = Bytes(-1);
  }
  measured.verdict = Verdict::Unknown;
  measured.memory.budget = 0_B;
  const Comparison comparison = compare(small_report(), measured);
  EXPECT_EQ(comparison.terms.size(), 6);  // Two of eight peaks are left.
  EXPECT_TRUE(comparison.notes.empty());
}

TEST(Compare, CollectivesCompareInOrderAndPeaksByCategory) {
  StepReport predicted = small_report();
  predicted.traffic.collectives = {{.kind = CollectiveKind::AllGather, .unit = "a", .elements = 4, .payload = 16_B},
                                   {.kind = CollectiveKind::AllGather, .unit = "b", .elements = 4, .payload = 16_B}};
  predicted.memory.at_peak[static_cast<std::size_t>(MemoryCategory::Activation)] = 60_B;
  StepReport measured = predicted;
  std::swap(measured.traffic.collectives[0], measured.traffic.collectives[1]);
  measured.traffic.collectives.push_back(predicted.traffic.collectives[0]);
  measured.memory.at_peak[static_cast<std::size_t>(MemoryCategory::Activation)] = 50_B;
  const Comparison comparison = compare(predicted, measured);
  const auto term = [&](const std::string& name) {
    return *std::find_if(comparison.terms.begin(), comparison.terms.end(),
                         [&](const ComparedTerm& each) { return each.name == name; });
  };
  EXPECT_EQ(term("collectives as predicted").measured, 0);
  EXPECT_EQ(term("at peak: Activation").difference(), 10);
  EXPECT_EQ(compare(predicted, predicted).terms.size(), 14);
}

/// As a framework's own run says them: for nobody knows which unit and phase, one group unknown.
StepReport own_run_of(StepReport report) {
  for (Collective& collective : report.traffic.collectives) {
    collective.unit = "";
    collective.phase = StepPhase::Unknown;
    collective.group = MeshDimension::Other;
  }
  report.traffic.collectives.back().group_size = -1;
  return report;
}

TEST(Compare, FrameworkCollectivesAreComparedInOrder) {
  StepReport predicted = small_report();
  predicted.traffic.collectives = {
      {.kind = CollectiveKind::AllGather, .unit = "a", .phase = StepPhase::Forward, .elements = 4, .payload = 16_B},
      {.kind = CollectiveKind::AllReduce, .unit = "b", .phase = StepPhase::Backward, .elements = 8, .payload = 32_B}};
  const auto same = [&](const StepReport& measured) -> std::int64_t {
    for (const ComparedTerm& term : compare(predicted, measured).terms) {
      if (term.name == "collectives as predicted") return term.measured;
    }
    return -1;
  };
  StepReport measured = own_run_of(predicted);
  EXPECT_EQ(same(measured), 2);
  measured.traffic.collectives[0].payload = 32_B;
  EXPECT_EQ(same(measured), 1);
  measured = own_run_of(predicted);
  measured.traffic.collectives[0].group_size = 2;
  EXPECT_EQ(same(measured), 1) << "a size that is known counts";
  std::swap(measured.traffic.collectives[0], measured.traffic.collectives[1]);
  EXPECT_EQ(same(measured), 0);
  // A script has collectives of its own.
  measured = own_run_of(predicted);
  measured.rehearsal.emplace();
  EXPECT_EQ(same(measured), -1);
}

TEST(Compare, CollectivesMissingFromMeasurementAreInfinitelyFarOff) {
  const StepReport predicted = small_report();
  StepReport measured = small_report();
  measured.traffic.totals[0] = {};
  measured.traffic.totals[static_cast<std::size_t>(CollectiveKind::AllToAll)] = {.count = 2, .payload = 8_B};
  const Comparison comparison = compare(predicted, measured);
  EXPECT_EQ(comparison.terms[0].name, "all_gather count");
  EXPECT_TRUE(std::isinf(comparison.terms[0].relative()));
  EXPECT_EQ(comparison.terms[2].name, "all_to_all count");
  EXPECT_EQ(comparison.terms[2].relative(), -1);
  EXPECT_FALSE(is_within(comparison, 1e9));
}

TEST(Compare, OnlyPhasesThatBothHaveAreCompared) {
  const StepReport predicted = small_report();
  StepReport measured = small_report();
  measured.memory.phases[0].phase = RunPhase::Initialization;
  EXPECT_EQ(compare(predicted, measured).terms.size(), 8);
}

TEST(Compare, NotesDifferencesOfRanksMemoryAndVerdict) {
  const StepReport predicted = small_report();
  StepReport measured = small_report();
  measured.nodes = 2;
  measured.memory.budget = 500_B;
  measured.verdict = Verdict::DoesNotFit;
  EXPECT_EQ(compare(predicted, measured).notes,
            (std::vector<std::string>{"The first report has 4 ranks, the second has 8.",
                                      "The first report has a GPU with 1000 bytes, the second one with 500.",
                                      "The verdicts differ: \"fits\" and \"does_not_fit\"."}));
}

TEST(ReportReader, ReportsEveryError) {
  const auto document = parse_json(R"({"format_version": "2.0", "kind": "mesured", "runtime": "r", "verdict": "fits",
 "model": {"name": "m", "parameters": -1, "trainable_parameters": 1}, "cluster": 3, "memory": {}, "news": 1})",
                                   "r.json");
  ASSERT_TRUE(document);
  const auto report = read_report(*document);
  ASSERT_FALSE(report);
  std::string text;
  for (const Error& error : report.error()) text += to_string(error) + "\n";
  for (const char* part : {"/format_version: This is format \"2.0\".", "Did you mean \"measured\"?",
                           "\"runtime_version\" is missing", "/model/parameters", "/cluster: Expected an object",
                           "\"live_peak_bytes\" is missing", "\"traffic\" is missing"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("news"), std::string::npos) << "Keys may be added.";
}

TEST(Compare, ComparisonReadsBackFromItsReport) {
  StepReport measured = small_report();
  measured.gpus_per_node = 2;
  measured.memory.peaks.live = 80_B;
  const Comparison comparison = compare(small_report(), measured);
  ASSERT_FALSE(comparison.notes.empty());
  ReportAdditions additions;
  additions.comparison = comparison;
  const auto document = parse_json(to_json(measured, additions), "report.json");
  ASSERT_TRUE(document.has_value());
  const auto read = read_comparison(*document);
  ASSERT_TRUE(read.has_value()) << to_string(read.error().front());
  EXPECT_EQ(*read, comparison);
  const auto without = parse_json("{}", "report.json");
  EXPECT_EQ(*read_comparison(*without), std::nullopt);
  const auto broken = parse_json(R"({"comparison": {"terms": [{"name": 1, "unit": "byte"}]}})", "report.json");
  const auto errors = read_comparison(*broken);
  ASSERT_FALSE(errors.has_value());
  EXPECT_EQ(errors.error().size(), 4U) << "a name, a unit, and two figures";
}

}  // namespace
}  // namespace fsdp
