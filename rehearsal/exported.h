#pragma once

// Macros that define CUDA's functions.
//
// The stub is preloaded, so its exported functions are found before those of the same name in libcudart, libcublas,
// libcudnn and libnccl. Everything else in the library is hidden.
//
// A function whose arguments do not matter is written without them: under the calling conventions of x86-64 and AArch64
// the caller removes its own arguments, and the headers of those libraries are not needed.

#include "rehearsal/counters.h"
#include "rehearsal/handles.h"
#include "rehearsal/missing_functions.h"

/// Visible to the dynamic linker.
#define FSDP_STUB_API __attribute__((visibility("default")))

/// The start of a definition of a CUDA function.
#define FSDP_STUB extern "C" FSDP_STUB_API

/// Does nothing and succeeds: 0 is success in all of these libraries.
#define FSDP_STUB_SUCCEEDS(name) \
  FSDP_STUB int name() {         \
    return 0;                    \
  }

/// Does nothing, succeeds and counts.
#define FSDP_STUB_COUNTED(name, counter)                       \
  FSDP_STUB int name() {                                       \
    fsdp::rehearsal::count(fsdp::rehearsal::Counter::counter); \
    return 0;                                                  \
  }

/// Makes an opaque object and returns its handle in the first argument.
#define FSDP_STUB_CREATES(name)                \
  FSDP_STUB int name(void** handle) {          \
    *handle = fsdp::rehearsal::fresh_handle(); \
    return 0;                                  \
  }

/// A function of CUDA that the stub does not have: returns the library's own error status, and records its name.
#define FSDP_STUB_MISSING(name, status)   \
  FSDP_STUB int name() {                  \
    fsdp::rehearsal::note_missing(#name); \
    return status;                        \
  }
