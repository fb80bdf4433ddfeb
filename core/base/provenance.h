#pragma once

// The source of a figure. A prediction is worth no more than that, so every report says it.

#include <cstdint>
#include <string_view>

namespace fsdp {

enum class Provenance : std::uint8_t {
  Measured,   ///< Somebody read it off a machine of this kind.
  Published,  ///< The maker's data sheet or documentation says so.
  Assumed,    ///< An estimate; the source says how it was made.
  Given,      ///< The user said so. Never in a file of the library.
  Derived,    ///< Follows by arithmetic from the plan and from rules of the runtime. Never in a file of the library.
};

/// "measured"
std::string_view name_of(Provenance provenance);

}  // namespace fsdp
