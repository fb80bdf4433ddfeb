// A program for the kernel's filter of system calls. In this order:
//
//   another architecture's calls   (int 0x80 of 64-bit programs, 32-bit programs) end the process: their numbers mean
//                                  other calls
//   calls that reach what no path  leads to, or files past the calls that are stopped: x32's, io_uring, System V IPC,
//                                  message queues, attributes by path (Linux 6.13 and later). As on a kernel without
//                                  them: ENOSYS
//   ioctls that change a file      which may be open for reading only: EOPNOTSUPP, as on a file system without flags
//   calls from the page of overlay/trap.cpp pass
//   calls that change a path       SIGSYS, whose handler does what the function of that name does. Opening a file is
//                                  looked at by its flags, since the dynamic linker opens files for reading before any
//                                  handler is there
//
// Sources: seccomp(2); linux/filter.h; linux/fs.h. A filter sees only 32 bits of a 64-bit value at a time.

#include "runs/system_call_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <linux/fsverity.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace fsdp::runs {

namespace {

// The page of overlay/trap.cpp.
constexpr std::uint32_t kPageHigh = 0x4f;
constexpr std::uint32_t kPageLow = 0x5d000000;
constexpr std::uint32_t kPageSize = 4096;

#if defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
#endif
constexpr std::uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
constexpr int kSetModeOfPath = 452;  // fchmodat2, Linux 6.6.

constexpr std::array kStopped = {
    SYS_openat2,   SYS_renameat,    SYS_renameat2,    SYS_unlinkat,     SYS_mkdirat,    SYS_linkat,   SYS_symlinkat,
    SYS_mknodat,   SYS_truncate,    SYS_fchmodat,     SYS_fchownat,     SYS_utimensat,  SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, kSetModeOfPath, SYS_fchmod,   SYS_fchown,
#if defined(SYS_open)
    SYS_creat,     SYS_rename,      SYS_unlink,       SYS_rmdir,        SYS_mkdir,      SYS_link,     SYS_symlink,
    SYS_mknod,     SYS_chmod,       SYS_chown,        SYS_lchown,       SYS_utime,      SYS_utimes,   SYS_futimesat,
#endif
};

/// For x32: numbers with this bit are those of x86-64 or others, by a table of its own.
constexpr std::uint32_t kX32 = 0x40000000;

constexpr int kSetAttributeAt = 463;     // setxattrat, Linux 6.13.
constexpr int kRemoveAttributeAt = 466;  // removexattrat, the same.
constexpr int kSetFileAttributes = 469;  // file_setattr, Linux 6.17: what FS_IOC_FSSETXATTR does.

constexpr std::array kAbsent = {
    SYS_io_uring_setup, SYS_shmget,    SYS_shmat,       SYS_shmctl,         SYS_semget,         SYS_semop,
    SYS_semtimedop,     SYS_semctl,    SYS_msgget,      SYS_msgsnd,         SYS_msgrcv,         SYS_msgctl,
    SYS_mq_open,        SYS_mq_unlink, kSetAttributeAt, kRemoveAttributeAt, kSetFileAttributes,
};

constexpr std::array<std::uint32_t, 6> kRefusedRequests = {
    static_cast<std::uint32_t>(FS_IOC_SETFLAGS),      static_cast<std::uint32_t>(FS_IOC32_SETFLAGS),
    static_cast<std::uint32_t>(FS_IOC_SETVERSION),    static_cast<std::uint32_t>(FS_IOC_FSSETXATTR),
    static_cast<std::uint32_t>(FS_IOC_ENABLE_VERITY), static_cast<std::uint32_t>(FS_IOC_SET_ENCRYPTION_POLICY),
};

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
/// Continues `yes` or `no` instructions later.
constexpr sock_filter jump(int test, std::uint32_t value, std::size_t yes, std::size_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), value, static_cast<std::uint8_t>(yes),
                  static_cast<std::uint8_t>(no));
}

#if defined(SYS_open)
constexpr std::size_t kOpens = 6;
#else
constexpr std::size_t kOpens = 3;
#endif
constexpr std::size_t kHead = 4;
constexpr std::size_t kIoctl = 3 + kRefusedRequests.size();
constexpr std::size_t kPage = 6;
constexpr std::size_t kReturns = 5;
constexpr std::size_t kSize = kHead + kAbsent.size() + kIoctl + kPage + kStopped.size() + kOpens + kReturns;

constexpr std::array<sock_filter, kSize> make_program() {
  std::array<sock_filter, kSize> program{};
  std::size_t at = 0;
  const auto add = [&](sock_filter each) { program[at++] = each; };
  constexpr std::size_t kPass = kSize - 5;
  constexpr std::size_t kStop = kSize - 4;
  constexpr std::size_t kSayAbsent = kSize - 3;
  constexpr std::size_t kSayUnsupported = kSize - 2;
  constexpr std::size_t kKill = kSize - 1;
  const auto to = [&](std::size_t place) { return place - at - 1; };
  add(load(offsetof(seccomp_data, arch)));
  add(jump(BPF_JEQ, kMachine, 0, to(kKill)));
  add(load(offsetof(seccomp_data, nr)));
  add(jump(BPF_JGE, kX32, to(kSayAbsent), 0));
  for (const auto number : kAbsent) add(jump(BPF_JEQ, static_cast<std::uint32_t>(number), to(kSayAbsent), 0));
  add(jump(BPF_JEQ, SYS_ioctl, 0, kIoctl - 1));
  add(load(offsetof(seccomp_data, args[1])));
  for (const std::uint32_t request : kRefusedRequests) add(jump(BPF_JEQ, request, to(kSayUnsupported), 0));
  add(BPF_STMT(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(to(kPass))));
  add(load(offsetof(seccomp_data, instruction_pointer) + 4));
  add(jump(BPF_JEQ, kPageHigh, 0, 3));
  add(load(offsetof(seccomp_data, instruction_pointer)));
  add(jump(BPF_JGE, kPageLow, 0, 1));
  add(jump(BPF_JGE, kPageLow + kPageSize, 0, to(kPass)));
  add(load(offsetof(seccomp_data, nr)));
  for (const auto number : kStopped) add(jump(BPF_JEQ, static_cast<std::uint32_t>(number), to(kStop), 0));
#if defined(SYS_open)
  add(jump(BPF_JEQ, SYS_open, 0, 2));
  add(load(offsetof(seccomp_data, args[1])));
  add(jump(BPF_JSET, kWriting, to(kStop), to(kPass)));
#endif
  add(jump(BPF_JEQ, SYS_openat, 0, to(kPass)));
  add(load(offsetof(seccomp_data, args[2])));
  add(jump(BPF_JSET, kWriting, to(kStop), to(kPass)));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  return program;
}

constexpr std::array<sock_filter, kSize> kProgram = make_program();

}  // namespace

void stop_calls_that_change_paths() {
  const sock_fprog program{static_cast<unsigned short>(kProgram.size()), const_cast<sock_filter*>(kProgram.data())};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

}  // namespace fsdp::runs
