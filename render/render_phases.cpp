#include "render/render_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "render/render_search.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

/// The line for an answer without the other phases.
text::Entry turn_of(const JobPhaseNeed& need, Bytes budget) {
  return {.label = "turn",
          .lines = {fmt::format("{}: {} {} of {}, {}", need.fits() ? "fits" : "DOES NOT FIT", title_of(need.phase),
                                format_bytes(need.device->device), format_bytes(budget), need.how)}};
}

}  // namespace

void add_phases(text::Document& document, const std::vector<JobPhaseNeed>& phases, Bytes budget) {
  if (phases.empty()) return;
  const bool is_turn_alone = phases.size() == 1 && phases.front().phase == JobPhase::Generation;
  if (is_turn_alone) return document.push_back(turn_of(phases.front(), budget));
  text::Table table{.name = "phases",
                    .columns = {{"phase", "phase"},
                                {"device", "device_peak_bytes", true},
                                {"host of a node", "host_bytes", true},
                                {"verdict", "verdict"},
                                {"what happens", "how"}}};
  for (const JobPhaseNeed& need : phases) {
    table.rows.push_back({std::string(title_of(need.phase)),
                          need.device ? text::cell(need.device->device) : text::Cell{"-", ""},
                          text::cell(need.host.needed), verdict_cell(verdict_of(need), is_tight(need)), need.how});
  }
  document.push_back(std::move(table));
  const std::string misfit = first_misfit(phases, budget);
  const bool is_known =
      std::ranges::all_of(phases, [](const JobPhaseNeed& need) { return need.host.budget.has_value(); });
  const std::string host = is_known ? "" : " on the device; host memory is not checked (give --host-mem)";
  document.push_back(text::Entry{
      .label = "all", .lines = {misfit.empty() ? fmt::format("every phase that is predicted fits{}", host) : misfit}});
}

std::vector<PhaseAddition> phase_additions(const std::vector<JobPhaseNeed>& phases) {
  std::vector<PhaseAddition> additions;
  for (const JobPhaseNeed& need : phases) {
    PhaseAddition addition{.phase = std::string(name_of(need.phase)),
                           .how = need.how,
                           .verdict = verdict_of(need),
                           .is_tight = is_tight(need)};
    if (need.device) {
      addition.live = need.device->live;
      addition.allocated = need.device->allocated;
      addition.reserved = need.device->reserved;
      addition.device = need.device->device;
      addition.margin = need.margin;
    }
    addition.host = need.host.needed;
    if (need.host.budget) addition.host_missing = need.host.missing();
    additions.push_back(std::move(addition));
  }
  return additions;
}

}  // namespace fsdp::render
