#pragma once

// The order in which a step of FSDP2 gathers, computes and reduces, for a bound of its time.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/plan/schedule.h"
#include "simulator/time/timeline.h"

namespace fsdp::planner {

/// The common order of events of plans that differ in how many units stay unsharded, in which blocks they checkpoint,
/// and in how many micro-batches they have.
class StepOrder {
 public:
  /// `schedule`: of a plan whose units all reshard, with one micro-batch; or with two, of which the first keeps its
  /// gradients and the second reduces them.
  StepOrder(const Schedule& schedule, std::size_t num_units);

  /// Durations of the events.
  struct Durations {
    const std::vector<simulator::UnitTimes>* units = nullptr;  ///< [num units]
    const std::vector<Seconds>* gathers_again = nullptr;       ///< [num units] All-gathers of the backward.
    std::vector<bool> stays;                                   ///< [num units] Unsharded from forward to backward.
    std::vector<const simulator::CallTimes*> calls;            ///< [num calls]
    std::int64_t micro_batches = 1;
    bool reduces_each = true;  ///< True if each micro-batch reduces its gradients. REQUIRES: the schedule has one
                               ///< micro-batch if true, otherwise two.
    bool has_replicas = false;
    bool reduces_apart = false;  ///< True if reduce-scatters have a communicator of their own.
  };
  /// The earliest end of the last backward, if the CPU delays nothing.
  Seconds least(const Durations& durations) const;

 private:
  enum class EventKind : std::uint8_t {
    Gather,
    CopyOut,
    Freed,        ///< The output of a gather, whose memory the next gathers get,
    FreedByRoot,  ///< or those after the next copy-out.
    Forward,
    Backward,
    Keep,
    Reduce,
    WaitForReduce,
    Finish,
  };
  struct Event {
    EventKind kind = EventKind::Gather;
    bool again = false;  ///< True for a later gather of the unit, which is omitted if the unit stays unsharded.
    int unit = -1;
    int output = -1;  ///< Output of gathers, by unit and slot.
    int call = -1;
    int op_begin = 0, op_end = 0;
  };
  class Walk;

  /// nullopt for a step that takes no time. `main`: that of the action of the step.
  static std::optional<EventKind> kind_of(const Instruction& step, const Instruction& main);
  static void add(const std::vector<Instruction>& instructions, const Action& action, bool again,
                  std::vector<Event>& events);

  std::size_t num_units_;
  std::vector<Event> keeping_, reducing_;  ///< Events of one micro-batch.
};

}  // namespace fsdp::planner
