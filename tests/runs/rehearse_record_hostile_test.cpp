// Records that were damaged: each is read or refused with a place, and what is read makes a report.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "core/report/report_json.h"
#include "core/report/report_reader.h"
#include "render/render_rehearsal.h"
#include "runs/rehearse_report.h"
#include "tests/support/recorded_rank.h"

namespace fsdp::runs {
namespace {

rc::Gen<std::string> any_piece() {
  return rc::gen::element<std::string>("", "null", "{}", "[]", "-1", "0", "1e999", "9223372036854775807",
                                       "1099511627776", "NaN", "\"\"", "\"(root)\"", "[[[[", "}", "\"", ",", "\\u0000",
                                       "\xff\xfe", "1.5", "true", "\"out_of_memory\"");
}

std::string damaged(std::string text) {
  const int num_wounds = *rc::gen::inRange(1, 5);
  for (int i = 0; i < num_wounds; ++i) {
    const auto begin = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
    const auto length = *rc::gen::inRange<std::size_t>(0, 40);
    text.replace(begin, std::min(length, text.size() - begin), *any_piece());
  }
  return text;
}

void expect_a_report(const RehearsalRecord& record) {
  RankRun run{.status = ExitStatus{}, .record = record};
  if (!run.has_result()) return;
  const StepReport report = measured_report(RehearsalSettings{.command = {"python"}}, {run});
  const auto document = parse_json(to_json(report), "report");
  RC_ASSERT(document.has_value());
  const Result<StepReport> again = read_report(*document);
  if (!again) RC_LOG() << to_string(again.error().front()) << "\n";
  RC_ASSERT(again.has_value());
  RC_ASSERT(!to_text(render::document_of(report, {}, {}), {}).empty());
}

RC_GTEST_PROP(RehearseRecordHostile, ADamagedRecordIsReadOrRefusedWithItsPlace, ()) {
  const Result<JsonDocument> document = parse_json(damaged(recorded_rank()), "r.json");
  if (!document) {
    for (const Error& error : document.error()) RC_ASSERT(error.where.starts_with("r.json"));
    return;
  }
  const Result<RehearsalRecord> record = read_record(*document);
  if (record) {
    expect_a_report(*record);
    return;
  }
  RC_ASSERT(!record.error().empty());
  for (const Error& error : record.error()) {
    RC_ASSERT(error.where.starts_with("r.json:"));
    RC_ASSERT(!error.what.empty());
  }
}

RC_GTEST_PROP(RehearseRecordHostile, AnyNumberIsReadOrRefused, ()) {
  std::string text = recorded_rank();
  const std::size_t at = text.find_first_of("0123456789", *rc::gen::inRange<std::size_t>(0, text.size() - 200));
  const std::size_t end = text.find_first_not_of("0123456789", at);
  text.replace(at, end - at, *rc::gen::element<std::string>("0", "1", "1099511627776", "1099511627775", "2147483648"));
  const Result<JsonDocument> document = parse_json(text, "r.json");
  if (!document) return;
  const Result<RehearsalRecord> record = read_record(*document);
  if (record) expect_a_report(*record);
}

/// What is said of a group of this many ranks, without its place; empty: it is read, and makes a report.
std::string said_of_a_group_of(const std::string& ranks) {
  const std::string text = with(recorded_rank(), "\"group_size\": 8", "\"group_size\": " + ranks);
  const Result<RehearsalRecord> record = read_record(*parse_json(text, "r.json"));
  if (record) {
    const RankRun run{.status = ExitStatus{}, .record = *record};
    EXPECT_EQ(measured_report(RehearsalSettings{.command = {"python"}}, {run}).traffic.collectives.size(), 2);
    return "";
  }
  const Error& error = record.error().front();
  EXPECT_TRUE(error.where.ends_with("/collectives/steady_step/0/group_size")) << error.where;
  return error.what + " " + error.hint;
}

TEST(RehearseRecordHostile, GroupSizeIsFromOneToTheLargestInt) {
  const std::string allowed = " is out of range. Write an integer from 1 to 2147483647.";
  for (const std::string ranks : {"-1", "0", "2147483648", "9223372036854775807"}) {
    EXPECT_EQ(said_of_a_group_of(ranks), ranks + allowed);
  }
  for (const std::string ranks : {"1", "2147483647"}) EXPECT_EQ(said_of_a_group_of(ranks), "");
}

}  // namespace
}  // namespace fsdp::runs
