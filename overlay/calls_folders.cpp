// Folders: their contents, and the working folder of a process.
//
// A folder that both layers have is read completely when it is opened; readdir then returns our entries. Its DIR is
// still the C library's, with a descriptor that other calls understand.
//
// Not modeled: glob(3), ftw(3) and fts(3) read folders inside the C library and see one layer only. Python, Rust, the
// shell and the usual programs call opendir.

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "overlay/calls.h"
#include "overlay/entries.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

using namespace fsdp::overlay;

namespace {

struct Listing {
  DIR* folder = nullptr;
  Text path;
  std::vector<Entry> entries;
  std::size_t at = 0;
  dirent entry{};
};

std::mutex g_lock;
std::atomic<int> g_count = 0;

std::vector<std::unique_ptr<Listing>>& listings() {
  // Never destroyed: other threads may read folders until the process ends.
  static auto* const all = new std::vector<std::unique_ptr<Listing>>;
  return *all;
}

Listing* listing_of(DIR* folder) {
  if (g_count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::lock_guard lock(g_lock);
  for (const auto& each : listings()) {
    if (each->folder == folder) return each.get();
  }
  return nullptr;
}

void forget(DIR* folder) {
  if (g_count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(g_lock);
  g_count -= static_cast<int>(std::erase_if(listings(), [&](const auto& each) { return each->folder == folder; }));
}

/// Makes readdir answer from both layers, if this folder needs it.
void list(DIR* folder, const Place& place) {
  const bool in_both = place.layer == Layer::Upper && !place.hidden;
  const bool has_gaps = place.layer == Layer::Lower && place.marked;
  if (folder == nullptr || (!in_both && !has_gaps)) return;
  auto listing = std::make_unique<Listing>();
  listing->folder = folder;
  listing->path = place.path;
  if (entries_of(place, listing->entries) != 0) return;
  const std::lock_guard lock(g_lock);
  listings().push_back(std::move(listing));
  ++g_count;
}

bool reads_both() {
  return settings().active && !settings().watch && is_used();
}

const dirent* next_entry(Listing& listing) {
  if (listing.at >= listing.entries.size()) return nullptr;
  const Entry& entry = listing.entries[listing.at++];
  dirent& out = listing.entry;
  out.d_ino = entry.inode;
  out.d_off = static_cast<off_t>(listing.at);
  out.d_reclen = sizeof out;
  out.d_type = entry.type;
  const std::size_t size = std::min(entry.name.size(), sizeof out.d_name - 1);
  std::memcpy(out.d_name, entry.name.data(), size);
  out.d_name[size] = '\0';
  return &out;
}

char* working_folder(char* out, std::size_t room) {
  Text path;
  const long size = kernel::call(SYS_getcwd, kernel::to(path.data()), PATH_MAX);
  if (size < 0) return errno = static_cast<int>(-size), nullptr;
  path.cut(static_cast<std::size_t>(size) - 1);
  const std::string_view seen = settings().active ? without_upper(path.view()) : path.view();
  if (out == nullptr) {
    if (room != 0 && room <= seen.size()) return errno = ERANGE, nullptr;
    out = static_cast<char*>(std::malloc(std::max(room, seen.size() + 1)));
    if (out == nullptr) return nullptr;
  } else if (room <= seen.size()) {
    return errno = room == 0 ? EINVAL : ERANGE, nullptr;
  }
  std::memcpy(out, seen.data(), seen.size());
  out[seen.size()] = '\0';
  return out;
}

}  // namespace

FSDP_CALL DIR* opendir(const char* path) {
  const auto real_opendir = next<DIR*(const char*)>("opendir");
  if (!reads_both() || path[0] == 0) return real_opendir(path);
  Place place;
  int error = locate(AT_FDCWD, path, true, place);
  if (error == 0 && !place.exists && place.layer != Layer::Opaque) error = ENOENT;
  if (error != 0) return errno = error, nullptr;
  Text real;
  const Use use = for_reading(AT_FDCWD, path, true, real);
  if (use == Use::Fails) return nullptr;
  DIR* const folder = real_opendir(chosen(use, path, real));
  list(folder, place);
  return folder;
}

FSDP_CALL DIR* fdopendir(int file) {
  DIR* const folder = next<DIR*(int)>("fdopendir")(file);
  Text path;
  bool is_upper = false;
  Place place;
  if (folder != nullptr && reads_both() && path_of(file, path, is_upper) &&
      locate(AT_FDCWD, path.c_str(), false, place) == 0 && place.exists) {
    list(folder, place);
  }
  return folder;
}

FSDP_CALL dirent* readdir(DIR* folder) {
  if (Listing* listing = listing_of(folder)) return const_cast<dirent*>(next_entry(*listing));
  return next<dirent*(DIR*)>("readdir")(folder);
}
FSDP_ALSO(readdir64, readdir);

FSDP_CALL int readdir_r(DIR* folder, dirent* entry, dirent** result) {
  Listing* const listing = listing_of(folder);
  if (listing == nullptr) return next<int(DIR*, dirent*, dirent**)>("readdir_r")(folder, entry, result);
  const dirent* const found = next_entry(*listing);
  if (found != nullptr) *entry = *found;
  *result = found == nullptr ? nullptr : entry;
  return 0;
}
FSDP_ALSO(readdir64_r, readdir_r);

FSDP_CALL int closedir(DIR* folder) {
  forget(folder);
  return next<int(DIR*)>("closedir")(folder);
}

FSDP_CALL void rewinddir(DIR* folder) {
  next<void(DIR*)>("rewinddir")(folder);
  Listing* const listing = listing_of(folder);
  Place place;
  if (listing == nullptr || locate(AT_FDCWD, listing->path.c_str(), false, place) != 0) return;
  listing->at = 0;
  listing->entries.clear();
  entries_of(place, listing->entries);
}

FSDP_CALL long telldir(DIR* folder) {
  if (const Listing* listing = listing_of(folder)) return static_cast<long>(listing->at);
  return next<long(DIR*)>("telldir")(folder);
}

FSDP_CALL void seekdir(DIR* folder, long at) {
  if (Listing* listing = listing_of(folder)) {
    listing->at = static_cast<std::size_t>(at);
  } else {
    next<void(DIR*, long)>("seekdir")(folder, at);
  }
}

FSDP_CALL int scandirat(int base, const char* path, dirent*** names, int (*takes)(const dirent*),
                        int (*compare)(const dirent**, const dirent**)) {
  const int file = openat(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const folder = file < 0 ? nullptr : fdopendir(file);
  if (folder == nullptr) return -1;
  std::vector<dirent*> found;
  while (dirent* entry = readdir(folder)) {
    if (takes != nullptr && takes(entry) == 0) continue;
    auto* copy = static_cast<dirent*>(std::malloc(sizeof(dirent)));
    if (copy == nullptr) break;
    std::memcpy(copy, entry, std::min<std::size_t>(entry->d_reclen, sizeof(dirent)));
    found.push_back(copy);
  }
  closedir(folder);
  *names = static_cast<dirent**>(std::malloc(std::max<std::size_t>(1, found.size()) * sizeof(dirent*)));
  if (*names == nullptr) return -1;
  std::copy(found.begin(), found.end(), *names);
  if (compare != nullptr) {
    std::qsort(*names, found.size(), sizeof(dirent*), reinterpret_cast<int (*)(const void*, const void*)>(compare));
  }
  return static_cast<int>(found.size());
}
FSDP_ALSO(scandirat64, scandirat);
FSDP_CALL int scandir(const char* path, dirent*** names, int (*takes)(const dirent*),
                      int (*compare)(const dirent**, const dirent**)) {
  return scandirat(AT_FDCWD, path, names, takes, compare);
}
FSDP_ALSO(scandir64, scandir);

FSDP_CALL int chdir(const char* path) {
  Text real;
  const Use use = for_reading(AT_FDCWD, path, true, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(kernel::call(SYS_chdir, kernel::to(chosen(use, path, real)))));
}

FSDP_CALL char* getcwd(char* out, std::size_t room) {
  return working_folder(out, room);
}
FSDP_CALL char* __getcwd_chk(char* out, std::size_t room, std::size_t has) {
  if (has < room) std::abort();
  return working_folder(out, room);
}
FSDP_CALL char* getwd(char* out) {
  return working_folder(out, PATH_MAX);
}
FSDP_CALL char* get_current_dir_name() {
  return working_folder(nullptr, 0);
}
