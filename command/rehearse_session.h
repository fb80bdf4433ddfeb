#pragma once

// A whole rehearsal: the processes to run and their order, until every requested rank has its figures.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "command/cli_commands.h"
#include "render/render_rehearsal.h"
#include "runs/rehearse_run.h"

namespace fsdp::command {

/// Runs a function that rehearses in a folder of its own. The folder and all started processes go away whatever
/// happens.
CommandResult in_rehearsal_folder(
    const std::function<CommandResult(const std::string& folder, runs::Supervision& supervision)>& run);

/// Empties the file of `RehearsalSettings::progress`, to which all runs of a command add their lines.
void begin_progress(const runs::RehearsalSettings& settings);

struct RehearsalRuns {
  std::vector<runs::RankRun> runs;  ///< At least one; all have results.
  std::vector<UnplayedRank> unplayed;
  render::RunFacts facts;
};

/// Runs the requested ranks, and at the other bound those whose figures depend on event timing. Prints progress and
/// the output of a script without a result on the error stream. `nullopt` if the user stopped it; the known facts are
/// then printed. Error: why a rank has no result.
tl::expected<std::optional<RehearsalRuns>, Failure> rehearse_all(const runs::RehearsalSettings& settings,
                                                                 const Output& output, const std::string& folder,
                                                                 runs::Supervision& supervision);

}  // namespace fsdp::command
