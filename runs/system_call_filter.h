#pragma once

namespace fsdp::runs {

/// In the child, between fork and exec: makes the kernel answer system calls that change a path with SIGSYS, in this
/// process and all that it starts, except those of overlay/trap.cpp. Needs PR_SET_NO_NEW_PRIVS; without it, or on a
/// kernel without filters, it does nothing. Calls only functions that signal-safety(7) allows.
void stop_calls_that_change_paths();

}  // namespace fsdp::runs
