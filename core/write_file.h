#pragma once

// Files that are either whole or not there.

#include <string>
#include <string_view>

#include "core/result.h"

namespace fsdp {

enum class Overwrite { Refuse, Allow };

/// Writes a file whole: into a temporary file beside it, synced to the disk, then renamed. Whatever happens, `path`
/// holds the old content or the new one and never a part. A symbolic link is followed; a device or a pipe
/// ("/dev/stdout") is written to directly. Error: it exists and may not be overwritten, is a folder, has no folder, or
/// the disk refuses.
Result<void> write_file_atomically(const std::string& path, std::string_view content, Overwrite overwrite);

}  // namespace fsdp
