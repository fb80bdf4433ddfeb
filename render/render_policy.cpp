#include "render/render_policy.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace fsdp::render {

namespace {

/// The root's elements and their parameters.
std::string rest_of(const planner::PolicyExplanation& explanation) {
  if (explanation.root_elements == 0) return "No parameter is left in the root.";
  std::string names;
  for (const std::string& name : explanation.in_root) {
    names += (names.empty() ? "" : ", ") + (name.empty() ? std::string("root") : name);
  }
  return fmt::format("Left in the root: {} elements, which no unit holds, of {}.",
                     planner::format_elements(explanation.root_elements), names);
}

}  // namespace

void add_policy(text::Document& document, const planner::PolicyExplanation& explanation) {
  text::Table table{
      .name = "units",
      .columns = {
          {explanation.policy, "modules"}, {"elements", "elements", true}, {"unit", "unit"}, {"because", "why"}}};
  for (const planner::PolicyRow& row : explanation.rows) {
    table.rows.push_back({text::Cell{row.modules.empty() ? "root" : row.modules, row.modules},
                          text::Cell{planner::format_elements(row.elements), std::to_string(row.elements)},
                          row.is_unit ? "yes" : "no", row.why});
  }
  document.push_back(std::move(table));
  document.push_back(text::Entry{.label = "", .lines = {rest_of(explanation), std::string(planner::kNotWeighed)}});
}

}  // namespace fsdp::render
