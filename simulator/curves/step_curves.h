#pragma once

// One step for pictures: what is live at every moment, when that is on the timeline's clock, and what each stream does.
// step_curves.cpp says how a moment gets its time.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/schedule.h"
#include "core/report/report.h"
#include "core/report/stream_event.h"

namespace fsdp::simulator {

/// Memory over one phase of a run, a moment for each allocation and each free, in the order in which the CPU issues
/// them. The first moment is the state in which the phase begins.
struct MemoryCurve {
  RunPhase phase = RunPhase::Initialization;  ///< As in `PhasePeaks`.

  std::vector<Seconds>
      time;  ///< [moments] Of the compute stream since the step began; never falls. 0 in initialization.
  std::array<std::vector<std::int64_t>, kNumMemoryCategories> live;  ///< [categories][moments] Bytes.
  std::vector<std::int64_t> total;                                   ///< [moments] Bytes, of all categories.
  std::vector<std::int64_t> allocated;                               ///< [moments] Bytes in blocks, and
  std::vector<std::int64_t> reserved;                                ///< in segments.
  std::vector<std::int32_t> instruction;  ///< [moments] In `StepCurves::instructions_of`; -1: before the first.
  std::vector<std::int32_t> tensor;       ///< [moments] What came or went; -1: nothing, the phase begins.
  std::vector<std::int64_t> change;       ///< [moments] Bytes: above 0 it came, below it went.

  std::size_t size() const { return time.size(); }
  BytesByCategory live_at(std::size_t moment) const;
  /// The first moment at which most is live. REQUIRES: size() > 0.
  std::size_t peak() const;
};

/// An instruction of the schedule on the timeline.
struct CurveInstruction {
  InstructionKind kind = InstructionKind::Forward;
  StepPhase phase = StepPhase::Forward;
  std::string name;  ///< "Backward model.layers.27", as in `PeakMoment`.
  std::string unit;  ///< FSDP unit at work; "" is the root.
  std::int32_t micro_batch = 0;
  Seconds begin{0};  ///< On the compute stream.
  Seconds end{0};
  std::vector<BufferKind> freed = {};  ///< By the frees that belong to it, in order.
};

/// A tensor that is alive, with the arithmetic of its size.
struct LiveTensorDetail {
  LiveTensor tensor;
  /// Formula of each of them: "2 x 512 x 2048 x 2 B (bfloat16)"; where they differ "2 of 512 x 4 B (float32) + 1 of
  /// ..."; empty where it is not known.
  std::string formula;
};

class CurveNames;

struct StepCurves {
  std::vector<MemoryCurve> phases;  ///< In order: initialization, first step, steady step. Empty: there is none.
  std::vector<CurveInstruction> instructions;  ///< Instructions of a steady step.
  /// Instructions of the first step, on a clock of its own, where its order is another one (`StepSchedules`); empty: as
  /// all others.
  std::vector<CurveInstruction> first_instructions;
  std::vector<StreamEvent> events;
  Seconds step{0};
  Bytes context;  ///< Device memory outside the allocator.

  std::shared_ptr<const CurveNames> names;
  /// [phases] Tensors that are alive when the phase begins, with their categories.
  struct Held {
    std::int32_t tensor = 0;
    MemoryCategory category = MemoryCategory::Temp;
    std::int64_t bytes = 0;
  };
  std::vector<std::vector<Held>> at_begin;
  /// [phases][moments] Category of what came or went.
  std::vector<std::vector<MemoryCategory>> category;

  bool empty() const { return phases.empty(); }
  /// The curve of a phase, or nullptr.
  const MemoryCurve* find(RunPhase phase) const;
  /// The phase in which live memory is highest, the first of equal ones. REQUIRES: !empty().
  std::size_t peak_phase() const;

  /// Those that the numbers in `MemoryCurve::instruction` of a phase mean.
  const std::vector<CurveInstruction>& instructions_of(std::size_t phase) const;
  /// The one that works at a moment; nullptr before the first and in initialization.
  const CurveInstruction* instruction_at(std::size_t phase, std::size_t moment) const;

  /// Tensors alive after a moment, largest first; equal tensors of repeated blocks are merged, as in
  /// `MemoryReport::live_at_peak`.
  std::vector<LiveTensorDetail> live_tensors_at(std::size_t phase, std::size_t moment) const;
  /// The tensor that came or went at a moment: "model.layers.*.mlp.down_proj: linear"; empty at the first moment.
  std::string tensor_at(std::size_t phase, std::size_t moment) const;
  /// The name of a tensor, by its number in `MemoryCurve::tensor`, and how its bytes come about (empty: not known).
  std::string name_of(std::int32_t tensor) const;
  std::string formula_of(std::int32_t tensor, std::int64_t bytes) const;
  /// The op that works at a moment: "mlp.down_proj linear"; empty where none makes the tensor.
  std::string op_at(std::size_t phase, std::size_t moment) const;
  /// When and where a moment is, as a report says it of its peak.
  PeakMoment moment_at(std::size_t phase, std::size_t moment) const;
};

}  // namespace fsdp::simulator
