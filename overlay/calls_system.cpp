// syscall(2): programs that know a system call before their C library does make it by its number. Calls that take paths
// go through the functions that replace them; all others go to the kernel unchanged.

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

/// openat2 has its flags in a struct, and may forbid links; the prepared path has none.
long open_as_told(const Read& with) {
  const auto* how = with.at<const struct open_how>(2);
  Text real;
  const Use use = for_opening(with.number(0), with.at(1), static_cast<int>(how->flags), real);
  if (use == Use::Fails) return -1;
  return answer(kernel::call(SYS_openat2, chosen(use, with.number(0)), kernel::to(chosen(use, with.at(1), real)),
                             with.a[2], with.a[3]));
}

/// A call that takes a path, with the function that replaces it.
struct PathCall {
  long number;
  long (*run)(const Read&);
};
constexpr PathCall kPathCalls[] = {
    {SYS_openat,
     [](const Read& with) -> long { return openat(with.number(0), with.at(1), with.number(2), with.mode(3)); }},
    {SYS_openat2, [](const Read& with) -> long { return open_as_told(with); }},
    {SYS_renameat,
     [](const Read& with) -> long { return renameat(with.number(0), with.at(1), with.number(2), with.at(3)); }},
    {SYS_renameat2,
     [](const Read& with) -> long {
       return renameat2(with.number(0), with.at(1), with.number(2), with.at(3), static_cast<unsigned>(with.a[4]));
     }},
    {SYS_unlinkat, [](const Read& with) -> long { return unlinkat(with.number(0), with.at(1), with.number(2)); }},
    {SYS_mkdirat, [](const Read& with) -> long { return mkdirat(with.number(0), with.at(1), with.mode(2)); }},
    {SYS_linkat,
     [](const Read& with) -> long {
       return linkat(with.number(0), with.at(1), with.number(2), with.at(3), with.number(4));
     }},
    {SYS_symlinkat, [](const Read& with) -> long { return symlinkat(with.at(0), with.number(1), with.at(2)); }},
    {SYS_mknodat,
     [](const Read& with) -> long {
       return mknodat(with.number(0), with.at(1), with.mode(2), static_cast<dev_t>(with.a[3]));
     }},
    {SYS_truncate, [](const Read& with) -> long { return truncate(with.at(0), with.a[1]); }},
    {SYS_fchmodat, [](const Read& with) -> long { return fchmodat(with.number(0), with.at(1), with.mode(2), 0); }},
    {kSetModeOfPath,
     [](const Read& with) -> long { return fchmodat(with.number(0), with.at(1), with.mode(2), with.number(3)); }},
    {SYS_fchownat,
     [](const Read& with) -> long {
       return fchownat(with.number(0), with.at(1), static_cast<uid_t>(with.a[2]), static_cast<gid_t>(with.a[3]),
                       with.number(4));
     }},
    {SYS_newfstatat,
     [](const Read& with) -> long {
       return fstatat(with.number(0), with.at(1), with.at<struct stat>(2), with.number(3));
     }},
    {SYS_statx,
     [](const Read& with) -> long {
       return statx(with.number(0), with.at(1), with.number(2), static_cast<unsigned>(with.a[3]),
                    with.at<struct statx>(4));
     }},
    {SYS_utimensat,
     [](const Read& with) -> long {
       return with.at(1) == nullptr ? futimens(with.number(0), with.at<const timespec>(2))
                                    : utimensat(with.number(0), with.at(1), with.at<const timespec>(2), with.number(3));
     }},
    {SYS_setxattr,
     [](const Read& with) -> long {
       return setxattr(with.at(0), with.at(1), with.at<const void>(2), static_cast<std::size_t>(with.a[3]),
                       with.number(4));
     }},
    {SYS_lsetxattr,
     [](const Read& with) -> long {
       return lsetxattr(with.at(0), with.at(1), with.at<const void>(2), static_cast<std::size_t>(with.a[3]),
                        with.number(4));
     }},
    {SYS_fsetxattr,
     [](const Read& with) -> long {
       return fsetxattr(with.number(0), with.at(1), with.at<const void>(2), static_cast<std::size_t>(with.a[3]),
                        with.number(4));
     }},
    {SYS_removexattr, [](const Read& with) -> long { return removexattr(with.at(0), with.at(1)); }},
    {SYS_lremovexattr, [](const Read& with) -> long { return lremovexattr(with.at(0), with.at(1)); }},
    {SYS_fremovexattr, [](const Read& with) -> long { return fremovexattr(with.number(0), with.at(1)); }},
    {SYS_fchmod, [](const Read& with) -> long { return fchmod(with.number(0), with.mode(1)); }},
    {SYS_fchown,
     [](const Read& with) -> long {
       return fchown(with.number(0), static_cast<uid_t>(with.a[1]), static_cast<gid_t>(with.a[2]));
     }},
    {SYS_faccessat, [](const Read& with) -> long { return faccessat(with.number(0), with.at(1), with.number(2), 0); }},
    {SYS_readlinkat,
     [](const Read& with) -> long {
       return readlinkat(with.number(0), with.at(1), with.at<char>(2), static_cast<std::size_t>(with.a[3]));
     }},
    {SYS_execve,
     [](const Read& with) -> long { return execve(with.at(0), with.at<char* const>(1), with.at<char* const>(2)); }},
#if defined(SYS_open)
    // Older numbers that newer machines do not have.
    {SYS_open, [](const Read& with) -> long { return open(with.at(0), with.number(1), with.mode(2)); }},
    {SYS_creat, [](const Read& with) -> long { return creat(with.at(0), with.mode(1)); }},
    {SYS_rename, [](const Read& with) -> long { return rename(with.at(0), with.at(1)); }},
    {SYS_unlink, [](const Read& with) -> long { return unlink(with.at(0)); }},
    {SYS_rmdir, [](const Read& with) -> long { return rmdir(with.at(0)); }},
    {SYS_mkdir, [](const Read& with) -> long { return mkdir(with.at(0), with.mode(1)); }},
    {SYS_link, [](const Read& with) -> long { return link(with.at(0), with.at(1)); }},
    {SYS_symlink, [](const Read& with) -> long { return symlink(with.at(0), with.at(1)); }},
    {SYS_mknod,
     [](const Read& with) -> long { return mknod(with.at(0), with.mode(1), static_cast<dev_t>(with.a[2])); }},
    {SYS_chown,
     [](const Read& with) -> long {
       return chown(with.at(0), static_cast<uid_t>(with.a[1]), static_cast<gid_t>(with.a[2]));
     }},
    {SYS_lchown,
     [](const Read& with) -> long {
       return lchown(with.at(0), static_cast<uid_t>(with.a[1]), static_cast<gid_t>(with.a[2]));
     }},
    {SYS_utime, [](const Read& with) -> long { return utime(with.at(0), with.at<const utimbuf>(1)); }},
    {SYS_utimes, [](const Read& with) -> long { return utimes(with.at(0), with.at<const timeval>(1)); }},
    {SYS_futimesat,
     [](const Read& with) -> long { return futimesat(with.number(0), with.at(1), with.at<const timeval>(2)); }},
    {SYS_chmod, [](const Read& with) -> long { return chmod(with.at(0), with.mode(1)); }},
    {SYS_stat, [](const Read& with) -> long { return stat(with.at(0), with.at<struct stat>(1)); }},
    {SYS_lstat, [](const Read& with) -> long { return lstat(with.at(0), with.at<struct stat>(1)); }},
    {SYS_access, [](const Read& with) -> long { return access(with.at(0), with.number(1)); }},
    {SYS_readlink,
     [](const Read& with) -> long {
       return readlink(with.at(0), with.at<char>(1), static_cast<std::size_t>(with.a[2]));
     }},
#endif
};

}  // namespace

long fsdp::overlay::system_call(long number, const Arguments& with) {
  for (const PathCall& call : kPathCalls) {
    if (call.number == number) return call.run(Read{with});
  }
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
