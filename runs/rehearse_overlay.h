#pragma once

// Redirects the writes of a rehearsed script to a discarded folder, where the script finds them. The library
// overlay/ does that in every process; this file makes its folder, and reads it afterwards.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/report/report.h"
#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// The destination of a script's writes.
enum class Writes : std::uint8_t {
  Redirected,
  Allowed,    ///< They go to the disk, and their paths are recorded.
  Unwatched,  ///< Allowed, without the library that records them.
};
Writes writes_of(const RehearsalSettings& settings);

/// Makes the folder of one process's overlay. Error: the system's reason.
Result<void> make_overlay(const std::string& folder);

/// Variables that make the processes use it. `session`: the folder of the rehearsal's own files.
std::vector<std::pair<std::string, std::string>> overlay_environment(const RehearsalSettings& settings,
                                                                     const std::string& folder,
                                                                     const std::string& session);

/// Paths that the kernel lets scripts write to: the rehearsal's own folder, code compiled for the stub, and the
/// kernel's own. /dev excludes folders of files (shared memory), which lie in the overlay, and disks.
std::vector<std::string> writable_paths(const std::string& session);

/// The script's written and removed files, as warnings; empty if it wrote none. Omits caches of Python and of the
/// user.
std::vector<RehearsalWarning> describe_writes(const RehearsalSettings& settings, const std::string& folder);

}  // namespace fsdp::runs
