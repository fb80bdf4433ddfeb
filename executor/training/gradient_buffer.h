#pragma once

// The buffer in which DeepSpeed's ZeRO collects gradients until they are reduced. Which go into it together, and where
// each lies in it, is the layout's to say.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

class GradientBuffer {
 public:
  /// Reduces a bucket. `filled` [elements] is where its gradients are: the buffer, or the only one of them.
  using Reduce = std::function<void(const GradientBucket& bucket, const at::Tensor& filled)>;

  /// `states` [num parameters]. REQUIRES: `layout` is of ZeRO; all references outlive it.
  GradientBuffer(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
                 Reduce reduce);

  /// Takes the memory of the buffer, or of two with overlap_comm, unless it is there.
  void make();
  /// Gives it up.
  void drop();

  /// A gradient of a parameter; several of one pass are added.
  void add_gradient(int parameter, at::Tensor gradient);
  /// ParameterAccess::add_to_earlier. It is taken at once, as DeepSpeed's hook does.
  bool add_to_earlier(int parameter, const at::Tensor& gradient);
  /// What a parameter has as its gradient goes.
  void drop_gradient(int parameter);

  /// From now on gradients are reduced, until `finish`.
  void prepare_reduce() { reduces_ = true; }
  /// A bucket that no gradient had to make room for. Throws ScheduleBroken where one of its gradients has not come.
  void reduce(int bucket);
  /// The backward is over. False: none of its gradients was to be reduced. Throws ScheduleBroken.
  bool finish();

  std::int64_t elements_of(int parameter) const;
  /// Where a parameter's gradient begins in what is filled.
  std::int64_t begin_of(int parameter) const { return places_[parameter].begin; }

 private:
  struct Place {
    int bucket = -1;  // -1: no gradient comes.
    std::int64_t begin = 0;
  };

  // Stage 1 without overlap_comm reduces nothing before the end of the backward.
  bool waits() const { return plan_.runtime.framework == Framework::Zero1 && !plan_.zero.overlap_comm; }
  bool is_large(int parameter) const { return elements_of(parameter) > plan_.zero.reduce_bucket_size; }
  void complete(ParameterState& state);
  void put(int parameter);
  void fill_from_waiting();
  bool may_go(int parameter) const;
  void fill(int parameter, const at::Tensor& gradient);
  void reduce_filled();

  const Plan& plan_;
  const Layout& layout_;
  std::vector<ParameterState*> states_;
  Reduce reduce_;
  std::vector<int> uses_;            // [num parameters] Gradients that come in one backward.
  std::vector<Place> places_;        // [num parameters] As DeepSpeed fills it, in whatever order they come here.
  std::vector<at::Tensor> buffers_;  // [reduce_bucket_size] The first one is being filled.
  std::vector<int> waiting_;         // Complete gradients that belong to a later bucket.
  std::size_t num_filled_ = 0;       // Gradients that are in it.
  std::size_t next_bucket_ = 0;
  bool reduces_ = false;
};

}  // namespace fsdp::executor
