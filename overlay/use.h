#pragma once

// Which path a call of the C library goes on with. All of these take the path as the script gave it, do what has to be
// done before (bring a file into the upper layer, make folders), and say what comes next.

#include "overlay/place.h"

namespace fsdp::overlay {

enum class Use : unsigned char {
  AsIs,   ///< With the arguments as they are.
  Other,  ///< With `real`, an absolute path.
  Fails   ///< Not at all; errno says why.
};

/// Looks at what is there. `follow`: at what a link leads to.
Use for_reading(int base, const char* path, bool follow, Text& real);

/// Opens with these flags of open(2).
Use for_opening(int base, const char* path, int flags, Text& real);

/// Changes something of what is there: its mode, times, length.
Use for_changing(int base, const char* path, bool follow, Text& real);
/// The same for an open file; AsIs also where it is in the upper layer.
Use for_changing(int file, Text& real);

/// Makes something that is not there yet: a folder, a link, a socket.
Use for_making(int base, const char* path, Text& real);

/// The flags of open(2) for a mode of fopen(3), as far as they matter here.
int flags_of_mode(const char* mode);

/// A result of the kernel's as the C library gives it: -1, and errno.
long answer(long result);

/// Sets errno, and returns Fails.
Use fails(int error);

}  // namespace fsdp::overlay
