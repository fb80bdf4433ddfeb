#pragma once

// A whole rehearsal: which processes are run, in which order, until every rank that was asked for has its figures.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "command/cli_commands.h"
#include "render/render_rehearsal.h"
#include "runs/rehearse_run.h"

namespace fsdp::planner {

/// Runs something that rehearses with a folder of its own, which goes whatever happens, and all that was started with
/// it.
CommandResult in_rehearsal_folder(
    const std::function<CommandResult(const std::string& folder, Supervision& supervision)>& run);

/// Empties the file of `RehearsalSettings::progress`, to which all runs of a command add their lines.
void begin_progress(const RehearsalSettings& settings);

struct RehearsalRuns {
  std::vector<RankRun> runs;  ///< At least one; all have results.
  std::vector<UnplayedRank> unplayed;
  RunFacts facts;
};

/// Runs the ranks that were asked for, and those whose figures depend on event timing at the other bound, too. Says how
/// far it is on the error stream, and what a script without a result printed. Nothing: somebody asked to end, and was
/// told what is known. Error: why a rank has no result.
tl::expected<std::optional<RehearsalRuns>, Failure> rehearse_all(const RehearsalSettings& settings,
                                                                 const Output& output, const std::string& folder,
                                                                 Supervision& supervision);

}  // namespace fsdp::planner
