#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp {

/// An index of the files and the schedule, which are signed, as the containers want it. REQUIRES: `index` >= 0.
constexpr std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace fsdp
