#include "overlay/entries.h"

#include <dirent.h>

#include <cerrno>
#include <set>

#include "overlay/kernel.h"

namespace fsdp::overlay {

namespace {

/// linux_dirent64 of getdents(2).
struct KernelEntry {
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short size;
  unsigned char type;
  char name[1];
};

template <class Take>
int read_folder(const char* path, Take take) {
  const int file = kernel::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return -file;
  alignas(KernelEntry) char room[16384];
  long size = 0;
  while ((size = kernel::call(SYS_getdents64, file, kernel::to(room), sizeof room)) > 0) {
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const KernelEntry*>(room + at);
      take(*entry);
      at += entry->size;
    }
  }
  kernel::close(file);
  return static_cast<int>(-size);
}

}  // namespace

int entries_of(const Place& folder, std::vector<Entry>& entries) {
  std::set<std::string, std::less<>> seen;
  Text other;
  if (folder.layer == Layer::Upper) {
    if (!upper_path(folder.path.view(), other)) return ENAMETOOLONG;
    const int error = read_folder(other.c_str(), [&](const KernelEntry& entry) {
      seen.insert(entry.name);
      entries.push_back({entry.inode, entry.type, entry.name});
    });
    if (error != 0) return error;
  }
  if (folder.hidden) return 0;
  const int error = read_folder(folder.path.c_str(), [&](const KernelEntry& entry) {
    if (seen.contains(std::string_view(entry.name))) return;
    if (folder.marked) {
      Text path(folder.path.view());
      if (path.view() != "/") path.append("/");
      Text mark;
      if (path.append(entry.name) && mark_path(path.view(), mark) && kernel::access(mark.c_str(), F_OK) == 0) return;
    }
    entries.push_back({entry.inode, entry.type, entry.name});
  });
  // A folder that exists only in the upper layer is not in the lower one.
  return folder.layer == Layer::Upper && (error == ENOENT || error == ENOTDIR) ? 0 : error;
}

}  // namespace fsdp::overlay
