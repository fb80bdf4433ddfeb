#pragma once

// Places labels so that they do not overlap. No Qt: the caller measures widths.

#include <cstddef>
#include <string>
#include <vector>

namespace fsdp::gui {

/// A label that wants to stand with its middle at `at`.
struct WantedLabel {
  double at = 0;
  double width = 0;
  int priority = 0;  ///< Higher ones are placed first; among equals, the first in the list.
};

struct PlacedLabel {
  std::size_t index = 0;  ///< The index in the list of wanted labels.
  double left = 0;
};

/// The labels that fit between `left` and `right` with `gap` between them, moved inwards at the ends, in order of
/// place. A label that would overlap one of higher priority is left out.
std::vector<PlacedLabel> place_labels(const std::vector<WantedLabel>& wanted, double left, double right, double gap);

/// "model.layers.27.mlp" in at most `most` characters: "model…27.mlp". The end is the most specific part.
std::string shortened_name(const std::string& name, std::size_t most);

}  // namespace fsdp::gui
