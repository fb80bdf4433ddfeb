#include "core/report/job_phases.h"

#include <fmt/format.h>

#include "core/base/parse_units.h"

namespace fsdp {

namespace {

struct PhaseNames {
  std::string_view name;
  std::string_view title;
};
constexpr std::array<PhaseNames, kNumJobPhases + 1> kNames = {{{"loading", "loading"},
                                                               {"first_step", "first step"},
                                                               {"steady_step", "later steps"},
                                                               {"evaluation", "evaluation"},
                                                               {"saving_whole", "saving, whole"},
                                                               {"saving_parts", "saving, sharded"},
                                                               {"resuming_whole", "resuming, whole"},
                                                               {"resuming_parts", "resuming, sharded"},
                                                               {"generation", "generation"}}};

}  // namespace

std::string_view name_of(JobPhase phase) {
  return kNames[static_cast<std::size_t>(phase)].name;
}

std::string_view title_of(JobPhase phase) {
  return kNames[static_cast<std::size_t>(phase)].title;
}

std::string first_misfit(const std::vector<JobPhaseNeed>& phases, Bytes budget) {
  for (const JobPhaseNeed& phase : phases) {
    if (phase.fits()) continue;
    if (phase.on_device.verdict == Verdict::DoesNotFit) {
      return fmt::format("{} needs {} of a GPU's {}", title_of(phase.phase), format_bytes(phase.device->device),
                         format_bytes(budget));
    }
    return fmt::format("{} needs {} of host memory on a node, {} short of {} (with a {} safety margin)",
                       title_of(phase.phase), format_bytes(phase.host.needed), format_bytes(phase.host.missing()),
                       format_bytes(*phase.host.budget), format_bytes(phase.host.margin));
  }
  return "";
}

}  // namespace fsdp
