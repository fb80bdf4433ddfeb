#pragma once

// Functions of the real libraries, which are loaded beside the stub and would be found without it.

namespace fsdp::rehearsal {

/// The function `name` of the loaded library whose file name starts with `library`, as "libnccl.so"; null if there is
/// none.
void* real_function(const char* library, const char* name);

/// Calls a function of the form `int f(int* version)` of a real library. `otherwise`, if it is not loaded or fails.
int real_version(const char* library, const char* function, int otherwise);

}  // namespace fsdp::rehearsal
