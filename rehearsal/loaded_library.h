#pragma once

// Functions of the real libraries, which are also loaded and which the stub hides.

namespace fsdp::rehearsal {

/// The function `name` of the loaded library whose file name starts with `library`, as "libnccl.so"; null if there is
/// none.
void* real_function(const char* library, const char* name);

/// The result of a real library's function of the form `int f(int* version)`; `otherwise` if the library is not loaded
/// or the call fails.
int real_version(const char* library, const char* function, int otherwise);

}  // namespace fsdp::rehearsal
