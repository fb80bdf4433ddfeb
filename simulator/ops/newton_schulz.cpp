// Muon updates one matrix after the other. For each it computes
//
//   update = lerp(gradient, momentum)      as large as the gradient, if it is Nesterov's
//   X      = update in bfloat16            wide: transposed if it has more rows than columns
//   X     /= norm(X)
//   5 times: G = X X^T,  H = b G + c G G,  X = a X + H X
//   parameter -= rate * X
//
// Python's variables hold G and H until the next iteration replaces them, and the update until the next matrix replaces
// it. A sharded matrix is a DTensor: each product first redistributes its inputs to the placements that PyTorch chooses
// (dtensor_products.cpp), one after the other, and frees the copies after the product, the last one first:
//
//   all-reduce      a copy, in rows
//   all-gather      a copy in rows of a matrix in columns; the output; if cut along columns, the output put in order
//   reduce-scatter  the same copies of its input, and the output
//   all-to-all      a copy in rows; the received data; the same put in order
//   a cut, and a part of a sum (Replicate to Partial): a copy
//
// The norm of a sharded X is squared, summed and its root taken.
//
// Sources: torch/optim/_muon.py; torch/distributed/tensor/placement_types.py,
// torch/distributed/_functional_collectives.py, torch/csrc/distributed/c10d/Functional.cpp (shard_dim_alltoall), torch
// 2.11; checked against recorded allocations (tests/simulator/newton_schulz_test.cpp).
//
// Not modeled: rows or columns that do not divide by the ranks over which they may be sharded.

#include "simulator/ops/newton_schulz.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace fsdp::simulator {

namespace {

using enum Placement;
using enum MuonEvent::What;

constexpr std::int64_t kItem = 2;  // bfloat16

/// A local tensor and its placement.
struct Matrix {
  PlacedMatrix placed;
  int tensor = -1;
  bool in_rows = true;  // True if row-major, false if column-major.
};

Placement turned(Placement placement) {
  if (placement == Rows) return Columns;
  return placement == Columns ? Rows : placement;
}

Matrix transposed(const Matrix& matrix) {
  Matrix result = matrix;
  std::swap(result.placed.rows, result.placed.columns);
  for (Placement& placement : result.placed.placements) placement = turned(placement);
  result.in_rows = !matrix.in_rows;
  return result;
}

class UpdateWriter {
 public:
  UpdateWriter(const MuonMatrix& matrix, const TensorMesh& mesh, const LaunchLimits& limits)
      : of_(matrix), mesh_(mesh), limits_(limits) {}

  MuonUpdate run() {
    Matrix x;
    x.placed = {of_.rows, of_.columns, {Replicate, Replicate}};
    x.placed.placements[mesh_.dimensions - 1] = Rows;
    const Placements as_parameter = x.placed.placements;
    const std::int64_t elements = local_elements(x.placed);
    out_.traffic = static_cast<double>(elements * (of_.item * 10 + 3 * kItem));
    const int update = of_.nesterov ? make(elements * of_.item) : -1;
    const std::size_t made = out_.making.size();
    out_.changing.clear();
    const bool casts = of_.item != kItem;
    x.tensor = casts ? make(elements * kItem) : update;
    const bool lies = of_.rows <= of_.columns;
    if (!lies) x = transposed(x);
    normalize(x);
    iterate(x, update);
    if (lies) return finish(made, x, as_parameter);
    return finish(made, transposed(x), as_parameter);
  }

 private:
  std::int64_t local_elements(const PlacedMatrix& placed) const {
    return local_rows(placed, mesh_) * local_columns(placed, mesh_);
  }
  std::int64_t bytes_of(const Matrix& matrix) const { return kItem * local_elements(matrix.placed); }

  int make(std::int64_t bytes) {
    const auto free = std::find(is_used_.begin(), is_used_.end(), false);
    const int tensor = static_cast<int>(free - is_used_.begin());
    if (free == is_used_.end()) is_used_.push_back(false);
    is_used_[static_cast<std::size_t>(tensor)] = true;
    out_.making.push_back({.what = Alloc, .tensor = tensor, .bytes = bytes});
    return tensor;
  }

  void drop(int tensor) {
    if (tensor < 0) return;
    is_used_[static_cast<std::size_t>(tensor)] = false;
    out_.making.push_back({.what = Free, .tensor = tensor});
  }

  void send(CollectiveKind kind, std::int64_t bytes, int dimension) {
    out_.making.push_back({.what = Collective, .bytes = bytes, .collective = kind, .dimension = dimension});
  }

  void normalize(const Matrix& x) {
    const int norm = make(kItem);
    std::vector<int> scratch;
    for (const std::int64_t bytes : reduction_scratch(1, local_elements(x.placed), false, limits_)) {
      scratch.push_back(make(bytes));
    }
    for (; !scratch.empty(); scratch.pop_back()) drop(scratch.back());
    int total = norm;
    const int last = mesh_.dimensions - 1;
    if (mesh_.sizes[last] > 1) {
      const int square = make(kItem);
      const int sum = make(kItem);
      send(CollectiveKind::AllReduce, kItem, last);
      total = make(kItem);
      drop(square);
      drop(sum);
    }
    const int clamped = make(kItem);
    if (total != norm) drop(total);
    drop(norm);
    drop(clamped);
  }

