#include "render/render_policy.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace fsdp::planner {

namespace {

/// The root's elements and their parameters.
std::string rest_of(const PolicyExplanation& explanation) {
  if (explanation.root_elements == 0) return "No parameter is left in the root.";
  std::string names;
  for (const std::string& name : explanation.in_root) {
    names += (names.empty() ? "" : ", ") + (name.empty() ? std::string("root") : name);
  }
  return fmt::format("Left in the root: {} elements, what no unit holds of {}.",
                     format_elements(explanation.root_elements), names);
}

}  // namespace

void add_policy(Document& document, const PolicyExplanation& explanation) {
  Table table{
      .name = "units",
      .columns = {
          {explanation.policy, "modules"}, {"elements", "elements", true}, {"unit", "unit"}, {"because", "why"}}};
  for (const PolicyRow& row : explanation.rows) {
    table.rows.push_back({Cell{row.modules.empty() ? "root" : row.modules, row.modules},
                          Cell{format_elements(row.elements), std::to_string(row.elements)}, row.is_unit ? "yes" : "no",
                          row.why});
  }
  document.push_back(std::move(table));
  document.push_back(Entry{.label = "", .lines = {rest_of(explanation), std::string(kNotWeighed)}});
}

}  // namespace fsdp::planner
