#pragma once

// The units of a plan, with units alike folded into rows: how plan files and reports write them.

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace fsdp {

/// One unit, or a row of units with the same reshard and modules that go on counting from one unit to the next.
struct UnitRow {
  std::vector<std::string> modules;   ///< Folded: {"model.layers.{0..27}"}. For a row: exactly one.
  std::int64_t count = 1;             ///< Units.
  std::int64_t modules_per_unit = 1;  ///< For each; the last one of a row may have fewer.
  ReshardAfterForward reshard_after_forward;

  bool operator==(const UnitRow&) const = default;
};

/// The rows in the order of the units. Unfolding them gives the same units.
std::vector<UnitRow> fold_units(const std::vector<Unit>& units);

}  // namespace fsdp
