#pragma once

// The controls of the window as a table: each is a choice of a plan, so that its name, its text and its meaning are
// those of the command.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"
#include "planner/plan_choices.h"

namespace fsdp::gui {

enum class ControlKind : std::uint8_t {
  Count,   ///< A whole number: slider and box.
  Size,    ///< Bytes: slider and text with its unit.
  Choice,  ///< One of some texts.
  Open,    ///< One of some texts, or another text.
  Text,
};

struct ControlInfo {
  planner::PlanChoice choice = planner::PlanChoice::Gpus;
  std::string_view label;
  std::string_view group;
  ControlKind kind = ControlKind::Text;
  std::vector<std::int64_t> stops;   ///< Stops of the slider: whole numbers, or GiB of a size.
  std::vector<std::string> choices;  ///< Texts of the choice.
};

/// In the order of the window; groups stand together.
std::span<const ControlInfo> control_infos();

/// The user's decision, as its control shows it: "16G", "32.5 GB/s", and a text that cannot be read as it was typed.
/// Nothing: it is not decided.
std::optional<std::string> own_text(planner::PlanChoice choice, const Inputs& inputs);

/// The value of the choice in a snapshot, in the words of the choice: "4", "16GiB", "FULL_SHARD". A value that no text
/// of the choice expresses ("reshard_after_forward differs from unit to unit") is a word in round brackets; empty:
/// nothing.
std::string shown_text(planner::PlanChoice choice, const Snapshot& snapshot);

/// The value of one of the model's dimensions in a snapshot; empty: it has none.
std::string shown_dimension(const std::string& name, const Snapshot& snapshot);

}  // namespace fsdp::gui
