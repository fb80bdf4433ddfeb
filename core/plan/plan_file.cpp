#include "core/plan/plan_file.h"

#include <utility>

#include "core/base/foreign_files.h"
#include "core/cluster/cluster_reader.h"
#include "core/plan/plan_json.h"

namespace fsdp {

void write_plan(JsonWriter& writer, const Plan& plan, const Cluster* cluster) {
  writer.begin_object();
  write_plan_members(writer, plan);
  if (cluster != nullptr) {
    writer.key("cluster");
    write_cluster(*cluster, writer);
  }
  writer.end_object();
}

std::string to_text(const PlanFile& file) {
  JsonWriter writer;
  write_plan(writer, file.plan, file.cluster ? &*file.cluster : nullptr);
  return std::move(writer).take();
}

Result<PlanFile> read_plan(const JsonDocument& document) {
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  PlanFile file;
  read_plan_members(object, file.plan, &file.notes);
  if (const JsonValue* cluster = object.optional_value("cluster")) {
    // A card of its own: a plan does not depend on what the library says today.
    read_json(*cluster, file.cluster.emplace(), errors, std::span<const Gpu>{});
  }
  object.finish();
  return std::move(errors).result(std::move(file));
}

Result<PlanFile> read_plan_file(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  if (auto foreign = recognize_json(document, WantedFile::Plan)) return tl::unexpected(Errors{*std::move(foreign)});
  return read_plan(document);
}

Errors in_plan_file(Errors errors, const std::string& path) {
  for (Error& error : errors) {
    if (error.where.starts_with("--")) continue;
    error.where = error.where.empty() ? path : path + ": " + error.where;
  }
  return errors;
}

}  // namespace fsdp