  void iterate(Matrix& x, int update) {
    Matrix gram;
    Matrix change;
    for (std::int64_t i = 0; i < of_.ns_steps; ++i) {
      const std::array<Matrix, 2> both = {x, transposed(x)};
      const Matrix next_gram = multiply(both);
      drop(std::exchange(gram, next_gram).tensor);
      const std::array<Matrix, 3> squared = {gram, gram, gram};
      const Matrix next_change = multiply(squared);
      drop(std::exchange(change, next_change).tensor);
      const std::array<Matrix, 3> moved = {x, change, x};
      const Matrix next = multiply(moved);
      const Matrix before = std::exchange(x, next);
      if (before.tensor != update) drop(before.tensor);
    }
    drop(gram.tensor);
    drop(change.tensor);
    if (x.tensor != update) drop(update);
  }

  // The parameter takes the result if it has the right placement.
  MuonUpdate finish(std::size_t made, const Matrix& x, const Placements& as_parameter) {
    const auto copies = redistribute(x, as_parameter);
    if (copies.tensor != x.tensor) drop(copies.tensor);
    out_.update = x.tensor;
    out_.num_tensors = static_cast<int>(is_used_.size());
    const auto middle = out_.making.begin() + static_cast<std::ptrdiff_t>(made);
    out_.changing.assign(middle, out_.making.end());
    out_.making.erase(middle, out_.making.end());
    return std::move(out_);
  }

  template <std::size_t N>
  Matrix multiply(const std::array<Matrix, N>& inputs) {
    std::array<PlacedMatrix, N> placed;
    for (std::size_t i = 0; i < N; ++i) placed[i] = inputs[i].placed;
    const PlacedProduct product = place_product(placed, mesh_);
    std::array<Matrix, N> moved;
    for (std::size_t i = 0; i < N; ++i) moved[i] = redistribute(inputs[i], product.inputs[i]);
    const Matrix& a = moved[N - 2];
    const Matrix& b = moved[N - 1];
    Matrix result;
    result.placed = {a.placed.rows, b.placed.columns, product.result};
    result.tensor = make(bytes_of(result));
    for (std::size_t i = N; i-- > 0;) {
      if (moved[i].tensor != inputs[i].tensor) drop(moved[i].tensor);
    }
    out_.flops +=
        2.0 * static_cast<double>(local_elements(result.placed)) * static_cast<double>(local_columns(a.placed, mesh_));
    for (const Matrix& each : moved) out_.traffic += static_cast<double>(bytes_of(each));
    out_.traffic += static_cast<double>(bytes_of(result));
    return result;
  }

  Matrix redistribute(const Matrix& from, const Placements& to) {
    Matrix current = from;
    for (const Transition& step : transitions(from.placed.placements, to, mesh_)) {
      Matrix next = current;
      next.placed.placements[step.dimension] = step.to;
      if (mesh_.sizes[step.dimension] > 1) move(current, step, next);
      if (current.tensor != from.tensor && current.tensor != next.tensor) drop(current.tensor);
      current = next;
    }
    return current;
  }

  // Sets the tensor of `next`, and its order.
  void move(const Matrix& current, const Transition& step, Matrix& next) {
    const bool is_summed = step.from == Partial || step.from == Average;
    if (step.from == Replicate) {
      if (step.to != Average) next.tensor = make(bytes_of(next));
      return;
    }
    if (is_summed && step.to == Replicate) {
      next.tensor = make(bytes_of(next));
      send(CollectiveKind::AllReduce, bytes_of(current), step.dimension);
      next.in_rows = true;
      return;
    }
    const int copy = current.in_rows ? -1 : make(bytes_of(current));
    next.in_rows = true;
    if (is_summed) {
      const int ordered = step.to == Columns ? make(bytes_of(current)) : -1;
      next.tensor = make(bytes_of(next));
      send(CollectiveKind::ReduceScatter, bytes_of(current), step.dimension);
      drop(ordered);
    } else {
      const bool gathers = step.to == Replicate;
      const int arrived = make(bytes_of(next));
      send(gathers ? CollectiveKind::AllGather : CollectiveKind::AllToAll, bytes_of(next), step.dimension);
      const bool is_ordered = gathers && step.from == Rows;
      next.tensor = is_ordered ? arrived : make(bytes_of(next));
      if (!is_ordered) drop(arrived);
    }
    drop(copy);
  }

  const MuonMatrix of_;
  const TensorMesh mesh_;
  const LaunchLimits limits_;
  MuonUpdate out_;
  std::vector<bool> is_used_;
};

}  // namespace

MuonUpdate muon_update(const MuonMatrix& matrix, const TensorMesh& mesh, const LaunchLimits& limits) {
  return UpdateWriter(matrix, mesh, limits).run();
}

}  // namespace fsdp::simulator
