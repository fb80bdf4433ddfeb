// On one dimension of a mesh, DTensor may compute a product out = a b, with any addend placed like the result, as
//
//   out         a           b
//   Replicate   Replicate   Replicate
//   Partial     Columns     Rows          each rank has a part of the sum
//   Rows        Rows        Replicate
//   Columns     Replicate   Columns
//   Partial     Partial     Replicate     a product is linear in each of the two
//   Partial     Replicate   Partial
//
// and the last two once more with Average for Partial. On two dimensions, any pair of these is allowed. PyTorch takes
// the pair whose inputs are cheapest to redistribute, the first among equals in the order above; one that needs no
// redistribution comes before all others. A transition costs a latency plus the bytes that a rank has at that point
// over a bandwidth, in microseconds:
//
//   all-gather, reduce-scatter   6.6 + (n - 1) l + bytes (n - 1) / n / b      all-gather: bytes times n
//   all-reduce                   6.6 + 2 (n - 1) l + 2 bytes (n - 1) / n / b
//   all-to-all                   that of an all-gather of as many bytes, and 1
//
// with l = 0.6 and b = 87.7 GiB/s inside a host, 2.7 and 0.22 b across hosts. So large matrices are sharded differently
// from small ones. PyTorch ignores sharding rules with placements that no input has.
//
// Sources: torch/distributed/tensor/_ops/_matrix_ops.py (gen_single_dim_einsum_strategies),
// _ops/single_dim_strategy.py, _ops/utils.py (expand_to_full_mesh_op_strategy), _sharding_prop.py
// (_select_min_cost_strategy), _collective_utils.py (MeshTopoInfo, redistribute_cost), _redistribute.py
// (generate_greedy_transform_infos), torch 2.11; checked against recorded steps of torch.optim.Muon
// (tests/simulator/newton_schulz_test.cpp).
//
// Not modeled: dimensions that do not divide; meshes of three dimensions.

#include "simulator/ops/dtensor_products.h"

#include <cassert>
#include <limits>
#include <optional>

namespace fsdp::simulator {

namespace {

using enum Placement;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_cut(Placement placement) {
  return placement == Rows || placement == Columns;
}

bool is_partial(Placement placement) {
  return placement == Partial || placement == Average;
}

std::int64_t num_shards(const Placements& placements, const TensorMesh& mesh) {
  std::int64_t shards = 1;
  for (int d = 0; d < mesh.dimensions; ++d) shards *= is_cut(placements[d]) ? mesh.sizes[d] : 1;
  return shards;
}

std::int64_t parts(const PlacedMatrix& matrix, Placement along, const TensorMesh& mesh) {
  std::int64_t result = 1;
  for (int d = 0; d < mesh.dimensions; ++d) result *= matrix.placements[d] == along ? mesh.sizes[d] : 1;
  return result;
}

/// In microseconds. Sets `gib` to the size on a rank after it.
double transition_cost(const Transition& step, const TensorMesh& mesh, double& gib) {
  if (step.from == step.to) return 0;
  std::int64_t devices = 1;
  for (int d = mesh.dimensions - 1; d >= step.dimension; --d) devices *= mesh.sizes[d];
  const bool is_across = devices > mesh.per_node;
  const double latency = is_across ? 2.7 : 0.6;
  const double bandwidth = is_across ? 87.7 * 0.22 : 87.7;
  const auto n = static_cast<double>(mesh.sizes[step.dimension]);
  const auto ring = [&](double hops) { return 6.6 + hops * latency + gib * hops / n / bandwidth * 1e6; };
  if (is_cut(step.from)) {
    if (is_partial(step.to)) return kInfinity;
    if (is_cut(step.to)) return ring(n - 1) + 1;
    gib *= n;
    return ring(n - 1);
  }
  if (is_partial(step.from)) {
    if (is_partial(step.to)) return kInfinity;
    if (step.to == Replicate) return ring(2 * (n - 1));
    const double cost = ring(n - 1);
    gib /= n;
    return cost;
  }
  if (is_cut(step.to)) gib /= n;
  return 0;
}

double redistribution_cost(const PlacedMatrix& from, const Placements& to, const TensorMesh& mesh) {
  if (from.placements == to || from.placements == Placements{Replicate, Replicate}) return 0;
  double gib = 2 * static_cast<double>(from.rows * from.columns) /
               static_cast<double>(num_shards(from.placements, mesh)) / 1024 / 1024 / 1024;
  double cost = 0;
  for (const Transition& step : transitions(from.placements, to, mesh)) {
    const double of_step = transition_cost(step, mesh, gib);
    if (of_step == kInfinity) return kInfinity;
    cost += of_step;
  }
  return cost;
}

struct Rule {
  Placement result;
  Placement a;
  Placement b;
};

constexpr std::array<Rule, 8> kRules = {{{Replicate, Replicate, Replicate},
                                         {Partial, Columns, Rows},
                                         {Rows, Rows, Replicate},
                                         {Columns, Replicate, Columns},
                                         {Partial, Partial, Replicate},
                                         {Partial, Replicate, Partial},
                                         {Average, Average, Replicate},
                                         {Average, Replicate, Average}}};

bool cuts(const Rule& rule) {
  return is_cut(rule.result) || is_cut(rule.a) || is_cut(rule.b);
}

bool can_be_cut(PlacedMatrix matrix, const Placements& placements, const TensorMesh& mesh) {
  matrix.placements = placements;
  return matrix.rows >= parts(matrix, Rows, mesh) && matrix.columns >= parts(matrix, Columns, mesh);
}

/// The result of the rules of all dimensions. nullopt if an input is too small to be cut that way.
std::optional<PlacedProduct> apply(const std::array<const Rule*, 2>& rules, std::span<const PlacedMatrix> inputs,
                                   const TensorMesh& mesh) {
  PlacedProduct product{{rules[0]->result, rules[1]->result}, {}};
  if (inputs.size() == 3) product.inputs.push_back(product.result);
  product.inputs.push_back({rules[0]->a, rules[1]->a});
  product.inputs.push_back({rules[0]->b, rules[1]->b});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!can_be_cut(inputs[i], product.inputs[i], mesh)) return std::nullopt;
  }
  return product;
}

}  // namespace

