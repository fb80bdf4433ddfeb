// A file is copied next to the upper layer and then moved to its place, so that other processes of the same run see
// either all of it or nothing. Nothing is ever written to a path of the lower layer.
//
// Not modeled: hard links (a file that is raised has only one name), access lists and extended attributes, which a copy
// lacks.

#include "overlay/changes.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cerrno>

#include "overlay/entries.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

namespace fsdp::overlay {

namespace {

constexpr mode_t kModeBits = 07777;

int copy_contents(int from, int to) {
  if (kernel::call(SYS_ioctl, to, FICLONE, from) == 0) return 0;
  bool by_kernel = true;
  char room[8192];
  while (true) {
    long count = -1;
    if (by_kernel) {
      count = kernel::call(SYS_copy_file_range, from, 0, to, 0, 1L << 30, 0);
      // It may not be possible between file systems, and on old kernels.
      by_kernel = count >= 0;
    }
    if (!by_kernel) {
      count = kernel::call(SYS_read, from, kernel::to(room), sizeof room);
      for (long done = 0; done < count;) {
        const long written = kernel::call(SYS_write, to, kernel::to(room + done), count - done);
        if (written < 0) return static_cast<int>(-written);
        done += written;
      }
    }
    if (count <= 0) return static_cast<int>(-count);
  }
}

/// A name in the folder copies/, which no other thread uses.
void work_path(Text& out) {
  static unsigned counter = 0;
  out.assign(settings().folder.view());
  out.append("/copies/");
  const auto add = [&](unsigned long number) {
    char digits[24];
    std::size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    while (count > 0) out.append({&digits[--count], 1});
  };
  add(static_cast<unsigned long>(kernel::call(SYS_gettid)));
  out.append("-");
  add(__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED));
}

void keep_times(const char* path, const struct stat& status) {
  const timespec times[2] = {status.st_atim, status.st_mtim};
  kernel::call(SYS_utimensat, AT_FDCWD, kernel::to(path), kernel::to(times), AT_SYMLINK_NOFOLLOW);
}

int raise_file(const Place& place, const char* to, Contents contents) {
  Text work;
  work_path(work);
  const int file = kernel::open(work.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return -file;
  int error = 0;
  if (contents == Contents::Copied) {
    const int from = kernel::open(place.path.c_str(), O_RDONLY | O_CLOEXEC);
    error = from < 0 ? -from : copy_contents(from, file);
    if (from >= 0) kernel::close(from);
  }
  kernel::call(SYS_fchown, file, place.status.st_uid, place.status.st_gid);
  kernel::call(SYS_fchmod, file, place.status.st_mode & kModeBits);
  kernel::close(file);
  keep_times(work.c_str(), place.status);
  if (error == 0) error = -kernel::rename(work.c_str(), to, RENAME_NOREPLACE);
  if (error == EINVAL) error = -kernel::rename(work.c_str(), to);  // a file system that does not support the flag
  if (error != 0) kernel::unlink(work.c_str());
  return error == EEXIST ? 0 : error;
}

int raise_link(const Place& place, const char* to) {
  Text target;
  const long size = kernel::read_link(place.path.c_str(), target.data(), PATH_MAX - 1);
  if (size < 0) return static_cast<int>(-size);
  target.cut(static_cast<std::size_t>(size));
  const int error = -kernel::link_to(target.c_str(), to);
  return error == EEXIST ? 0 : error;
}

/// Makes the folders of a path below the folder of the overlay, starting after `skip` bytes. `like_lower`: with the
/// modes of the lower layer.
int make_folders(Text& path, std::size_t skip, bool like_lower) {
  for (std::size_t at = skip + 1; at <= path.size(); ++at) {
    if (at != path.size() && path.c_str()[at] != '/') continue;
    Text part(path.view().substr(0, at));
    mode_t mode = 0700;
    struct stat status {};
    if (like_lower && kernel::status(part.c_str() + skip, status) == 0) mode |= status.st_mode & kModeBits;
    const int error = -kernel::make_folder(part.c_str(), mode);
    if (error == 0 && like_lower) kernel::call(SYS_fchmodat, AT_FDCWD, kernel::to(part.c_str()), mode);
    if (error != 0 && error != EEXIST) return error;
  }
  return 0;
}

int must_be_writable(const char* path) {
  return -kernel::access(path, W_OK);
}

}  // namespace

int make_folders_above(std::string_view path) {
  set_used();
  const std::string_view folder = folder_of(path);
  if (folder == "/") return 0;
  Text upper;
  if (!upper_path(folder, upper)) return ENAMETOOLONG;
  if (kernel::access(upper.c_str(), F_OK) == 0) return 0;
  return make_folders(upper, upper.size() - folder.size(), true);
}

int may_change_folder_of(std::string_view path) {
  Text folder(folder_of(path));
  Text upper;
  if (!upper_path(folder.view(), upper)) return ENAMETOOLONG;
  if (kernel::access(upper.c_str(), F_OK) == 0) return must_be_writable(upper.c_str());
  return must_be_writable(folder.c_str());
}

int raise(Place& place, Contents contents) {
  if (place.layer != Layer::Lower) return 0;
  Text upper;
  if (!upper_path(place.path.view(), upper)) return ENAMETOOLONG;
  int error = make_folders_above(place.path.view());
  if (error != 0) return error;
  if (S_ISREG(place.status.st_mode)) {
    error = raise_file(place, upper.c_str(), contents);
  } else if (S_ISLNK(place.status.st_mode)) {
    error = raise_link(place, upper.c_str());
  } else if (S_ISDIR(place.status.st_mode)) {
    error = make_folders(upper, upper.size() - place.path.size(), true);
    keep_times(upper.c_str(), place.status);
  } else {
    error = EPERM;
  }
  if (error == 0) place.layer = Layer::Upper;
  return error;
}

int raise_tree(Place& place) {
  if (!S_ISDIR(place.status.st_mode)) return raise(place);
  std::vector<Entry> entries;
  int error = entries_of(place, entries);
  if (error == 0) error = raise(place);
  for (const Entry& entry : entries) {
    if (error != 0) break;
    if (entry.name == "." || entry.name == "..") continue;
    Text path(place.path.view());
    Place child;
    if (!path.append("/") || !path.append(entry.name)) return ENAMETOOLONG;
    error = locate(AT_FDCWD, path.c_str(), false, child);
    if (error == 0) error = raise_tree(child);
  }
  return error;
}

int copy_file(const char* from, const char* to) {
  const int source = kernel::open(from, O_RDONLY | O_CLOEXEC);
  if (source < 0) return -source;
  struct stat status {};
  kernel::call(SYS_fstat, source, kernel::to(&status));
  const int target = kernel::open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status.st_mode & kModeBits);
  const int error = target < 0 ? -target : copy_contents(source, target);
  kernel::close(source);
  if (target >= 0) kernel::close(target);
  return error;
}

