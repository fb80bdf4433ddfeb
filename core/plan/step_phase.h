#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp {

/// The work of a training program at a moment. A schedule has the first three only; a rehearsed script has all.
enum class StepPhase : std::uint8_t {
  Forward,
  Backward,
  Optimizer,
  Initialization,
  Evaluation,
  Saving,
  Unknown,
};
/// "forward"; "" for Unknown.
std::string_view name_of(StepPhase phase);

}  // namespace fsdp