std::int64_t local_rows(const PlacedMatrix& matrix, const TensorMesh& mesh) {
  return matrix.rows / parts(matrix, Rows, mesh);
}

std::int64_t local_columns(const PlacedMatrix& matrix, const TensorMesh& mesh) {
  return matrix.columns / parts(matrix, Columns, mesh);
}

std::vector<Transition> transitions(const Placements& from, const Placements& to, const TensorMesh& mesh) {
  std::vector<Transition> steps;
  Placements current = from;
  const auto go = [&](int dimension, Placement target) {
    if (current[dimension] == target) return;
    steps.push_back({dimension, current[dimension], target});
    current[dimension] = target;
  };
  if (mesh.dimensions == 1) {
    go(0, to[0]);
    return steps;
  }
  if (num_shards(from, mesh) > 1) {
    // If the inner dimension divides the parts in another order than the target, DTensor first gathers it.
    const bool is_misaligned = is_cut(to[1]) && (current[0] == to[1]) != (to[0] == to[1]);
    go(1, is_misaligned ? Replicate : to[1]);
    go(0, to[0]);
  }
  for (int d = 0; d < mesh.dimensions; ++d) go(d, to[d]);
  return steps;
}

PlacedProduct place_product(std::span<const PlacedMatrix> inputs, const TensorMesh& mesh) {
  assert(inputs.size() == 2 || inputs.size() == 3);
  bool is_any_cut = false;
  for (const PlacedMatrix& input : inputs) {
    is_any_cut = is_any_cut || is_cut(input.placements[0]) || is_cut(input.placements[1]);
  }
  std::optional<PlacedProduct> best;
  std::optional<PlacedProduct> free;      // A rule without cost,
  std::optional<PlacedProduct> in_place;  // or even without a step.
  double least = kInfinity;
  const std::size_t num_inner = mesh.dimensions == 1 ? 1 : kRules.size();
  for (const Rule& outer : kRules) {
    for (std::size_t i = 0; i < num_inner; ++i) {
      const Rule& inner = kRules[i];
      if (!is_any_cut && (cuts(outer) || cuts(inner))) continue;
      const auto product = apply({&outer, &inner}, inputs, mesh);
      if (!product) continue;
      double cost = 0;
      bool is_there = true;
      for (std::size_t n = 0; n < inputs.size(); ++n) {
        cost += redistribution_cost(inputs[n], product->inputs[n], mesh);
        is_there = is_there && inputs[n].placements == product->inputs[n];
      }
      if (cost == 0 && is_there) in_place = product;
      if (cost == 0 && !free) free = product;
      if (cost < least || !best) {
        least = cost;
        best = product;
      }
    }
  }
  return in_place ? *in_place : free ? *free : *best;
}

}  // namespace fsdp::simulator
