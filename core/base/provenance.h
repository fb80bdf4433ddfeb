#pragma once

// The source of a figure. Every report names it, because a prediction is only as good as its figures.

#include <cstdint>
#include <string_view>

namespace fsdp {

enum class Provenance : std::uint8_t {
  Measured,   ///< Somebody measured it on a machine of this kind.
  Published,  ///< From the maker's data sheet or documentation.
  Assumed,    ///< An estimate. The source describes the method.
  Given,      ///< From the user. Never in a file of the library.
  Derived,    ///< Computed from the plan and from rules of the runtime. Never in a file of the library.
};

/// "measured"
std::string_view name_of(Provenance provenance);

}  // namespace fsdp
