#pragma once

// The ranks of a training run as a mesh with named axes.
//
// Source: torchtitan 0.3.0, distributed/parallel_dims.py: the names of the axes, and which one is the outer one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace fsdp {

/// The axes of a mesh, outermost first. Another kind of parallelism is one more of them.
enum class MeshAxis : std::uint8_t {
  DpReplicate,  ///< Copies of the model.
  DpShard,      ///< Ranks that share one copy: FSDP's shard group.
};

inline constexpr std::size_t kNumMeshAxes = 2;

/// The ranks that a collective runs over, seen from one of them: those that differ from it on some axes alone. So any
/// kind of parallelism names its groups, and nobody has to know which one it is.
struct RankGroup {
  std::uint8_t axes = 0;      ///< A bit for each MeshAxis. 0: nothing is called.
  std::int32_t ranks = 0;     ///< Only so many of them; 0: all.
  std::int32_t distance = 1;  ///< How far apart two neighbors of such a part are.

  bool empty() const { return axes == 0; }
  /// Whether it is a part of the ranks along its axes.
  bool is_part() const { return ranks > 0; }
  bool is_along(MeshAxis axis) const { return axes == 1U << static_cast<unsigned>(axis); }

  bool operator==(const RankGroup&) const = default;
};

/// All ranks along one axis; the `ranks` nearest of them, or so many that are `distance` apart.
constexpr RankGroup ranks_along(MeshAxis axis, std::int64_t ranks = 0, std::int64_t distance = 1) {
  return {static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis)), static_cast<std::int32_t>(ranks),
          static_cast<std::int32_t>(distance)};
}

/// A rank is its coordinates as the digits of a number, outermost first: ranks of the innermost axis are neighbors.
struct Mesh {
  std::array<std::int64_t, kNumMeshAxes> sizes{1, 1};  ///< [axes], each at least 1.
  /// Expert parallelism: so many neighbors of a shard group share the experts of a layer between them, whole ones each.
  /// For experts a shard group is these neighbors times the ranks that hold the same experts. 1: no such division.
  std::int64_t ep = 1;

  constexpr Mesh() = default;
  constexpr Mesh(std::int64_t dp_replicate, std::int64_t dp_shard) : sizes{dp_replicate, dp_shard} {}

  std::int64_t& size(MeshAxis axis) { return sizes[static_cast<std::size_t>(axis)]; }
  std::int64_t size(MeshAxis axis) const { return sizes[static_cast<std::size_t>(axis)]; }
  std::int64_t& dp_replicate() { return size(MeshAxis::DpReplicate); }
  std::int64_t dp_replicate() const { return size(MeshAxis::DpReplicate); }
  std::int64_t& dp_shard() { return size(MeshAxis::DpShard); }
  std::int64_t dp_shard() const { return size(MeshAxis::DpShard); }

  std::int64_t world_size() const { return product(sizes.data()); }

  /// Ranks with samples of their own: each of them reads another part of a step's batch.
  std::int64_t data_parallel_size() const { return dp_replicate() * dp_shard(); }

  /// How far apart two ranks are that are neighbors on an axis.
  std::int64_t stride(MeshAxis axis) const { return product(sizes.data() + static_cast<std::size_t>(axis) + 1); }

  /// The number of ranks of a group; 1 for an empty one.
  std::int64_t size(const RankGroup& group) const {
    if (group.is_part()) return group.ranks;
    std::int64_t ranks = 1;
    for (std::size_t axis = 0; axis < kNumMeshAxes; ++axis) ranks *= (group.axes >> axis & 1) != 0 ? sizes[axis] : 1;
    return ranks;
  }

  /// How far apart two neighbors of a group are.
  std::int64_t stride(const RankGroup& group) const {
    std::size_t inner = kNumMeshAxes - 1;
    while (inner > 0 && (group.axes >> inner & 1) == 0) --inner;
    return stride(static_cast<MeshAxis>(inner)) * group.distance;
  }

  /// The ranks along an axis as the group of a collective: empty if there is one rank, which calls nothing unless it
  /// `calls_alone`.
  RankGroup group_along(MeshAxis axis, bool calls_alone = false) const {
    return size(axis) > 1 || calls_alone ? ranks_along(axis) : RankGroup{};
  }

  /// Ranks of a shard group that hold the same experts, over which FSDP shards these.
  std::int64_t expert_shard() const { return dp_shard() / ep; }

  /// The neighbors that exchange tokens: empty without expert parallelism.
  RankGroup expert_group() const { return ep > 1 ? ranks_along(MeshAxis::DpShard, ep) : RankGroup{}; }

  /// The ranks that hold the same experts: empty if there is one, which calls nothing unless it `calls_alone`.
  RankGroup expert_shard_group(bool calls_alone = false) const {
    return expert_shard() > 1 || calls_alone ? ranks_along(MeshAxis::DpShard, expert_shard(), ep) : RankGroup{};
  }

  /// Where a rank stands on an axis, from 0.
  std::int64_t coordinate_of(MeshAxis axis, std::int64_t rank) const { return rank / stride(axis) % size(axis); }

  /// The ranks that differ from `rank` on one axis only, itself among them, in the order of that axis.
  std::vector<std::int64_t> group(MeshAxis axis, std::int64_t rank) const {
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(size(axis)));
    const std::int64_t first = rank - coordinate_of(axis, rank) * stride(axis);
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = first + static_cast<std::int64_t>(i) * stride(axis);
    return ranks;
  }

  bool operator==(const Mesh&) const = default;

 private:
  std::int64_t product(const std::int64_t* first) const {
    return std::accumulate(first, sizes.data() + sizes.size(), std::int64_t{1}, std::multiplies<>());
  }
};

}  // namespace fsdp
