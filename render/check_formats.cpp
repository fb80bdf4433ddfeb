// Sources: SARIF 2.1.0 (OASIS, sections 3.13 to 3.27); GitHub's workflow commands (error, warning, notice), whose
// messages escape "%" and line ends, and whose properties "," and ":" besides.

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/json_writer.h"
#include "core/version.h"
#include "planner/check/rules.h"
#include "render/render_check.h"

namespace fsdp::render {

namespace {

using planner::Finding;
using planner::Severity;

/// What happens, and how to mend it.
std::string message_of(const Finding& finding) {
  const std::string mend = text_of(finding.mend);
  return mend.empty() ? finding.what : fmt::format("{} {}", finding.what, mend);
}

bool is_in_file(const Finding& finding) {
  return finding.place.file != "command";
}

std::string escaped(std::string_view text, bool is_property) {
  std::string result;
  for (const char c : text) {
    const bool escapes = c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    if (escapes) {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result;
}

void write_finding(JsonWriter& json, const Finding& finding) {
  const planner::Rule& rule = planner::rule_named(finding.rule);
  json.begin_object();
  json.member("rule", finding.rule);
  json.member("severity", planner::name_of(finding.severity));
  json.member("file", finding.place.file);
  json.member("line", finding.place.line);
  json.member("column", finding.place.column);
  json.member("pointer", finding.place.pointer);
  json.member("what", finding.what);
  if (finding.cost) {
    json.member("cost_bytes", finding.cost->count());
    json.member("cost_of", finding.cost_of);
  }
  constexpr std::string_view kHow[] = {"advice", "replace", "remove"};
  json.member("mend", text_of(finding.mend));
  json.member("mend_how", kHow[static_cast<std::size_t>(finding.mend.how)]);
  json.member("release", rule.release);
  json.member("source", rule.source);
  json.end_object();
}

void write_sarif_rule(JsonWriter& json, const planner::Rule& rule) {
  json.begin_object();
  json.member("id", rule.id);
  json.key("shortDescription");
  json.begin_object();
  json.member("text", rule.title);
  json.end_object();
  json.key("help");
  json.begin_object();
  json.member("text", fmt::format("As in {}, {}.", rule.release, rule.source));
  json.end_object();
  json.end_object();
}

void write_sarif_result(JsonWriter& json, const Finding& finding) {
  json.begin_object();
  json.member("ruleId", finding.rule);
  json.member("level", planner::name_of(finding.severity));
  json.key("message");
  json.begin_object();
  json.member("text", message_of(finding));
  json.end_object();
  json.key("locations");
  json.begin_array();
  if (is_in_file(finding)) {
    json.begin_object();
    json.key("physicalLocation");
    json.begin_object();
    json.key("artifactLocation");
    json.begin_object();
    json.member("uri", finding.place.file);
    json.end_object();
    json.key("region");
    json.begin_object();
    json.member("startLine", finding.place.line);
    json.member("startColumn", finding.place.column);
    json.end_object();
    json.end_object();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::string to_json(const CheckAnswer& answer) {
  JsonWriter json;
  json.begin_object();
  json.member("format_version", "1.0");
  json.member("files", answer.files);
  json.member("errors", answer.count(Severity::Error));
  json.member("warnings", answer.count(Severity::Warning));
  json.member("notes", answer.count(Severity::Note));
  json.key("findings");
  json.begin_array();
  for (const Finding& finding : answer.findings) write_finding(json, finding);
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

std::string to_sarif(const CheckAnswer& answer) {
  std::set<std::string_view> found;
  for (const Finding& finding : answer.findings) found.insert(finding.rule);
  JsonWriter json;
  json.begin_object();
  json.member("$schema", "https://json.schemastore.org/sarif-2.1.0.json");
  json.member("version", "2.1.0");
  json.key("runs");
  json.begin_array();
  json.begin_object();
  json.key("tool");
  json.begin_object();
  json.key("driver");
  json.begin_object();
  json.member("name", "fsdp-plan check");
  json.member("version", kVersion);
  json.key("rules");
  json.begin_array();
  for (const planner::Rule& rule : planner::rules()) {
    if (found.contains(rule.id)) write_sarif_rule(json, rule);
  }
  json.end_array();
  json.end_object();
  json.end_object();
  json.member("columnKind", "unicodeCodePoints");
  json.key("results");
  json.begin_array();
  for (const Finding& finding : answer.findings) write_sarif_result(json, finding);
  json.end_array();
  json.end_object();
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

std::string to_annotations(const CheckAnswer& answer) {
  std::string lines;
  for (const Finding& finding : answer.findings) {
    const std::string_view level = finding.severity == Severity::Note ? "notice" : planner::name_of(finding.severity);
    const std::string place = is_in_file(finding)
                                  ? fmt::format("file={},line={},col={},", escaped(finding.place.file, true),
                                                finding.place.line, finding.place.column)
                                  : "";
    lines += fmt::format("::{} {}title={}::{}\n", level, place, finding.rule, escaped(message_of(finding), false));
  }
  return lines;
}

}  // namespace fsdp::render
