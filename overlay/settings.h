#pragma once

// The command's settings for this library, in environment variables:
//
//   FSDP_OVERLAY         folder of the upper layer; the library does nothing without it
//   FSDP_OVERLAY_FREE    folders that are not protected, separated by line breaks
//   FSDP_OVERLAY_WATCH   "1": writes go to their original places, and their paths are recorded in the file `log`

#include "overlay/text.h"

namespace fsdp::overlay {

struct Settings {
  bool active = false;
  bool watch = false;
  Text folder;
  Text free;             ///< As it was passed.
  char* used = nullptr;  ///< One byte that all processes share: whether the upper layer has any entry.
};

/// Read once, from the environment.
const Settings& settings();

inline bool is_used() {
  return settings().used == nullptr || *settings().used != 0;
}
void set_used();

/// Whether this canonical path is not protected.
bool is_free(std::string_view path);

/// Records a path that is written to, in watch mode.
void note(std::string_view path);

}  // namespace fsdp::overlay
