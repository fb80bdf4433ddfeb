#pragma once

// A plan as a file of its own: the plan, and the cluster that it was made for with every figure, so that the file holds
// all that is needed to predict it again (with the model spec, whose fingerprint it carries).

#include <optional>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan.h"

namespace fsdp {

struct PlanFile {
  Plan plan;
  std::optional<Cluster> cluster;  ///< Plans written by hand may leave it out.
  std::vector<std::string> notes;  ///< Sentences about the file that was read, such as keys with an old spelling.

  bool operator==(const PlanFile&) const = default;
};

/// Writes the object of a plan file; `cluster` may be null.
void write_plan(JsonWriter& writer, const Plan& plan, const Cluster* cluster);

/// The text of a plan file.
std::string to_text(const PlanFile& file);

/// Reads a plan file. Error: everything that is wrong with it.
Result<PlanFile> read_plan(const JsonDocument& document);
Result<PlanFile> read_plan_file(const std::string& path);

/// Errors about a plan, with the file that it came from before their places. Those about an option keep theirs.
Errors in_plan_file(Errors errors, const std::string& path);

}  // namespace fsdp
