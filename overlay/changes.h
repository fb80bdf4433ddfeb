#pragma once

// System calls that change the tree. Each takes a place that locate() found, leaves the lower layer as it is, and
// returns 0 or an error number.

#include <sys/types.h>

#include "overlay/place.h"

namespace fsdp::overlay {

/// How a file comes into the upper layer.
enum class Contents : unsigned char { Copied, Empty };

/// Makes the folders above `path` in the upper layer, with the modes that they have below.
int make_folders_above(std::string_view path);

/// Brings what is at a place of the lower layer into the upper one: a file with its contents, mode and times, a link,
/// or a folder without what is in it. Nothing to do for what is there already.
int raise(Place& place, Contents contents = Contents::Copied);

/// The same with all that is in a folder.
int raise_tree(Place& place);

/// Makes a new file with the contents and the mode of another.
int copy_file(const char* from, const char* to);

/// Hides what the lower layer has there.
int hide(const Place& place);

/// Whether something may be made in the folder of `path`, or taken out of it.
int may_change_folder_of(std::string_view path);

/// 0 for a folder in which neither layer has anything.
int must_be_empty(const Place& place);

int remove_file(Place& place);
int remove_folder(Place& place);
/// `flags` as of renameat2.
int rename(Place& from, Place& to, unsigned flags);

}  // namespace fsdp::overlay
