#pragma once

// A predicted step for other tools: viewers of traces, PyTorch's memory viewer, spreadsheets.

#include <string>

#include "core/cluster/cluster.h"
#include "core/formats/trace_json.h"
#include "core/report/report.h"
#include "simulator/curves/step_curves.h"

namespace fsdp::replay {

/// The steady step as a trace of one rank of the world (core/formats/trace_json.h writes it).
Trace trace_of(const StepReport& report, const simulator::StepCurves& curves, std::int64_t rank = 0);

/// The steady step as a snapshot that pytorch.org/memory_viz opens: a pickle of protocol 2, with the categories of
/// FSDPMemTracker. In place of a recorded stack it has the instruction, the tensor and the arithmetic of its size.
std::string to_memory_snapshot(const simulator::StepCurves& curves);

/// Every moment of every phase: "phase,event,seconds,instruction,unit,tensor,change_bytes,live_bytes,..." RFC 4180.
std::string to_memory_csv(const simulator::StepCurves& curves);

}  // namespace fsdp::replay
