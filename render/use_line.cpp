#include "render/use_line.h"

#include <fmt/format.h>

#include "core/base/parse_units.h"

namespace fsdp::render {

namespace {

/// "sft.yaml: a: 1 -> 2, b: unset -> true"
std::string changes_of(const planner::EditedJob& edited) {
  std::string text;
  std::string file;
  for (const planner::KeyEdit& edit : edited.edits) {
    if (!text.empty()) text += edit.file == file ? ", " : "; ";
    if (edit.file != file && !edit.file.empty()) text += edit.file + ": ";
    file = edit.file;
    text += fmt::format("{}: {} -> {}", edit.key, edit.before.empty() ? "unset" : edit.before, edit.after);
  }
  return text;
}

}  // namespace

std::string use_line(const planner::JobUse& use) {
  if (use.num_untried > 0)
    return fmt::format("--diff plans {} changes of its keys, and prints the best", use.num_untried);
  const std::string with = use.environment.empty() ? "" : fmt::format(" with {}", use.environment);
  if (use.edited.edits.empty()) {
    if (use.verdict == Verdict::DoesNotFit) return "no value of the trainer's keys makes it fit";
    return fmt::format("it as it is{}: no other value of the trainer's keys is over 2 % better", with);
  }
  const bool gains = use.step_before > Seconds(0);
  const std::string gain = gains ? fmt::format(" ({}{})", use.step > use.step_before ? "+" : "-",
                                               format_time(Seconds(std::abs((use.step - use.step_before).count()))))
                                 : fmt::format(" and fits{}", use.is_tight ? ", tight" : "");
  return fmt::format("{}: {} a step{}, {}{}; --diff prints it", changes_of(use.edited), format_time(use.step), gain,
                     format_bytes(use.device_peak), with);
}

}  // namespace fsdp::render
