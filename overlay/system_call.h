#pragma once

namespace fsdp::overlay {

/// The arguments of a system call, as in its registers.
struct Arguments {
  long a[6];
};

/// Makes a system call by its number: those that take paths by the functions that stand in for them, all others as they
/// are. Returns what the C library would, -1 with errno.
long system_call(long number, const Arguments& with);

/// Has the calls that the rehearsal's filter stops answered by `system_call` in this process, and lets this library's
/// own pass.
void take_stopped_calls();

}  // namespace fsdp::overlay
