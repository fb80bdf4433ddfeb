#include "gui/state/project_file.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <utility>

#include "core/base/files.h"
#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/base/nearest.h"
#include "core/base/object_reader.h"
#include "core/cluster/cluster_reader.h"
#include "core/plan/plan_file.h"
#include "core/plan/plan_json.h"
#include "core/version.h"
#include "planner/search/objective.h"

namespace fsdp::gui {

namespace {

constexpr std::string_view kKind = "fsdp-plan-project";

std::vector<std::string_view> known_places() {
  std::vector<std::string_view> places;
  for (const planner::PlanChoice choice : planner::plan_choices()) places.push_back(place_of(choice));
  return places;
}

void read_options(const JsonValue& value, Inputs& inputs, JsonErrors& errors) {
  if (!expect_type(value, JsonType::Object, "an object", errors)) return;
  for (const JsonMember& member : value.members) {
    const std::optional<planner::PlanChoice> choice = planner::choice_of_place(member.key);
    if (!choice) {
      errors.add(member.key_offset, fmt::format("\"{}\" is not an option of a plan.", member.key),
                 suggest_name(member.key, known_places()));
      continue;
    }
    std::vector<std::string> texts;
    if (read_json(member.value, texts, errors)) read_texts(*choice, texts, inputs);
  }
}

void read_kept(const JsonValue& value, Inputs& inputs, JsonErrors& errors) {
  ObjectReader object(value, errors);
  PlanFile file;
  read_plan_members(object, file.plan);
  if (const JsonValue* cluster = object.optional_value("cluster")) {
    read_json(*cluster, file.cluster.emplace(), errors, std::span<const Gpu>{});
  }
  if (object.finish()) inputs.kept = std::move(file);
}

}  // namespace

std::string project_text(const Inputs& inputs) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("kind", kKind);
  writer.member("format_version", kProjectFormatVersion);
  writer.member("generator", fmt::format("fsdp-plan-gui@{}", kVersion));
  writer.member("model", inputs.model);
  if (inputs.objective != planner::SearchObjective::Time) {
    writer.member("objective", name_of(planner::kSearchObjectiveTable, inputs.objective));
  }
  writer.key("options");
  writer.begin_object();
  for (const planner::PlanChoice choice : planner::plan_choices()) {
    const std::vector<std::string> texts = texts_of(inputs, choice);
    if (!texts.empty()) writer.member(place_of(choice), texts);
  }
  writer.end_object();
  if (inputs.kept) {
    writer.key("plan");
    write_plan(writer, inputs.kept->plan, inputs.kept->cluster ? &*inputs.kept->cluster : nullptr);
  }
  writer.end_object();
  return std::move(writer).take();
}

Result<Inputs> parse_project(std::string text, const std::string& name) {
  FSDP_TRY(const JsonDocument document, parse_json(std::move(text), name));
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  Inputs inputs;
  std::string kind;
  std::string version;
  if (object.required("kind", kind) && kind != kKind) {
    object.fail("kind", fmt::format("\"{}\" is not a project.", kind), fmt::format("It would be \"{}\".", kKind));
  }
  if (object.required("format_version", version) && !is_readable_version(version, kProjectFormatVersion)) {
    object.fail("format_version", fmt::format("Version {} cannot be read.", version),
                fmt::format("This program reads {}.", kProjectFormatVersion));
  }
  object.ignore("generator");
  object.required("model", inputs.model);
  object.optional("objective", inputs.objective, planner::kSearchObjectiveTable);
  if (const JsonValue* options = object.required_value("options")) read_options(*options, inputs, errors);
  if (const JsonValue* plan = object.optional_value("plan")) read_kept(*plan, inputs, errors);
  object.finish();
  return std::move(errors).result(std::move(inputs));
}

Result<Inputs> read_project(const std::string& path) {
  FSDP_TRY(std::string text, read_text_file(path));
  return parse_project(std::move(text), path);
}

Result<void> write_project(const std::string& path, const Inputs& inputs) {
  return write_file_atomically(path, project_text(inputs), Overwrite::Allow);
}

bool is_project(const std::string& path) {
  if (path.ends_with(kProjectEnding)) return true;
  const Result<JsonDocument> document = read_json_file(path);
  return document && document->root.find("kind") != nullptr;
}

}  // namespace fsdp::gui
