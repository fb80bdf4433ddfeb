// Queries about files.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "overlay/calls.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

using namespace fsdp::overlay;

namespace {

int status_at(int base, const char* path, void* out, int flags) {
  Text real;
  const Use use = for_reading(base, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(
      kernel::call(SYS_newfstatat, chosen(use, base), kernel::to(chosen(use, path, real)), kernel::to(out), flags)));
}

int access_at(int base, const char* path, int mode, int flags) {
  Text real;
  const Use use = for_reading(base, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, real);
  if (use == Use::Fails) return -1;
  const long with = kernel::to(chosen(use, path, real));
  long result = flags == 0 ? -ENOSYS : kernel::call(SYS_faccessat2, chosen(use, base), with, mode, flags);
  if (result == -ENOSYS) result = kernel::call(SYS_faccessat, chosen(use, base), with, mode);
  return static_cast<int>(answer(result));
}

/// The kernel's path of a descriptor or the working folder may be in the upper layer.
ssize_t link_at(int base, const char* path, char* out, std::size_t room) {
  Text real;
  const Use use = for_reading(base, path, false, real);
  if (use == Use::Fails) return -1;
  const long size = answer(kernel::call(SYS_readlinkat, chosen(use, base), kernel::to(chosen(use, path, real)),
                                        kernel::to(out), static_cast<long>(room)));
  if (size <= 0 || !settings().active) return size;
  const std::string_view found(out, static_cast<std::size_t>(size));
  const std::string_view seen = without_upper(found);
  if (seen.size() == found.size()) return size;
  std::memmove(out, seen.data(), seen.size());
  return static_cast<ssize_t>(seen.size());
}

char* canonical(const char* path, char* out) {
  if (path == nullptr || path[0] == '\0') {
    errno = path == nullptr ? EINVAL : ENOENT;
    return nullptr;
  }
  Place place;
  int error = locate(AT_FDCWD, path, true, place);
  if (place.layer == Layer::Opaque) return next<char*(const char*, char*)>("realpath")(path, out);
  if (error == 0 && !place.exists) error = ENOENT;
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  if (out == nullptr) return strdup(place.path.c_str());
  std::memcpy(out, place.path.c_str(), place.path.size() + 1);
  return out;
}

template <class Call>
int on_what_is_there(const char* path, bool follow, Call call) {
  Text real;
  const Use use = for_reading(AT_FDCWD, path, follow, real);
  return use == Use::Fails ? -1 : call(chosen(use, path, real));
}

}  // namespace

FSDP_CALL int stat(const char* path, struct stat* out) {
  return status_at(AT_FDCWD, path, out, 0);
}
FSDP_ALSO(stat64, stat);
FSDP_CALL int lstat(const char* path, struct stat* out) {
  return status_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
FSDP_ALSO(lstat64, lstat);
FSDP_CALL int fstatat(int base, const char* path, struct stat* out, int flags) {
  return status_at(base, path, out, flags);
}
FSDP_ALSO(fstatat64, fstatat);
// Names of the same functions before version 2.33 of the C library.
FSDP_CALL int __xstat(int, const char* path, struct stat* out) {
  return status_at(AT_FDCWD, path, out, 0);
}
FSDP_ALSO(__xstat64, __xstat);
FSDP_CALL int __lxstat(int, const char* path, struct stat* out) {
  return status_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
FSDP_ALSO(__lxstat64, __lxstat);
FSDP_CALL int __fxstatat(int, int base, const char* path, struct stat* out, int flags) {
  return status_at(base, path, out, flags);
}
FSDP_ALSO(__fxstatat64, __fxstatat);
FSDP_CALL int statx(int base, const char* path, int flags, unsigned mask, struct statx* out) {
  Text real;
  const Use use = for_reading(base, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(kernel::call(SYS_statx, chosen(use, base), kernel::to(chosen(use, path, real)), flags,
                                              static_cast<long>(mask), kernel::to(out))));
}

FSDP_CALL int access(const char* path, int mode) {
  return access_at(AT_FDCWD, path, mode, 0);
}
FSDP_CALL int faccessat(int base, const char* path, int mode, int flags) {
  return access_at(base, path, mode, flags);
}
FSDP_CALL int eaccess(const char* path, int mode) {
  return access_at(AT_FDCWD, path, mode, AT_EACCESS);
}
FSDP_ALSO(euidaccess, eaccess);

FSDP_CALL ssize_t readlink(const char* path, char* out, std::size_t room) {
  return link_at(AT_FDCWD, path, out, room);
}
FSDP_CALL ssize_t readlinkat(int base, const char* path, char* out, std::size_t room) {
  return link_at(base, path, out, room);
}
FSDP_CALL ssize_t __readlink_chk(const char* path, char* out, std::size_t room, std::size_t has) {
  if (has < room) std::abort();
  return link_at(AT_FDCWD, path, out, room);
}
FSDP_CALL ssize_t __readlinkat_chk(int base, const char* path, char* out, std::size_t room, std::size_t has) {
  if (has < room) std::abort();
  return link_at(base, path, out, room);
}

FSDP_CALL char* realpath(const char* path, char* out) {
  if (!settings().active) return next<char*(const char*, char*)>("realpath")(path, out);
  return canonical(path, out);
}
FSDP_CALL char* __realpath_chk(const char* path, char* out, std::size_t has) {
  if (has < PATH_MAX) std::abort();
  return realpath(path, out);
}
FSDP_CALL char* canonicalize_file_name(const char* path) {
  return realpath(path, nullptr);
}

FSDP_CALL int statfs(const char* path, struct statfs* out) {
  return on_what_is_there(path, true, [&](const char* real) {
    return static_cast<int>(answer(kernel::call(SYS_statfs, kernel::to(real), kernel::to(out))));
  });
}
FSDP_ALSO(statfs64, statfs);
FSDP_CALL int statvfs(const char* path, struct statvfs* out) {
  return on_what_is_there(
      path, true, [&](const char* real) { return next<int(const char*, struct statvfs*)>("statvfs")(real, out); });
}
FSDP_ALSO(statvfs64, statvfs);

FSDP_CALL ssize_t getxattr(const char* path, const char* name, void* value, std::size_t size) {
  return on_what_is_there(path, true, [&](const char* real) {
    return static_cast<int>(answer(
        kernel::call(SYS_getxattr, kernel::to(real), kernel::to(name), kernel::to(value), static_cast<long>(size))));
  });
}
FSDP_CALL ssize_t lgetxattr(const char* path, const char* name, void* value, std::size_t size) {
  return on_what_is_there(path, false, [&](const char* real) {
    return static_cast<int>(answer(
        kernel::call(SYS_lgetxattr, kernel::to(real), kernel::to(name), kernel::to(value), static_cast<long>(size))));
  });
}
FSDP_CALL ssize_t listxattr(const char* path, char* list, std::size_t size) {
  return on_what_is_there(path, true, [&](const char* real) {
    return static_cast<int>(
        answer(kernel::call(SYS_listxattr, kernel::to(real), kernel::to(list), static_cast<long>(size))));
  });
}
FSDP_CALL ssize_t llistxattr(const char* path, char* list, std::size_t size) {
  return on_what_is_there(path, false, [&](const char* real) {
    return static_cast<int>(
        answer(kernel::call(SYS_llistxattr, kernel::to(real), kernel::to(list), static_cast<long>(size))));
  });
}
