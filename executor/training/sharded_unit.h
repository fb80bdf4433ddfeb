#pragma once

// One FSDP2 unit on one rank: its shards, its unsharded parameters while they exist, its gradients, and the buffers of
// its collectives. Each call allocates and frees as the simulator predicts (simulator/memory/memory_walk_units.h); the
// schedule decides when a buffer of a collective is freed.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"
#include "executor/network/collectives.h"
#include "executor/training/streams.h"

namespace fsdp::executor {

/// One parameter of a unit.
struct ParameterState {
  const Parameter* parameter = nullptr;
  ShardedParameter layout;
  c10::ScalarType dtype = c10::kFloat;     ///< The shard's dtype.
  c10::ScalarType gathered = c10::kFloat;  ///< The unsharded parameter's dtype.
  at::Tensor shard;                        ///< [shard_elements] Padded with zeros.
  at::Tensor local;                        ///< Its rows without padding, as the optimizer sees them.
  at::Tensor grad;                         ///< Like `local`; undefined if there is none.
  at::Tensor smaller;    ///< Exists with an integer reshard_after_forward. [shard * shard_elements / world size]
  at::Tensor storage;    ///< [shard * shard_elements] Emptied while the unit is sharded.
  at::Tensor whole;      ///< A view of it with the parameter's shape.
  at::Tensor new_grad;   ///< Gradient of the unsharded parameter in this backward, and
  at::Tensor kept_grad;  ///< of earlier micro-batches without reduction, in the reduce dtype.
  int uses = 0;          ///< Number of gradients in one backward, known after the first accumulation; and
  int came = 0;          ///< number of those in this one.

  bool has_gradient() const { return new_grad.defined() || kept_grad.defined(); }
  /// Adds one more; several of one backward are summed.
  void add_new_gradient(at::Tensor gradient);
};

/// A rank's first element of a parameter. After the parameter's end if the rank has none.
std::int64_t first_element(const ShardedParameter& parameter, std::int64_t shard_rank);

/// The groups of a unit's collectives. `smaller` exists if a unit keeps a smaller shard.
struct UnitGroups {
  Group* shard = nullptr;
  Group* replicate = nullptr;  ///< Null without replicas.
  Group* smaller = nullptr;
};

/// The place of a unit. Without streams, as on a CPU, everything happens at once.
struct UnitPlace {
  c10::Device device = c10::Device(c10::kCPU);
  CommunicationStreams* streams = nullptr;
  StreamClock* clock = nullptr;  ///< Set if there are streams.
};

/// A collective with the sizes of its actual tensors.
struct CalledCollective {
  CollectiveKind kind = CollectiveKind::AllGather;
  c10::ScalarType dtype = c10::kFloat;
  std::int64_t elements = 0;
  std::int64_t payload = 0;  ///< Bytes of the full tensor.
  MeshDimension group = MeshDimension::Shard;
  std::int64_t group_size = 1;
};

/// Called at every collective.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  virtual void called(int unit, const CalledCollective& collective) = 0;
};

class RunningUnit {
 public:
  RunningUnit(int index, const ShardedUnit& unit, const Layout& layout, const Plan& plan, const Model& model,
              UnitGroups groups, CollectiveListener& listener, UnitPlace place = {});

  /// Gives a parameter its shard of zeros; the caller writes the values. REQUIRES: called for each parameter before
  /// training.
  void make_shard(ParameterState& state) const;
  /// The same with existing memory. [shard_elements]
  static void set_shard(ParameterState& state, at::Tensor shard);

  const ShardedUnit& unit() const { return unit_; }
  std::vector<ParameterState>& parameters() { return parameters_; }
  ParameterState& parameter(int id);
  bool is_whole() const { return is_whole_; }

  /// Starts the all-gather into the buffer of a slot, from the smaller shards if `from_smaller`.
  void unshard(int slot, bool from_smaller);
  /// Waits, and copies out into the unsharded parameters.
  void wait_for_unshard(int slot);
  /// Frees the unsharded parameters, or the smaller shards that nobody gathers. With `keep_smaller` it keeps the shards
  /// of a smaller group.
  void reshard(bool keep_smaller);

