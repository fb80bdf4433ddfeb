#pragma once

// The runs of a tape, for sinks that only count bytes. tape_runs.cpp explains which events are in one.

#include <array>

#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// Whether cuBLAS keeps its workspace, and cuBLASLt its own. A later user of a kept workspace requests nothing.
using KeptWorkspaces = std::array<bool, 2>;

/// Fills in the runs and the bytes of pools of a tape that is otherwise whole.
void add_runs(Tape& tape, const KeptWorkspaces& kept);

}  // namespace fsdp::simulator
