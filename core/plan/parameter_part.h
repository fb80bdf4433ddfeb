#pragma once

// How many elements of a parameter a rank holds. All that cut a parameter ask here.

#include <cstdint>

#include "core/model/model.h"

namespace fsdp {

/// How a parameter lies on the ranks along one axis of the mesh.
enum class CutBy : std::uint8_t {
  None,      ///< Each rank has all of it, as of DTensor's Replicate().
  Rows,      ///< Cut along its first dimension, as of DTensor's Shard(0).
  Elements,  ///< Cut as one flat tensor, as ZeRO-3 does.
};

/// A parameter on the ranks along one axis.
struct ParameterPart {
  std::int64_t elements = 0;
  std::int64_t chunk = 0;  ///< Elements of the largest part, rounded up to whole rows. Smaller parts are padded to it.
  std::int64_t local = 0;  ///< Elements of the part of one rank; 0 if the ranks before it have all.
  std::int64_t full = 0;   ///< What a collective gets or gives: the chunks of all ranks; of a whole one itself.

  bool is_padded() const { return full != elements; }
  bool operator==(const ParameterPart&) const = default;
};

/// The part of rank `rank` of `ranks`. A parameter on a mesh of several axes is cut along one after the other.
ParameterPart part_of(const Shape& shape, CutBy cut, std::int64_t ranks, std::int64_t rank = 0);

/// The same of a parameter of so many elements, for a cut that asks for no rows.
ParameterPart part_of(std::int64_t elements, CutBy cut, std::int64_t ranks, std::int64_t rank = 0);

/// Elements of the part of a rank, if parts have `chunk` elements but the last ones.
std::int64_t local_elements(std::int64_t elements, std::int64_t chunk, std::int64_t rank);

}  // namespace fsdp
