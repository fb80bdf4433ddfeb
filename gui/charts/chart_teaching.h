#pragma once

// One iteration of FSDP, instruction by instruction: what each unit is in after each of them, and what to say of it.
// Read off the schedule that is predicted and executed, never told from memory. No Qt.

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "simulator/curves/step_curves.h"

namespace fsdp::gui {

/// How a rank holds the parameters of a unit.
enum class HeldParameters : std::uint8_t {
  Sharded,    ///< Its own part only.
  Gathering,  ///< An all-gather is under way.
  Unsharded,  ///< All of them, ready to compute with.
};

enum class HeldGradients : std::uint8_t {
  None,
  Unsharded,  ///< From this rank's own batch.
  Sharded,    ///< Reduced over all ranks: the part of this one.
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
  std::vector<std::string> units;     ///< In the order in which the forward runs them; "" is the root.
  std::vector<TeachingFrame> frames;  ///< The first is the state before the step; then after each that shows something.
  std::vector<std::string> headings;  ///< [frames] "All-gather of layers.3".
  std::vector<std::string> sentences;  ///< [frames] What that does, and why.
  std::vector<int> instructions;       ///< [frames] The instruction of the schedule; -1: none yet.
  bool has_optimizer_states = true;    ///< Each GPU keeps those of its part; plain SGD has none.
  bool has_states_on_host = false;     ///< They are in the memory of the CPU, or on drives.
};

/// The lesson of a step under a plan.
Lesson make_lesson(const simulator::StepCurves& curves, const Plan& plan);

}  // namespace fsdp::gui
