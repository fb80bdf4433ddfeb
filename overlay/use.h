#pragma once

// Chooses the path for a call of the C library. All of these take the path as the script passed it, prepare the file
// system (copy a file into the upper layer, make folders), and return how the call continues.

#include "overlay/place.h"

namespace fsdp::overlay {

enum class Use : unsigned char {
  AsIs,   ///< With the original arguments.
  Other,  ///< With `real`, an absolute path.
  Fails   ///< Not at all; errno has the reason.
};

/// For a call that reads. `follow`: reads the target of a link.
Use for_reading(int base, const char* path, bool follow, Text& real);

/// For a call with these flags of open(2).
Use for_opening(int base, const char* path, int flags, Text& real);

/// For a call that changes an existing file: its mode, times, length.
Use for_changing(int base, const char* path, bool follow, Text& real);
/// The same for an open file; AsIs if it is in the upper layer already.
Use for_changing(int file, Text& real);

/// For a call that makes a new entry: a folder, a link, a socket.
Use for_making(int base, const char* path, Text& real);

/// The flags of open(2) for a mode of fopen(3), as far as they matter here.
int flags_of_mode(const char* mode);

/// A result of the kernel in the C library's form: -1, and errno.
long answer(long result);

/// Sets errno, and returns Fails.
Use fails(int error);

}  // namespace fsdp::overlay
