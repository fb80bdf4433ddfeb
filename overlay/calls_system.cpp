// syscall(2): programs that know a system call before their C library does make it by its number. Those that take paths
// go the way of the functions that stand in for them; all others go to the kernel as they are.

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include <cstdarg>
#include <cstdint>

#include "overlay/calls.h"
#include "overlay/kernel.h"
#include "overlay/system_call.h"

using namespace fsdp::overlay;

namespace {

constexpr long kSetModeOfPath = 452;  // fchmodat2, Linux 6.6.

struct Read : Arguments {
  int number(int i) const { return static_cast<int>(a[i]); }
  template <class T = const char>
  T* at(int i) const {
    return reinterpret_cast<T*>(a[i]);
  }
  mode_t mode(int i) const { return static_cast<mode_t>(a[i]); }
};

/// openat2 has its flags in a struct, and may forbid links, which the prepared path has none of.
long open_as_told(const Read& with) {
  const auto* how = with.at<const struct open_how>(2);
  Text real;
  const Use use = for_opening(with.number(0), with.at(1), static_cast<int>(how->flags), real);
  if (use == Use::Fails) return -1;
  return answer(kernel::call(SYS_openat2, chosen(use, with.number(0)), kernel::to(chosen(use, with.at(1), real)),
                             with.a[2], with.a[3]));
}

/// Whether a call takes a path; then `result` is what it returns.
bool goes_by_path(long number, const Read& with, long& result) {
  switch (number) {
    case SYS_openat:
      result = openat(with.number(0), with.at(1), with.number(2), with.mode(3));
      return true;
    case SYS_openat2:
      result = open_as_told(with);
      return true;
    case SYS_renameat:
      result = renameat(with.number(0), with.at(1), with.number(2), with.at(3));
      return true;
    case SYS_renameat2:
      result = renameat2(with.number(0), with.at(1), with.number(2), with.at(3), static_cast<unsigned>(with.a[4]));
      return true;
    case SYS_unlinkat:
      result = unlinkat(with.number(0), with.at(1), with.number(2));
      return true;
    case SYS_mkdirat:
      result = mkdirat(with.number(0), with.at(1), with.mode(2));
      return true;
    case SYS_linkat:
      result = linkat(with.number(0), with.at(1), with.number(2), with.at(3), with.number(4));
      return true;
    case SYS_symlinkat:
      result = symlinkat(with.at(0), with.number(1), with.at(2));
      return true;
    case SYS_mknodat:
      result = mknodat(with.number(0), with.at(1), with.mode(2), static_cast<dev_t>(with.a[3]));
      return true;
    case SYS_truncate:
      result = truncate(with.at(0), with.a[1]);
      return true;
    case SYS_fchmodat:
      result = fchmodat(with.number(0), with.at(1), with.mode(2), 0);
      return true;
    case kSetModeOfPath:
      result = fchmodat(with.number(0), with.at(1), with.mode(2), with.number(3));
      return true;
    case SYS_fchownat:
      result = fchownat(with.number(0), with.at(1), static_cast<uid_t>(with.a[2]), static_cast<gid_t>(with.a[3]),
                        with.number(4));
      return true;
    case SYS_newfstatat:
      result = fstatat(with.number(0), with.at(1), with.at<struct stat>(2), with.number(3));
      return true;
    case SYS_statx:
      result =
          statx(with.number(0), with.at(1), with.number(2), static_cast<unsigned>(with.a[3]), with.at<struct statx>(4));
      return true;
    case SYS_utimensat:
      result = with.at(1) == nullptr
                   ? futimens(with.number(0), with.at<const timespec>(2))
                   : utimensat(with.number(0), with.at(1), with.at<const timespec>(2), with.number(3));
      return true;
    case SYS_setxattr:
      result =
          setxattr(with.at(0), with.at(1), with.at<const void>(2), static_cast<std::size_t>(with.a[3]), with.number(4));
      return true;
    case SYS_lsetxattr:
      result = lsetxattr(with.at(0), with.at(1), with.at<const void>(2), static_cast<std::size_t>(with.a[3]),
                         with.number(4));
      return true;
    case SYS_fsetxattr:
      result = fsetxattr(with.number(0), with.at(1), with.at<const void>(2), static_cast<std::size_t>(with.a[3]),
                         with.number(4));
      return true;
    case SYS_removexattr:
      result = removexattr(with.at(0), with.at(1));
      return true;
    case SYS_lremovexattr:
      result = lremovexattr(with.at(0), with.at(1));
      return true;
    case SYS_fremovexattr:
      result = fremovexattr(with.number(0), with.at(1));
      return true;
    case SYS_fchmod:
      result = fchmod(with.number(0), with.mode(1));
      return true;
    case SYS_fchown:
      result = fchown(with.number(0), static_cast<uid_t>(with.a[1]), static_cast<gid_t>(with.a[2]));
      return true;
    case SYS_faccessat:
      result = faccessat(with.number(0), with.at(1), with.number(2), 0);
      return true;
    case SYS_readlinkat:
      result = readlinkat(with.number(0), with.at(1), with.at<char>(2), static_cast<std::size_t>(with.a[3]));
      return true;
    case SYS_execve:
      result = execve(with.at(0), with.at<char* const>(1), with.at<char* const>(2));
      return true;
#if defined(SYS_open)
    // Older numbers, that newer machines do not have.
    case SYS_open:
      result = open(with.at(0), with.number(1), with.mode(2));
      return true;
    case SYS_creat:
      result = creat(with.at(0), with.mode(1));
      return true;
    case SYS_rename:
      result = rename(with.at(0), with.at(1));
      return true;
    case SYS_unlink:
      result = unlink(with.at(0));
      return true;
    case SYS_rmdir:
      result = rmdir(with.at(0));
      return true;
    case SYS_mkdir:
      result = mkdir(with.at(0), with.mode(1));
      return true;
    case SYS_link:
      result = link(with.at(0), with.at(1));
      return true;
    case SYS_symlink:
      result = symlink(with.at(0), with.at(1));
      return true;
    case SYS_mknod:
      result = mknod(with.at(0), with.mode(1), static_cast<dev_t>(with.a[2]));
      return true;
    case SYS_chown:
      result = chown(with.at(0), static_cast<uid_t>(with.a[1]), static_cast<gid_t>(with.a[2]));
      return true;
    case SYS_lchown:
      result = lchown(with.at(0), static_cast<uid_t>(with.a[1]), static_cast<gid_t>(with.a[2]));
      return true;
    case SYS_utime:
      result = utime(with.at(0), with.at<const utimbuf>(1));
      return true;
    case SYS_utimes:
      result = utimes(with.at(0), with.at<const timeval>(1));
      return true;
    case SYS_futimesat:
      result = futimesat(with.number(0), with.at(1), with.at<const timeval>(2));
      return true;
    case SYS_chmod:
      result = chmod(with.at(0), with.mode(1));
      return true;
    case SYS_stat:
      result = stat(with.at(0), with.at<struct stat>(1));
      return true;
    case SYS_lstat:
      result = lstat(with.at(0), with.at<struct stat>(1));
      return true;
    case SYS_access:
      result = access(with.at(0), with.number(1));
      return true;
    case SYS_readlink:
      result = readlink(with.at(0), with.at<char>(1), static_cast<std::size_t>(with.a[2]));
      return true;
#endif
    default:
      return false;
  }
}

}  // namespace

long fsdp::overlay::system_call(long number, const Arguments& with) {
  long result = 0;
  if (goes_by_path(number, Read{with}, result)) return result;
  return answer(kernel::call(number, with.a[0], with.a[1], with.a[2], with.a[3], with.a[4], with.a[5]));
}

FSDP_CALL long syscall(long number, ...) {
  Arguments with{};
  va_list arguments;
  va_start(arguments, number);
  for (long& each : with.a) each = va_arg(arguments, long);
  va_end(arguments);
  return system_call(number, with);
}
