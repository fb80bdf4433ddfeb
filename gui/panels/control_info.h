#pragma once

// The controls of the window as a table. Each is a choice of a plan, so its name, text and meaning are those of the
// command.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"
#include "planner/space/plan_choices.h"

namespace fsdp::gui {

enum class ControlKind : std::uint8_t {
  Count,   ///< A whole number: slider and box.
  Size,    ///< Bytes: slider and text with its unit.
  Choice,  ///< One of several fixed texts.
  Open,    ///< One of several texts, or a text of the user.
  Text,
};

struct ControlInfo {
  planner::PlanChoice choice = planner::PlanChoice::Gpus;
  std::string_view label;
  std::string_view group;
  ControlKind kind = ControlKind::Text;
  std::string (*shown)(const Snapshot& snapshot) = nullptr;  ///< `shown_text` of the choice.
  std::vector<std::int64_t> stops = {};                      ///< Stops of the slider: whole numbers, or GiB of a size.
  std::vector<std::string> choices = {};  ///< Texts of the choice. Defaults to its values, for ControlKind::Choice.
};

/// In the order of the window; groups stand together.
std::span<const ControlInfo> control_infos();

/// The user's decision, as its control shows it: "16G", "32.5 GB/s", or a text as it was typed if it cannot be read.
/// nullopt if it is undecided.
std::optional<std::string> own_text(planner::PlanChoice choice, const Inputs& inputs);

/// The value of the choice in a snapshot, as text of the choice: "4", "16GiB", "FULL_SHARD". A value that no such text
/// expresses ("reshard_after_forward differs from unit to unit") is a description in round brackets. Empty if there is
/// no value.
std::string shown_text(planner::PlanChoice choice, const Snapshot& snapshot);

/// The value of one of the model's dimensions in a snapshot. Empty if the model does not have it.
std::string shown_dimension(const std::string& name, const Snapshot& snapshot);

}  // namespace fsdp::gui
