#pragma once

namespace fsdp::planner {

/// In the child, between fork and exec: from now on the kernel stops system calls that change a path with the signal
/// SIGSYS, in this process and all that it starts, but those that overlay/trap.cpp makes. Needs PR_SET_NO_NEW_PRIVS;
/// without it, or on a kernel without filters, nothing happens. Only what signal-safety(7) allows.
void stop_calls_that_change_paths();

}  // namespace fsdp::planner
