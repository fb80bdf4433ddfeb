#pragma once

// One iteration of FSDP, instruction by instruction: the state of each unit after each instruction, and a sentence
// about it. Derived from the same schedule that is predicted and executed. No Qt.

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "simulator/curves/step_curves.h"

namespace fsdp::gui {

/// The form in which a rank holds the parameters of a unit.
enum class HeldParameters : std::uint8_t {
  Sharded,    ///< Its own part only.
  Gathering,  ///< An all-gather is running.
  Unsharded,  ///< All of them, ready to compute with.
};

enum class HeldGradients : std::uint8_t {
  None,
  Unsharded,  ///< From this rank's own batch.
  Sharded,    ///< Reduced over all ranks: this rank's part.
};

struct UnitFrame {
  HeldParameters parameters = HeldParameters::Sharded;
  HeldGradients gradients = HeldGradients::None;
  bool has_activations = false;  ///< From its forward until its backward.
  bool is_at_work = false;

  bool operator==(const UnitFrame&) const = default;
};

/// The state after one instruction.
struct TeachingFrame {
  std::vector<UnitFrame> units;  ///< [units] In the order of `Lesson::units`.
  bool is_updated = false;       ///< The optimizer has run.
};

struct Lesson {
  std::vector<std::string> units;      ///< In the order in which the forward runs them; "" is the root.
  std::vector<TeachingFrame> frames;   ///< The first is the state before the step; then one after each visible
                                       ///< instruction.
  std::vector<std::string> headings;   ///< [frames] "All-gather of layers.3".
  std::vector<std::string> sentences;  ///< [frames] The effect of the instruction, and its reason.
  std::vector<int> instructions;       ///< [frames] The instruction of the schedule; -1 before the first.
  bool has_optimizer_states = true;    ///< Each GPU stores those of its part; plain SGD has none.
  bool has_states_on_host = false;     ///< They are in CPU memory, or on drives.
};

/// The lesson of a step under a plan.
Lesson make_lesson(const simulator::StepCurves& curves, const Plan& plan);

}  // namespace fsdp::gui
