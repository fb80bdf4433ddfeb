#pragma once

// Macros for the files that replace functions of the C library.

#include <dlfcn.h>

#include "overlay/use.h"

/// A function that the dynamic linker finds before the C library's.
#define FSDP_CALL extern "C" __attribute__((visibility("default")))

/// Another name of a function in the same file: `open64` is `open` if files may have 64-bit sizes anyway.
#define FSDP_ALSO(other, name) __asm__(".globl " #other "\n.type " #other ", %function\n.set " #other ", " #name)

namespace fsdp::overlay {

/// The function that this library hides. Not for functions that may be called before the library is ready.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// A path as a C string, valid during the call only: the script's, or the other one.
inline const char* chosen(Use use, const char* path, const Text& real) {
  return use == Use::Other ? real.c_str() : path;
}
inline int chosen(Use use, int base) {
  return use == Use::Other ? -100 : base;  // AT_FDCWD
}

}  // namespace fsdp::overlay
