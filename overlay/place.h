#pragma once

// Resolves a path to a place in the script's writes laid over the original files.
//
// A path is followed component by component, through the links of both layers, to its canonical form. The upper layer
// is a tree of files under FSDP_OVERLAY: files/ contains the writes, removed/ a mark for each removed path of the lower
// layer. A marked path stays hidden for good, with everything below it; later files at that path are in files/.

#include <sys/stat.h>

#include "overlay/text.h"

namespace fsdp::overlay {

enum class Layer : unsigned char {
  None,   ///< No file, but its folder exists.
  Lower,  ///< Unchanged since before the rehearsal.
  Upper,  ///< Written since.
  Free,   ///< Not protected: devices, /proc, the rehearsal's own folders.
  Opaque  ///< A link of the kernel's own that no path names.
};

struct Place {
  Layer layer = Layer::None;
  bool exists = false;    ///< True for a free place, too.
  bool hidden = false;    ///< The lower layer's entry at this path is hidden.
  bool marked = false;    ///< There may be marks below it.
  bool crossed = false;   ///< The path as it was written may lead elsewhere in the lower layer.
  bool slash = false;     ///< The path was written with a "/" at its end.
  struct stat status {};  ///< Status of the file, if it exists.
  Text path;              ///< Canonical, as the script sees it.
};

/// Follows `path`, from the folder `base` (a descriptor, or AT_FDCWD) if it is relative. `follow`: follows a link at
/// its end, too. Returns 0 or an error number.
int locate(int base, const char* path, bool follow, Place& place);

/// The path of an open file or folder, as the script sees it, and whether it is in the upper layer. False if it has no
/// path.
bool path_of(int file, Text& path, bool& is_upper);

/// The path in the upper layer for a canonical path, and that of its mark.
bool upper_path(std::string_view path, Text& out);
bool mark_path(std::string_view path, Text& out);

/// Removes the upper layer's own prefix from a path, if it has it.
std::string_view without_upper(std::string_view path);

}  // namespace fsdp::overlay
