#pragma once

// How torch.distributed.tensor multiplies matrices that are cut over a mesh: which placements it chooses for what goes
// in and comes out, and by which transitions it gets there. dtensor_products.cpp has the rule.

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
  Partial,  ///< Partial("sum"): the ranks' parts are to be added up.
  Average,  ///< Partial("avg").
};

/// [dimensions of the mesh]; of a mesh of one dimension the second is Replicate.
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

/// Elements of a rank. REQUIRES: each dimension that is cut divides.
std::int64_t local_rows(const PlacedMatrix& matrix, const TensorMesh& mesh);
std::int64_t local_columns(const PlacedMatrix& matrix, const TensorMesh& mesh);

/// From one placement to another, in the order in which they happen.
std::vector<Transition> transitions(const Placements& from, const Placements& to, const TensorMesh& mesh);

struct PlacedProduct {
  Placements result = {};
  std::vector<Placements> inputs;  ///< As many as were given.
};

/// For aten.mm ([m, k], [k, n]) or aten.addmm ([m, n], [m, k], [k, n]), all of two bytes an element.
PlacedProduct place_product(std::span<const PlacedMatrix> inputs, const TensorMesh& mesh);

}  // namespace fsdp::simulator
