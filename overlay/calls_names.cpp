// Names: making, moving and removing them.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "overlay/calls.h"
#include "overlay/changes.h"
#include "overlay/kernel.h"
#include "overlay/settings.h"

using namespace fsdp::overlay;

namespace {

bool is_protected(const Place& place) {
  return place.layer != Layer::Free && place.layer != Layer::Opaque;
}

int result_of(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int unlink_at(int base, const char* path, int flags) {
  const auto as_is = [&] {
    return static_cast<int>(answer(kernel::call(SYS_unlinkat, base, kernel::to(path), flags)));
  };
  if (!settings().active) return as_is();
  Place place;
  if (const int error = locate(base, path, false, place)) return result_of(error);
  if (!is_protected(place) && !place.crossed) return as_is();
  if (!is_protected(place)) return result_of(-kernel::unlink(place.path.c_str(), flags));
  if (settings().watch) {
    if (place.exists) note(place.path.view());
    return as_is();
  }
  if (place.slash && (flags & AT_REMOVEDIR) == 0) return result_of(place.exists ? ENOTDIR : ENOENT);
  return result_of((flags & AT_REMOVEDIR) != 0 ? remove_folder(place) : remove_file(place));
}

int rename_at(int from_base, const char* from, int to_base, const char* to, unsigned flags) {
  const auto as_is = [&] {
    return static_cast<int>(answer(
        kernel::call(SYS_renameat2, from_base, kernel::to(from), to_base, kernel::to(to), static_cast<long>(flags))));
  };
  if (!settings().active) return as_is();
  Place source;
  Place target;
  if (const int error = locate(from_base, from, false, source)) return result_of(error);
  if (const int error = locate(to_base, to, false, target)) return result_of(error);
  if (source.layer == Layer::Opaque || target.layer == Layer::Opaque) return as_is();
  if (settings().watch) {
    for (const Place* place : {&source, &target}) {
      if (is_protected(*place) && source.exists) note(place->path.view());
    }
    return as_is();
  }
  return result_of(rename(source, target, flags));
}

int link_at(int from_base, const char* from, int to_base, const char* to, int flags) {
  const auto as_is = [&] {
    return static_cast<int>(
        answer(kernel::call(SYS_linkat, from_base, kernel::to(from), to_base, kernel::to(to), flags)));
  };
  if (!settings().active || from == nullptr || from[0] == '\0') return as_is();
  Place source;
  if (const int error = locate(from_base, from, (flags & AT_SYMLINK_FOLLOW) != 0, source)) return result_of(error);
  Text target;
  const Use use = for_making(to_base, to, target);
  if (use == Use::Fails) return -1;
  if (source.layer == Layer::Opaque) {
    // "/proc/self/fd/7": a file without a name gets one. Landlock does not know its folder, and refuses.
    const long result = kernel::call(SYS_linkat, from_base, kernel::to(from), chosen(use, to_base),
                                     kernel::to(chosen(use, to, target)), flags);
    if (result != -EXDEV || use != Use::Other) return static_cast<int>(answer(result));
    return result_of(copy_file(from, target.c_str()));
  }
  if (settings().watch) return as_is();
  if (!source.exists) return result_of(ENOENT);
  if (S_ISDIR(source.status.st_mode)) return result_of(EPERM);
  // Another name would change the file's count of names.
  if (const int error = raise(source)) return result_of(error);
  Text real;
  if (source.layer == Layer::Upper) {
    upper_path(source.path.view(), real);
  } else {
    real = source.path;
  }
  return static_cast<int>(answer(kernel::call(SYS_linkat, AT_FDCWD, kernel::to(real.c_str()), chosen(use, to_base),
                                              kernel::to(chosen(use, to, target)), 0)));
}

int symlink_at(const char* target, int base, const char* path) {
  Text real;
  const Use use = for_making(base, path, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(
      answer(kernel::call(SYS_symlinkat, kernel::to(target), chosen(use, base), kernel::to(chosen(use, path, real)))));
}

int make_node(int base, const char* path, mode_t mode, dev_t device) {
  Text real;
  const Use use = for_making(base, path, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(kernel::call(SYS_mknodat, chosen(use, base), kernel::to(chosen(use, path, real)),
                                              static_cast<long>(mode), static_cast<long>(device))));
}

int make_folder(int base, const char* path, mode_t mode) {
  Text real;
  const Use use = for_making(base, path, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(
      kernel::call(SYS_mkdirat, chosen(use, base), kernel::to(chosen(use, path, real)), static_cast<long>(mode))));
}

}  // namespace

FSDP_CALL int unlink(const char* path) {
  return unlink_at(AT_FDCWD, path, 0);
}
FSDP_CALL int unlinkat(int base, const char* path, int flags) {
  return unlink_at(base, path, flags);
}
FSDP_CALL int rmdir(const char* path) {
  return unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}
FSDP_CALL int remove(const char* path) {
  const int result = unlink_at(AT_FDCWD, path, 0);
  return result != 0 && (errno == EISDIR || errno == ENOTDIR || errno == EPERM)
             ? unlink_at(AT_FDCWD, path, AT_REMOVEDIR)
             : result;
}

FSDP_CALL int rename(const char* from, const char* to) {
  return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
FSDP_CALL int renameat(int from_base, const char* from, int to_base, const char* to) {
  return rename_at(from_base, from, to_base, to, 0);
}
FSDP_CALL int renameat2(int from_base, const char* from, int to_base, const char* to, unsigned flags) {
  return rename_at(from_base, from, to_base, to, flags);
}

FSDP_CALL int link(const char* from, const char* to) {
  return link_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
FSDP_CALL int linkat(int from_base, const char* from, int to_base, const char* to, int flags) {
  return link_at(from_base, from, to_base, to, flags);
}
FSDP_CALL int symlink(const char* target, const char* path) {
  return symlink_at(target, AT_FDCWD, path);
}
FSDP_CALL int symlinkat(const char* target, int base, const char* path) {
  return symlink_at(target, base, path);
}

FSDP_CALL int mkdir(const char* path, mode_t mode) {
  return make_folder(AT_FDCWD, path, mode);
}
FSDP_CALL int mkdirat(int base, const char* path, mode_t mode) {
  return make_folder(base, path, mode);
}
FSDP_CALL int mknod(const char* path, mode_t mode, dev_t device) {
  return make_node(AT_FDCWD, path, mode, device);
}
FSDP_CALL int mknodat(int base, const char* path, mode_t mode, dev_t device) {
  return make_node(base, path, mode, device);
}
FSDP_CALL int __xmknod(int, const char* path, mode_t mode, dev_t* device) {
  return make_node(AT_FDCWD, path, mode, *device);
}
FSDP_CALL int __xmknodat(int, int base, const char* path, mode_t mode, dev_t* device) {
  return make_node(base, path, mode, *device);
}
FSDP_CALL int mkfifo(const char* path, mode_t mode) {
  return make_node(AT_FDCWD, path, mode | S_IFIFO, 0);
}
FSDP_CALL int mkfifoat(int base, const char* path, mode_t mode) {
  return make_node(base, path, mode | S_IFIFO, 0);
}
