#pragma once

// Where a path leads when what the script wrote lies over what was there before.
//
// A path is followed component by component, through the links of both layers, to its canonical form. The upper layer
// is a tree of files under FSDP_OVERLAY: files/ holds what was written, removed/ a mark for each path of the lower
// layer that is gone. A marked path stays hidden for good, with all below it: later files there are in files/.

#include <sys/stat.h>

#include "overlay/text.h"

namespace fsdp::overlay {

enum class Layer : unsigned char {
  None,   ///< Nothing is there; its folder is.
  Lower,  ///< As it was before the rehearsal.
  Upper,  ///< Written since.
  Free,   ///< Nobody protects it: devices, /proc, the rehearsal's own folders.
  Opaque  ///< A link of the kernel's own, that no path stands for.
};

struct Place {
  Layer layer = Layer::None;
  bool exists = false;    ///< Also where it is free.
  bool hidden = false;    ///< The lower layer's entry at this path does not count.
  bool marked = false;    ///< There may be marks below it.
  bool crossed = false;   ///< The path as it was written may lead elsewhere in the lower layer.
  bool slash = false;     ///< The path was written with a "/" at its end.
  struct stat status {};  ///< Status of what exists.
  Text path;              ///< Canonical, as the script sees it.
};

/// Follows `path`, from the folder `base` (a descriptor, or AT_FDCWD) if it is relative. `follow`: also a link at its
/// end. Returns 0 or an error number.
int locate(int base, const char* path, bool follow, Place& place);

/// The folder or file that an open descriptor is of, as the script sees it, and whether it is in the upper layer.
/// False: it has no path.
bool path_of(int file, Text& path, bool& is_upper);

/// The name of the upper layer for a canonical path; of its mark.
bool upper_path(std::string_view path, Text& out);
bool mark_path(std::string_view path, Text& out);

/// Takes the upper layer's own name off a path, if it has it.
std::string_view without_upper(std::string_view path);

}  // namespace fsdp::overlay
