#pragma once

// Files of a rehearsed script go to a discarded folder, where the script finds them. The library
// overlay/ does that in every process; this file gives it its folder, and reads what is in it afterwards.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/report/report.h"
#include "runs/rehearse_settings.h"

namespace fsdp::planner {

/// Whether writes are kept away from the disk.
enum class Writes : std::uint8_t {
  Redirected,
  Allowed,    ///< They go where they were meant to; their paths are noted.
  Unwatched,  ///< Allowed, and the library is not there to note them.
};
Writes writes_of(const RehearsalSettings& settings);

/// Makes the folder of one process's overlay. Error: the system's reason.
Result<void> make_overlay(const std::string& folder);

/// Variables that have the processes use it. `session`: the folder of the rehearsal's own files.
std::vector<std::pair<std::string, std::string>> overlay_environment(const RehearsalSettings& settings,
                                                                     const std::string& folder,
                                                                     const std::string& session);

/// Paths that the kernel lets scripts write to: the rehearsal's own folder, what is compiled for the stub, and the
/// kernel's, of /dev all but folders of files (shared memory), which lie in the overlay, and disks.
std::vector<std::string> writable_paths(const std::string& session);

/// The script's written and removed files, as warnings; none when it wrote nothing. Caches of Python and of the user
/// are left out.
std::vector<RehearsalWarning> describe_writes(const RehearsalSettings& settings, const std::string& folder);

}  // namespace fsdp::planner
