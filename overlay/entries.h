#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "overlay/place.h"

namespace fsdp::overlay {

struct Entry {
  std::uint64_t inode = 0;
  unsigned char type = 0;  ///< DT_REG and so on.
  std::string name;
};

/// The entries of a folder in both layers, including "." and "..": the upper layer first, each layer in the order of
/// its file system. Returns 0 or an error number.
int entries_of(const Place& folder, std::vector<Entry>& entries);

}  // namespace fsdp::overlay
