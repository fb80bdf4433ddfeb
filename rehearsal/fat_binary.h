#pragma once

// Which architectures a piece of device code was compiled for, and which of them a card would run.

#include <vector>

namespace fsdp::rehearsal {

/// One version of the code in a fat binary.
struct CompiledCode {
  bool is_ptx = false;   ///< Compiled by the driver for the card; else machine code.
  int architecture = 0;  ///< 86 is sm_86, or compute_86.
};

/// The contents of the wrapper that the compiler passes to __cudaRegisterFatBinary; empty when it is none.
std::vector<CompiledCode> compiled_code(const void* wrapper);

/// The version that a card runs: the newest machine code of its own generation that it understands, else the newest
/// PTX; an architecture of 0 when there is none. Source: CUDA C++ Programming Guide, binary and PTX compatibility.
CompiledCode code_for(const std::vector<CompiledCode>& versions, int compute_capability);

}  // namespace fsdp::rehearsal
