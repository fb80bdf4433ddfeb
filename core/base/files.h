#pragma once

// Text files. Reads a whole file, with helpful errors; writes so that a file is either whole or absent.

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fsdp {

/// Reads a whole file of at most `most_bytes` (64 MiB); "-" is the standard input. Error: missing (with the nearest
/// name in its folder), a folder, unreadable, empty, too large, or a Git LFS pointer in place of the content.
Result<std::string> read_text_file(const std::string& path, std::size_t most_bytes = std::size_t{64} << 20);

/// The first bytes of a regular file; fewer if it is shorter, empty if it cannot be read.
std::string first_bytes_of(const std::string& path, std::size_t most_bytes);

enum class Overwrite { Refuse, Allow };

/// Writes a file whole: into a temporary file beside it, synced to the disk, then renamed. `path` always has the old or
/// the new content, never a part. Follows a symbolic link; writes to a device or a pipe ("/dev/stdout") directly.
/// Error: the file exists and may not be overwritten, is a folder, has no folder, or the disk refuses.
Result<void> write_file_atomically(const std::string& path, std::string_view content, Overwrite overwrite);

}  // namespace fsdp
