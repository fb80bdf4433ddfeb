// System calls that bypass the C library.
//
// Some libraries make them directly: Rust's rustix, and with it safetensors when it renames a finished file. In a
// rehearsal the kernel stops each call that changes a path (runs/system_call_filter.h) with the signal SIGSYS, and the
// handler here does what the function of that name would do. Calls from one page of memory pass; this library makes its
// own there. A filter cannot change in a program that starts later, so the page is at the same address in every
// process.
//
// Sources: seccomp(2), SECCOMP_RET_TRAP; mmap(2), MAP_FIXED_NOREPLACE.

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "overlay/kernel.h"
#include "overlay/system_call.h"

namespace fsdp::overlay {

kernel::Caller kernel::caller = nullptr;

namespace {

// The same number stands in runs/system_call_filter.cpp. It is below 2^39, the smallest address space of 64-bit
// machines.
constexpr std::uintptr_t kPage = 0x4f5d000000;
constexpr std::size_t kPageSize = 4096;

#if defined(__x86_64__)
// mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; mov r8, r9; mov r9, [rsp + 8]; syscall; ret
constexpr unsigned char kCode[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d,
                                   0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
#else
// mov x8, x0; mov x0, x1; ... mov x5, x6; svc 0; ret
constexpr std::uint32_t kCode[] = {0xaa0003e8, 0xaa0103e0, 0xaa0203e1, 0xaa0303e2, 0xaa0403e3,
                                   0xaa0503e4, 0xaa0603e5, 0xd4000001, 0xd65f03c0};
#endif

void on_stopped_call(int, siginfo_t*, void* context) {
  const int error = errno;
#if defined(__x86_64__)
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const Arguments with{{registers[REG_RDI], registers[REG_RSI], registers[REG_RDX], registers[REG_R10],
                        registers[REG_R8], registers[REG_R9]}};
  greg_t& result = registers[REG_RAX];
  const long number = result;
#else
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.regs;
  const auto at = [&](int i) { return static_cast<long>(registers[i]); };
  const Arguments with{{at(0), at(1), at(2), at(3), at(4), at(5)}};
  auto& result = registers[0];
  const long number = at(8);
#endif
  const long answered = system_call(number, with);
  result = answered == -1 ? -errno : answered;
  errno = error;
}

}  // namespace

void take_stopped_calls() {
  const long at = kernel::call(SYS_mmap, static_cast<long>(kPage), kPageSize, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1);
  if (at != static_cast<long>(kPage)) return;
  auto* const page = reinterpret_cast<char*>(kPage);
  std::memcpy(page, kCode, sizeof kCode);
  if (kernel::call(SYS_mprotect, at, kPageSize, PROT_READ | PROT_EXEC) != 0) return;
  __builtin___clear_cache(page, page + sizeof kCode);
  kernel::caller = reinterpret_cast<kernel::Caller>(kPage);
  struct sigaction action {};
  action.sa_sigaction = on_stopped_call;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  sigaction(SIGSYS, &action, nullptr);
  sigset_t stopped;
  sigemptyset(&stopped);
  sigaddset(&stopped, SIGSYS);
  sigprocmask(SIG_UNBLOCK, &stopped, nullptr);
}

}  // namespace fsdp::overlay
