#include "render/result_json.h"

#include <utility>

#include "core/base/json_writer.h"
#include "core/report/report_json.h"
#include "render/choice_words.h"

namespace fsdp::planner {

namespace {

void write_candidates(JsonWriter& writer, std::string_view key, const std::vector<Candidate>& candidates,
                      bool with_missing) {
  writer.key(key);
  writer.begin_array();
  for (const Candidate& candidate : candidates) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("plan", candidate.label);
    writer.member("device_peak_bytes", candidate.device_peak.count());
    writer.member("step", candidate.step.count());
    if (with_missing) writer.member("missing_bytes", candidate.missing.count());
    writer.end_object();
  }
  writer.end_array();
}

void write_search(JsonWriter& writer, const SearchResult& result) {
  writer.key("search");
  writer.begin_object();
  writer.member("space", result.proof.space);
  writer.member("evaluated", result.proof.evaluated);
  writer.key("ruled_out");
  writer.begin_object();
  for (const RuledOut& reason : result.proof.ruled_out) writer.member(reason.reason, reason.plans);
  writer.end_object();
  if (result.proof.is_proven) {
    writer.member("optimality_gap", result.proof.optimality_gap);
  } else {
    writer.member("optimality_gap", nullptr);
  }
  writer.member("best", result.best.label);
  write_candidates(writer, "pareto", result.pareto, false);
  writer.member("notes", result.notes);
  writer.end_object();
}

void write_explanation(JsonWriter& writer, const Explanation& explanation) {
  writer.key("explain");
  writer.begin_object();
  writer.member("binding", explanation.binding);
  write_candidates(writer, "rejected", explanation.rejected, true);
  writer.key("remedies");
  writer.begin_array();
  for (const Remedy& remedy : explanation.remedies) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("what", remedy.what);
    writer.member("flag", flags_of(remedy.change));
    writer.member("delta_bytes", remedy.delta_bytes.count());
    writer.member("delta_seconds", remedy.delta_time.count());
    writer.member("verdict", name_of(remedy.verdict));
    writer.member("priced", remedy.is_searched ? "search" : "same plan");
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
}

}  // namespace

std::string to_json(const SearchResult& result, const Cluster* cluster) {
  JsonWriter writer;
  writer.begin_object();
  write_report_members(writer, result.report, cluster);
  write_search(writer, result);
  write_explanation(writer, result.explanation);
  writer.end_object();
  return std::move(writer).take();
}

std::string to_json(const StepReport& report, const Cluster* cluster, const Explanation* explanation) {
  JsonWriter writer;
  writer.begin_object();
  write_report_members(writer, report, cluster);
  if (explanation != nullptr) write_explanation(writer, *explanation);
  writer.end_object();
  return std::move(writer).take();
}

}  // namespace fsdp::planner
