#pragma once

namespace fsdp::overlay {

/// The arguments of a system call, as in its registers.
struct Arguments {
  long a[6];
};

/// Makes a system call by its number. Calls that take paths go through the functions that replace them, all others to
/// the kernel unchanged. Returns what the C library would: -1 with errno.
long system_call(long number, const Arguments& with);

/// Makes `system_call` answer the calls that the rehearsal's filter stops in this process, and lets this library's own
/// calls pass.
void take_stopped_calls();

}  // namespace fsdp::overlay
