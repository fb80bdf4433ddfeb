#pragma once

// The runs of a tape, for sinks that only count bytes. tape_runs.cpp says which events are in one.

#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// Fills in the runs and the bytes of pools of a tape that is otherwise whole.
void add_runs(Tape& tape);

}  // namespace fsdp::simulator
