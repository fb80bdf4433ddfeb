#pragma once

// System calls that change the tree. Each takes a place from locate(), does not change the lower layer, and returns 0
// or an error number.

#include <sys/types.h>

#include "overlay/place.h"

namespace fsdp::overlay {

/// How a file is created in the upper layer.
enum class Contents : unsigned char { Copied, Empty };

/// Makes the folders above `path` in the upper layer, with their modes of the lower layer.
int make_folders_above(std::string_view path);

/// Copies a place of the lower layer into the upper one: a file with its contents, mode and times; a link; or a folder
/// without its contents. Does nothing if it is there already.
int raise(Place& place, Contents contents = Contents::Copied);

/// The same for a folder with all its contents.
int raise_tree(Place& place);

/// Makes a new file with the contents and the mode of another.
int copy_file(const char* from, const char* to);

/// Hides the lower layer's entry at this place.
int hide(const Place& place);

/// Whether the folder of `path` permits making or removing entries.
int may_change_folder_of(std::string_view path);

/// 0 if neither layer has an entry in the folder.
int must_be_empty(const Place& place);

int remove_file(Place& place);
int remove_folder(Place& place);
/// `flags` are those of renameat2.
int rename(Place& from, Place& to, unsigned flags);

}  // namespace fsdp::overlay
