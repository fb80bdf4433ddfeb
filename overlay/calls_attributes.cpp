// Mode, owner, times and extended attributes: by path, and by descriptors, which need not be open for writing.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include <cerrno>

#include "overlay/calls.h"
#include "overlay/kernel.h"

using namespace fsdp::overlay;

namespace {

/// `call` with a folder's descriptor and a path.
template <class Call>
int change_path(int base, const char* path, bool follow, Call call) {
  Text real;
  const Use use = for_changing(base, path, follow, real);
  return use == Use::Fails ? -1 : static_cast<int>(answer(call(chosen(use, base), chosen(use, path, real))));
}

/// Calls `by_file` for an open file that is not protected, otherwise `by_path` with its path in the upper layer.
template <class ByFile, class ByPath>
int change_file(int file, ByFile by_file, ByPath by_path) {
  Text real;
  const Use use = for_changing(file, real);
  if (use == Use::Fails) return -1;
  return static_cast<int>(answer(use == Use::AsIs ? by_file() : by_path(real.c_str())));
}

int change_mode(int base, const char* path, mode_t mode, bool follow) {
  return change_path(base, path, follow, [&](int at, const char* real) {
    return kernel::call(SYS_fchmodat, at, kernel::to(real), static_cast<long>(mode));
  });
}

int change_owner(int base, const char* path, uid_t user, gid_t group, int flags) {
  return change_path(base, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, [&](int at, const char* real) {
    return kernel::call(SYS_fchownat, at, kernel::to(real), static_cast<long>(user), static_cast<long>(group), flags);
  });
}

int change_times(int base, const char* path, const timespec* times, int flags) {
  return change_path(base, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, [&](int at, const char* real) {
    return kernel::call(SYS_utimensat, at, kernel::to(real), kernel::to(times), flags);
  });
}

int change_times_of_file(int file, const timespec* times) {
  return change_file(
      file, [&] { return kernel::call(SYS_utimensat, file, 0, kernel::to(times), 0); },
      [&](const char* real) { return kernel::call(SYS_utimensat, AT_FDCWD, kernel::to(real), kernel::to(times), 0); });
}

/// In nanoseconds. Null stays null and means now.
struct Times {
  explicit Times(const timeval* from) : given(from != nullptr) {
    for (int i = 0; given && i < 2; ++i) both[i] = {from[i].tv_sec, from[i].tv_usec * 1000};
  }
  const timespec* get() const { return given ? both : nullptr; }
  bool given;
  timespec both[2] = {};
};

}  // namespace

FSDP_CALL int chmod(const char* path, mode_t mode) {
  return change_mode(AT_FDCWD, path, mode, true);
}
FSDP_CALL int fchmodat(int base, const char* path, mode_t mode, int flags) {
  if ((flags & AT_SYMLINK_NOFOLLOW) != 0) return errno = EOPNOTSUPP, -1;
  return change_mode(base, path, mode, true);
}
FSDP_CALL int fchmod(int file, mode_t mode) {
  return change_file(
      file, [&] { return kernel::call(SYS_fchmod, file, static_cast<long>(mode)); },
      [&](const char* real) {
        return kernel::call(SYS_fchmodat, AT_FDCWD, kernel::to(real), static_cast<long>(mode));
      });
}

FSDP_CALL int chown(const char* path, uid_t user, gid_t group) {
  return change_owner(AT_FDCWD, path, user, group, 0);
}
FSDP_CALL int lchown(const char* path, uid_t user, gid_t group) {
  return change_owner(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}
FSDP_CALL int fchownat(int base, const char* path, uid_t user, gid_t group, int flags) {
  return change_owner(base, path, user, group, flags);
}
FSDP_CALL int fchown(int file, uid_t user, gid_t group) {
  return change_file(
      file, [&] { return kernel::call(SYS_fchown, file, static_cast<long>(user), static_cast<long>(group)); },
      [&](const char* real) {
        return kernel::call(SYS_fchownat, AT_FDCWD, kernel::to(real), static_cast<long>(user), static_cast<long>(group),
                            0);
      });
}

FSDP_CALL int utimensat(int base, const char* path, const timespec times[2], int flags) {
  return change_times(base, path, times, flags);
}
FSDP_CALL int futimens(int file, const timespec times[2]) {
  return change_times_of_file(file, times);
}
FSDP_CALL int utime(const char* path, const utimbuf* times) {
  timespec both[2] = {};
  if (times != nullptr) {
    both[0].tv_sec = times->actime;
    both[1].tv_sec = times->modtime;
  }
  return change_times(AT_FDCWD, path, times == nullptr ? nullptr : both, 0);
}
FSDP_CALL int utimes(const char* path, const timeval times[2]) {
  return change_times(AT_FDCWD, path, Times(times).get(), 0);
}
FSDP_CALL int lutimes(const char* path, const timeval times[2]) {
  return change_times(AT_FDCWD, path, Times(times).get(), AT_SYMLINK_NOFOLLOW);
}
FSDP_CALL int futimes(int file, const timeval times[2]) {
  return change_times_of_file(file, Times(times).get());
}
FSDP_CALL int futimesat(int base, const char* path, const timeval times[2]) {
  return change_times(base, path, Times(times).get(), 0);
}

FSDP_CALL int setxattr(const char* path, const char* name, const void* value, std::size_t size, int flags) {
  return change_path(AT_FDCWD, path, true, [&](int, const char* real) {
    return kernel::call(SYS_setxattr, kernel::to(real), kernel::to(name), kernel::to(value), static_cast<long>(size),
                        flags);
  });
}
FSDP_CALL int lsetxattr(const char* path, const char* name, const void* value, std::size_t size, int flags) {
  return change_path(AT_FDCWD, path, false, [&](int, const char* real) {
    return kernel::call(SYS_lsetxattr, kernel::to(real), kernel::to(name), kernel::to(value), static_cast<long>(size),
                        flags);
  });
}
FSDP_CALL int fsetxattr(int file, const char* name, const void* value, std::size_t size, int flags) {
  const auto rest = [&](long call, long first) {
    return kernel::call(call, first, kernel::to(name), kernel::to(value), static_cast<long>(size), flags);
  };
  return change_file(
      file, [&] { return rest(SYS_fsetxattr, file); },
      [&](const char* real) { return rest(SYS_setxattr, kernel::to(real)); });
}
FSDP_CALL int removexattr(const char* path, const char* name) {
  return change_path(AT_FDCWD, path, true, [&](int, const char* real) {
    return kernel::call(SYS_removexattr, kernel::to(real), kernel::to(name));
  });
}
FSDP_CALL int lremovexattr(const char* path, const char* name) {
  return change_path(AT_FDCWD, path, false, [&](int, const char* real) {
    return kernel::call(SYS_lremovexattr, kernel::to(real), kernel::to(name));
  });
}
FSDP_CALL int fremovexattr(int file, const char* name) {
  return change_file(
      file, [&] { return kernel::call(SYS_fremovexattr, file, kernel::to(name)); },
      [&](const char* real) { return kernel::call(SYS_removexattr, kernel::to(real), kernel::to(name)); });
}
