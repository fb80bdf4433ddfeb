#pragma once

// Text files: read whole with an error that helps, written so that they are either whole or not there.

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fsdp {

/// Reads a file of at most `most_bytes` (64 MiB) whole; "-" is the standard input. Error: missing (with the nearest
/// name of its folder), a folder, not readable, empty, too large, or a Git LFS pointer in place of the content.
Result<std::string> read_text_file(const std::string& path, std::size_t most_bytes = std::size_t{64} << 20);

/// The first bytes of a regular file; fewer where it has fewer, none where it cannot be read.
std::string first_bytes_of(const std::string& path, std::size_t most_bytes);

enum class Overwrite { Refuse, Allow };

/// Writes a file whole: into a temporary file beside it, synced to the disk, then renamed. Whatever happens, `path`
/// holds the old content or the new one and never a part. A symbolic link is followed; a device or a pipe
/// ("/dev/stdout") is written to directly. Error: it exists and may not be overwritten, is a folder, has no folder, or
/// the disk refuses.
Result<void> write_file_atomically(const std::string& path, std::string_view content, Overwrite overwrite);

}  // namespace fsdp
