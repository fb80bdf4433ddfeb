#pragma once

// Small models and plans of tests/golden/fsdp2_collectives, with what the real FSDP2 did.

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp {

/// One collective, in the words of the golden file: elements of the full tensor, the unit's first module ("" is the
/// root or none), the phase as a Schedule names it.
struct SeenCollective {
  std::string kind;
  std::string phase;
  std::string unit;
  std::int64_t elements = 0;
  std::string dtype;
  std::int64_t group_size = 1;

  bool operator==(const SeenCollective&) const = default;
};

std::string to_string(const SeenCollective& collective);

struct CollectiveCase {
  std::string name;
  Model model;
  Plan plan;
  std::vector<SeenCollective> collectives;  ///< For one steady step, in issue order.
};

/// Ends the test program on a line that it does not know.
std::vector<CollectiveCase> read_collective_cases(const std::string& path);

}  // namespace fsdp
