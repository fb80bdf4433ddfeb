#pragma once

// Where labels go so that they do not lie on each other. No Qt: widths are measured by whoever draws.

#include <cstddef>
#include <string>
#include <vector>

namespace fsdp::gui {

/// A label that wants to stand with its middle at `at`.
struct WantedLabel {
  double at = 0;
  double width = 0;
  int priority = 0;  ///< Higher ones are placed first; of equal ones the first in the list.
};

struct PlacedLabel {
  std::size_t index = 0;  ///< In what was wanted.
  double left = 0;
};

/// Labels that fit between `left` and `right` with `gap` between them, moved inwards at the ends; those that would lie
/// on one of a higher priority are left out. In order of place.
std::vector<PlacedLabel> place_labels(const std::vector<WantedLabel>& wanted, double left, double right, double gap);

/// "model.layers.27.mlp" in at most `most` characters: "model…27.mlp"; the end says most.
std::string shortened_name(const std::string& name, std::size_t most);

}  // namespace fsdp::gui
