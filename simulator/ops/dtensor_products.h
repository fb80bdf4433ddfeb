#pragma once

// How torch.distributed.tensor multiplies matrices that are sharded over a mesh: the placements that it chooses for
// inputs and output, and the transitions to them. dtensor_products.cpp has the rule.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fsdp::simulator {

/// Placement of a matrix on one dimension of a mesh.
enum class Placement : std::uint8_t {
  Replicate,
  Rows,     ///< Shard(0).
  Columns,  ///< Shard(1).
  Partial,  ///< Partial("sum"): the sum of the ranks' parts.
  Average,  ///< Partial("avg").
};

/// [dimensions of the mesh]; for a mesh of one dimension the second is Replicate.
using Placements = std::array<Placement, 2>;

/// A DeviceMesh of one or two dimensions, the outer one first.
struct TensorMesh {
  int dimensions = 1;
  std::array<std::int64_t, 2> sizes = {1, 1};
  std::int64_t per_node = 1;  ///< Devices of a host.

  bool operator==(const TensorMesh&) const = default;
};

struct PlacedMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Placements placements = {Placement::Replicate, Placement::Replicate};
};

/// One step of a redistribution.
struct Transition {
  int dimension = 0;
  Placement from = Placement::Replicate;
  Placement to = Placement::Replicate;

  bool operator==(const Transition&) const = default;
};

/// Size on a rank. REQUIRES: each sharded dimension divides.
std::int64_t local_rows(const PlacedMatrix& matrix, const TensorMesh& mesh);
std::int64_t local_columns(const PlacedMatrix& matrix, const TensorMesh& mesh);

/// The transitions from one placement to another, in order.
std::vector<Transition> transitions(const Placements& from, const Placements& to, const TensorMesh& mesh);

struct PlacedProduct {
  Placements result = {};
  std::vector<Placements> inputs;  ///< [number of inputs]
};

/// For aten.mm ([m, k], [k, n]) or aten.addmm ([m, n], [m, k], [k, n]), all with two bytes per element.
PlacedProduct place_product(std::span<const PlacedMatrix> inputs, const TensorMesh& mesh);

}  // namespace fsdp::simulator