int hide(const Place& place) {
  set_used();
  struct stat status {};
  if (place.hidden || kernel::status(place.path.c_str(), status) != 0) return 0;
  Text mark;
  if (!mark_path(place.path.view(), mark)) return ENAMETOOLONG;
  Text folder(folder_of(mark.view()));
  const std::size_t skip = settings().folder.size() + std::string_view("/removed").size();
  if (folder.size() > skip) {
    if (const int error = make_folders(folder, skip, false)) return error;
  }
  const int file = kernel::open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return -file;
  kernel::close(file);
  return 0;
}

int must_be_empty(const Place& place) {
  std::vector<Entry> entries;
  const int error = entries_of(place, entries);
  if (error != 0) return error;
  for (const Entry& entry : entries) {
    if (entry.name != "." && entry.name != "..") return ENOTEMPTY;
  }
  return 0;
}

int remove_file(Place& place) {
  if (!place.exists) return ENOENT;
  if (S_ISDIR(place.status.st_mode)) return EISDIR;
  if (const int error = may_change_folder_of(place.path.view())) return error;
  if (const int error = hide(place)) return error;
  Text upper;
  if (place.layer != Layer::Upper) return 0;
  return upper_path(place.path.view(), upper) ? -kernel::unlink(upper.c_str()) : ENAMETOOLONG;
}

int remove_folder(Place& place) {
  if (!place.exists) return ENOENT;
  if (!S_ISDIR(place.status.st_mode)) return ENOTDIR;
  if (const int error = may_change_folder_of(place.path.view())) return error;
  if (const int error = must_be_empty(place)) return error;
  if (place.layer == Layer::Upper) {
    Text upper;
    if (!upper_path(place.path.view(), upper)) return ENAMETOOLONG;
    if (const int error = -kernel::unlink(upper.c_str(), AT_REMOVEDIR)) return error;
  }
  return hide(place);
}

int rename(Place& from, Place& to, unsigned flags) {
  if (!from.exists) return ENOENT;
  const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
  if (exchanges && !to.exists) return ENOENT;
  if (to.exists && (flags & RENAME_NOREPLACE) != 0) return EEXIST;
  if (from.path.view() == to.path.view()) return 0;
  const bool is_folder = S_ISDIR(from.status.st_mode);
  if (is_folder && is_in(to.path.view(), from.path.view())) return EINVAL;
  if (to.exists && !exchanges) {
    const bool onto_folder = S_ISDIR(to.status.st_mode);
    if (is_folder != onto_folder) return onto_folder ? EISDIR : ENOTDIR;
    if (onto_folder) {
      if (const int error = must_be_empty(to)) return error;
    }
  }
  for (Place* place : {&from, &to}) {
    if (place->layer == Layer::Free) continue;
    if (const int error = may_change_folder_of(place->path.view())) return error;
    if (const int error = make_folders_above(place->path.view())) return error;
    if (place == &from || exchanges) {
      if (const int error = raise_tree(*place)) return error;
    }
  }
  Text source;
  Text target;
  const auto real = [](const Place& place, Text& out) {
    return place.layer == Layer::Free ? out.assign(place.path.view()) : upper_path(place.path.view(), out);
  };
  if (!real(from, source) || !real(to, target)) return ENAMETOOLONG;
  if (const int error = -kernel::rename(source.c_str(), target.c_str(), flags)) return error;
  if (to.layer != Layer::Free) {
    if (const int error = hide(to)) return error;
  }
  return from.layer == Layer::Free ? 0 : hide(from);
}

}  // namespace fsdp::overlay