  /// Adds a gradient of an unsharded parameter, in the parameter's gathered dtype; several of one backward are summed.
  void add_gradient(int parameter, at::Tensor gradient);
  /// ParameterAccess::add_to_earlier.
  bool add_to_earlier(int parameter, const at::Tensor& gradient);
  /// Without gradient sync: keeps the gradients in the reduce dtype.
  void accumulate();
  /// Reduces all gradients into sharded gradients, and frees them. `step` names the buffers that stay alive.
  void reduce(const Instruction& step);
  /// The compute stream waits for the last reduction.
  void wait_for_reduction();
  /// Frees a buffer after all its uses. No effect if there is none.
  void free(BufferKind buffer, int slot);
  void free_all_gathers();
  /// Whether gradients that are copied to the host have arrived.
  bool has_gradients() const { return !offloaded_ || offloaded_->is_passed(); }
  void zero_grad();

 private:
  bool is_left_to_autograd(const ParameterState& state) const;
  // On streams (sharded_unit_streams.cpp).
  void gather_on_streams(int slot);
  std::vector<at::Tensor> gather_sources();
  void copy_in_on_streams(std::vector<at::Tensor>& sources, const Group& group, at::Tensor& output);
  void copy_out_on_streams(int slot);
  void copy_shards_on_streams();
  static std::int64_t bytes_of_storage(const ParameterState& state);
  std::vector<int> chunk_gradients(at::Tensor* last);
  void reduce_on_streams(const Instruction& step);
  /// Makes both streams of gathers wait for it, once.
  void hold_gathers(std::optional<StreamMark>& mark);

  void copy_in_shards(int slot, bool from_smaller);
  /// Adds this backward's gradients to those that were accumulated without reduction; returns the positions of the
  /// parameters that have one.
  std::vector<int> add_up_gradients();
  std::int64_t shard_elements(const std::vector<int>& positions) const;
  /// Copies them into the input of the reduction; returns the positions of the parameters that had one. If `last` is
  /// given it receives the last gradient, which otherwise is freed with the others.
  std::vector<int> copy_in_gradients(at::Tensor* last);
  bool is_on_host() const { return plan_.cpu_offload && place_.streams != nullptr; }  ///< The shards.
  double num_ranks() const;  ///< The number of ranks over which gradients are averaged.
  void reduce_scatter(const at::Tensor& output);
  void all_reduce(const at::Tensor& output);
  at::Tensor to_host(const at::Tensor& gradient, bool waits);
  void view_gradients(at::Tensor gradient, const std::vector<int>& reduced, bool keeps_output);
  void free_gather(int slot);
  void free_reduce_input();
  void free_all_reduce_output();

  int index_;
  const ShardedUnit& unit_;
  const Plan& plan_;
  std::int64_t world_ = 1;  ///< The size of the shard group.
  UnitGroups groups_;
  CollectiveListener& listener_;
  std::vector<ParameterState> parameters_;
  bool is_whole_ = false;
  bool is_from_smaller_ = false;
  /// An all-gather, in progress or done.
  struct Gather {
    at::Tensor output;  ///< [bytes]
    std::unique_ptr<Pending> pending;
    std::optional<StreamMark> ended;
    std::optional<StreamMark> copied_out;  ///< After it, nobody reads the output.
  };
  std::array<Gather, kNumSlots> gathers_;
  at::Tensor reduce_input_;
  at::Tensor all_reduce_output_;

  UnitPlace place_;
  std::optional<StreamMark> resharded_;  ///< After it, the smaller shards exist.
  std::optional<StreamMark> scattered_;  ///< After it, nobody reads the reduce-scatter's input.
  std::optional<StreamMark> reduced_;    ///< After it, the sharded gradients exist,
  std::optional<StreamMark> offloaded_;  ///< and are on the host.
};

}  // namespace fsdp::executor
