#pragma once

// One step for charts: the live tensors at every moment, the moment's time on the timeline's clock, and the work of
// each stream. step_curves.cpp explains how a moment gets its time.

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

/// Memory over one phase of a run: a moment for each allocation and each free, in the CPU's order of issue. The first
/// moment is the state at the start of the phase.
struct MemoryCurve {
  RunPhase phase = RunPhase::Initialization;  ///< As in `PhasePeaks`.

  std::vector<Seconds>
      time;  ///< [moments] On the compute stream since the start of the step; never falls. 0 in initialization.
  std::array<std::vector<std::int64_t>, kNumMemoryCategories> live;  ///< [categories][moments] Bytes.
  std::vector<std::int64_t> total;                                   ///< [moments] Bytes of all categories.
  std::vector<std::int64_t> allocated;                               ///< [moments] Bytes in blocks.
  std::vector<std::int64_t> reserved;                                ///< [moments] Bytes in segments.
  std::vector<std::int32_t> instruction;  ///< [moments] An index of `StepCurves::instructions_of`; -1 before the first.
  std::vector<std::int32_t> tensor;       ///< [moments] The allocated or freed tensor; -1 at the start of the phase.
  std::vector<std::int64_t> change;       ///< [moments] Bytes: positive for an allocation, negative for a free.

  std::size_t size() const { return time.size(); }
  BytesByCategory live_at(std::size_t moment) const;
  /// The first moment with the most live bytes. REQUIRES: size() > 0.
  std::size_t peak() const;
};

/// An instruction of the schedule on the timeline.
struct CurveInstruction {
  InstructionKind kind = InstructionKind::Forward;
  StepPhase phase = StepPhase::Forward;
  std::string name;  ///< "Backward model.layers.27", as in `PeakMoment`.
  std::string unit;  ///< FSDP unit at work; "" for the root.
  std::int32_t micro_batch = 0;
  Seconds begin{0};  ///< On the compute stream.
  Seconds end{0};
  std::vector<BufferKind> freed = {};  ///< The freed buffers, in order.
};

/// A live tensor, with the arithmetic of its size.
struct LiveTensorDetail {
  LiveTensor tensor;
  /// Formula of each of them: "2 x 512 x 2048 x 2 B (bfloat16)"; "2 of 512 x 4 B (float32) + 1 of ..." if they differ;
  /// empty if unknown.
  std::string formula;
};

class CurveNames;

struct StepCurves {
  std::vector<MemoryCurve> phases;  ///< In order: initialization, first step, steady step. Empty without curves.
  std::vector<CurveInstruction> instructions;  ///< Instructions of a steady step.
  /// Instructions of the first step, with a clock of its own, if its order differs (`StepSchedules`). Empty otherwise.
  std::vector<CurveInstruction> first_instructions;
  std::vector<StreamEvent> events;
  Seconds step{0};
  Bytes context;  ///< Device memory outside the allocator.

  std::shared_ptr<const CurveNames> names;
  /// [phases] Live tensors at the start of the phase, with their categories.
  struct Held {
    std::int32_t tensor = 0;
    MemoryCategory category = MemoryCategory::Temp;
    std::int64_t bytes = 0;
  };
  std::vector<std::vector<Held>> at_begin;
  /// [phases][moments] Category of the allocated or freed tensor.
  std::vector<std::vector<MemoryCategory>> category;

  bool empty() const { return phases.empty(); }
  /// The curve of a phase, or nullptr.
  const MemoryCurve* find(RunPhase phase) const;
  /// The phase with the highest live memory, the first among equals. REQUIRES: !empty().
  std::size_t peak_phase() const;

  /// The instructions that `MemoryCurve::instruction` of a phase numbers.
  const std::vector<CurveInstruction>& instructions_of(std::size_t phase) const;
  /// The current instruction at a moment; nullptr before the first and in initialization.
  const CurveInstruction* instruction_at(std::size_t phase, std::size_t moment) const;

  /// Live tensors after a moment, largest first; merges equal tensors of repeated blocks, like
  /// `MemoryReport::live_at_peak`.
  std::vector<LiveTensorDetail> live_tensors_at(std::size_t phase, std::size_t moment) const;
  /// The allocated or freed tensor at a moment: "model.layers.*.mlp.down_proj: linear"; empty at the first moment.
  std::string tensor_at(std::size_t phase, std::size_t moment) const;
  /// The name of a tensor, by its number in `MemoryCurve::tensor`, and the formula of its bytes (empty if unknown).
  std::string name_of(std::int32_t tensor) const;
  std::string formula_of(std::int32_t tensor, std::int64_t bytes) const;
  /// The current op at a moment: "mlp.down_proj linear"; empty if no op makes the tensor.
  std::string op_at(std::size_t phase, std::size_t moment) const;
  /// The time and place of a moment, as a report gives them for its peak.
  PeakMoment moment_at(std::size_t phase, std::size_t moment) const;
};

}  // namespace fsdp::simulator
