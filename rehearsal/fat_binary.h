#pragma once

// The architectures that device code was compiled for, and the one that a card would run.

#include <vector>

namespace fsdp::rehearsal {

/// One version of the code in a fat binary.
struct CompiledCode {
  bool is_ptx = false;   ///< True if the driver compiles it for the card; false for machine code.
  int architecture = 0;  ///< 86 is sm_86, or compute_86.
};

/// The contents of the wrapper that the compiler passes to __cudaRegisterFatBinary. Empty if it is no such wrapper.
std::vector<CompiledCode> compiled_code(const void* wrapper);

/// The version that a card runs: the newest machine code of its own generation that it understands, else the newest
/// PTX. The architecture is 0 if there is none. Source: CUDA C++ Programming Guide, binary and PTX compatibility.
CompiledCode code_for(const std::vector<CompiledCode>& versions, int compute_capability);

}  // namespace fsdp::rehearsal
