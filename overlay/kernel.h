#pragma once

// System calls that bypass the C library's functions, which this library replaces. Each returns the kernel's result: a
// negative number is an error number. The kernel's `struct stat` is the C library's on 64-bit machines.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdp::overlay::kernel {

/// The caller of `call`: code at an address that the rehearsal's filter of system calls lets pass (trap.cpp). Null if
/// there is no filter.
using Caller = long (*)(long, long, long, long, long, long, long);
extern Caller caller;

/// Six arguments in registers; does not set errno. Sources: syscall(2), "Architecture calling conventions".
inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  if (caller != nullptr) return caller(number, a, b, c, d, e, f);
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#else
#error "The system calls of this machine are not known here."
#endif
}

inline long to(const void* pointer) {
  return reinterpret_cast<long>(pointer);
}

inline int open(const char* path, int flags, mode_t mode = 0) {
  return static_cast<int>(call(SYS_openat, AT_FDCWD, to(path), flags, static_cast<long>(mode)));
}
inline int close(int file) {
  return static_cast<int>(call(SYS_close, file));
}
inline int status(const char* path, struct stat& out, int flags = AT_SYMLINK_NOFOLLOW) {
  return static_cast<int>(call(SYS_newfstatat, AT_FDCWD, to(path), to(&out), flags));
}
inline int access(const char* path, int mode) {
  // faccessat2 knows AT_EACCESS, but is newer; scripts run under the real user's own id.
  return static_cast<int>(call(SYS_faccessat, AT_FDCWD, to(path), mode));
}
inline long read_link(const char* path, char* out, std::size_t room) {
  return call(SYS_readlinkat, AT_FDCWD, to(path), to(out), static_cast<long>(room));
}
inline int make_folder(const char* path, mode_t mode) {
  return static_cast<int>(call(SYS_mkdirat, AT_FDCWD, to(path), static_cast<long>(mode)));
}
inline int unlink(const char* path, int flags = 0) {
  return static_cast<int>(call(SYS_unlinkat, AT_FDCWD, to(path), flags));
}
inline int rename(const char* from, const char* to_path, unsigned flags = 0) {
  return static_cast<int>(call(SYS_renameat2, AT_FDCWD, to(from), AT_FDCWD, to(to_path), static_cast<long>(flags)));
}
inline int link_to(const char* target, const char* path) {
  return static_cast<int>(call(SYS_symlinkat, to(target), AT_FDCWD, to(path)));
}

}  // namespace fsdp::overlay::kernel
