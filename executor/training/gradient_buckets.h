#pragma once

// DDP on one rank: the buckets that gradients are copied into and all-reduced in, and the buffers that rank 0 sends.
// Parameters are whole on every rank, and what is `.grad` in PyTorch is `ParameterState::grad`. When a bucket is
// reduced is the schedule's to say; what each call allocates and frees is what the simulator says
// (simulator/memory/memory_walk_buckets.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "executor/network/collectives.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

class GradientBuckets {
 public:
  /// `states` [num parameters] of the model, in its order. `group`: all ranks; null: one rank, which reduces nothing.
  /// REQUIRES: `layout` is of DDP; all references outlive it.
  GradientBuckets(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
                  Group* group, CollectiveListener& listener);

  /// The wrapper is made: rank 0's parameters and registered `buffers` are sent to all, and the first step's buckets
  /// are there. No listener is told.
  void construct(const std::vector<at::Tensor>& buffers);
  /// A training forward begins: behind the first reduction, the buckets of all later steps take the first ones' place.
  void enter_forward(int micro_batch);
  /// Rank 0's buffers are sent to all.
  void sync_buffers(const std::vector<at::Tensor>& buffers);
  /// From now on gradients go into their buckets when they are complete, until `finish`.
  void prepare_reduce();

  /// One gradient of a parameter; the sum of a backward's is added to `grad`. Its dtype is the parameter's.
  void add_gradient(int parameter, at::Tensor gradient);
  /// ParameterAccess::add_to_earlier. A gradient that is to be a view of its bucket is written there at once, too.
  bool add_to_earlier(int parameter, const at::Tensor& gradient);

  /// Starts the sum of a bucket over all ranks. Throws ScheduleBroken where one of its gradients has not come.
  void reduce(int bucket);
  /// Starts the sum of what says which parameters were used.
  void reduce_used_map();
  /// Waits for all sums, which are the gradients then.
  void finish();
  void zero_grad();

 private:
  struct Bucket {
    const GradientBucket* of = nullptr;
    at::Tensor sum;                 ///< [elements]
    std::vector<at::Tensor> views;  ///< [parameters] Of it, in their shapes.
    std::size_t arrived = 0;
    std::unique_ptr<Pending> pending;
  };
  struct Place {
    int bucket = -1;
    int position = -1;  ///< In the bucket.
  };

  void make(const std::vector<GradientBucket>& buckets);
  void find_places();
  void complete(ParameterState& state);
  void take_in(ParameterState& state, const at::Tensor& gradient);
  void copy_out(Bucket& bucket);
  bool is_unused(int parameter) const;
  void broadcast(const std::vector<at::Tensor>& tensors, bool is_told);
  at::Tensor& view_of(int parameter);

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  std::vector<ParameterState*> states_;
  Group* group_;
  CollectiveListener& listener_;
  std::vector<int> uses_;  ///< [num parameters] Gradients that come in one backward.
  const std::vector<GradientBucket> first_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  ///< [num parameters]
  at::Tensor used_map_;        ///< [trained parameters] int32; undefined: nobody looks for unused ones.
  std::unique_ptr<Pending> used_map_pending_;
  bool is_prepared_ = false;
  bool has_reduced_ = false;
  bool is_rebuilt_ = false;
};

}  // namespace fsdp::executor
