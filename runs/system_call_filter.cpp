// A program for the kernel's filter of system calls. It asks where the call comes from, and what it is; opening a file
// is looked at by its flags, since the dynamic linker opens files for reading before any handler is there.
//
// Sources: seccomp(2); linux/filter.h. Of a 64-bit value only 32 bits are seen at a time.

#include "runs/system_call_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace fsdp::planner {

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

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
/// Goes on `yes` or `no` instructions later.
constexpr sock_filter jump(int test, std::uint32_t value, std::size_t yes, std::size_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), value, static_cast<std::uint8_t>(yes),
                  static_cast<std::uint8_t>(no));
}

#if defined(SYS_open)
constexpr std::size_t kOpens = 6;
#else
constexpr std::size_t kOpens = 3;
#endif
constexpr std::size_t kHead = 8;
constexpr std::size_t kSize = kHead + kStopped.size() + kOpens + 2;

constexpr std::array<sock_filter, kSize> make_program() {
  std::array<sock_filter, kSize> program{};
  std::size_t at = 0;
  const auto add = [&](sock_filter each) { program[at++] = each; };
  constexpr std::size_t kPass = kSize - 2;
  constexpr std::size_t kStop = kSize - 1;
  const auto to = [&](std::size_t place) { return place - at - 1; };
  add(load(offsetof(seccomp_data, arch)));
  add(jump(BPF_JEQ, kMachine, 0, to(kPass)));
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
  return program;
}

constexpr std::array<sock_filter, kSize> kProgram = make_program();

}  // namespace

void stop_calls_that_change_paths() {
  const sock_fprog program{static_cast<unsigned short>(kProgram.size()), const_cast<sock_filter*>(kProgram.data())};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

}  // namespace fsdp::planner
