#pragma once

// DeepSpeed's ZeRO-1 and 2 on one rank: the flat buffer of all trained parameters, the buffer in which gradients are
// reduced, and the part of an updated copy that this rank's optimizer sees. When each happens is the schedule's to say;
// what each call allocates and frees is what the simulator says (simulator/memory/memory_walk_zero.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/zero_partition.h"
#include "executor/network/collectives.h"
#include "executor/training/later_number.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

class ZeroRank {
 public:
  /// Gives the trained parameters of `states` [num parameters] places in one flat buffer, and shards that are views of
  /// the rank's part of the copy: zeros, whose values are the caller's to write. Takes the memory that DeepSpeed takes
  /// to make them from a model that is there. REQUIRES: `layout` is of ZeRO-1 or 2; all references outlive it.
  ZeroRank(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
           Group& group, CollectiveListener& listener);

  /// The part of the copy, with its gradient, as the optimizer sees it.
  ParameterState& part() { return part_; }
  /// The parameters that are computed with become those of the copy, in front of the first forward. Without
  /// `has_trained` the copy is first rounded to them, from which DeepSpeed makes it.
  void begin_forward(bool has_trained);

  /// A gradient of a parameter; several of one pass are added.
  void add_gradient(int parameter, at::Tensor gradient);
  /// ParameterAccess::add_to_earlier. It is taken at once, as DeepSpeed's hook does.
  bool add_to_earlier(int parameter, const at::Tensor& gradient);

  /// The loss is divided by the number of micro-batches, and scaled by 1. Called before each part of a backward.
  void begin_backward();
  /// From now on gradients are reduced, until `finish_backward`.
  void prepare_reduce() { reduces_ = true; }
  /// A bucket that no gradient had to make room for. Throws ScheduleBroken where one of its gradients has not come.
  void reduce(int bucket);
  /// What is left of the backward's gradients is what the rank's part needs, those of earlier micro-batches added.
  void finish_backward();

  /// The ranks agree whether a gradient is not finite. Such a step is left out.
  void check_overflow();
  /// The norm of all gradients, which DeepSpeed takes whether it clips or not.
  LaterNumber take_norm();
  /// The gradient of the part is there, clipped. False: the step is left out.
  bool begin_step();
  /// The optimizer has updated the part.
  void end_step();
  /// Each rank's part goes to all others.
  void gather();
  void zero_grad();

 private:
  struct Place {
    int bucket = -1;         // -1: no gradient comes.
    std::int64_t begin = 0;  // In the buffer.
  };

  const ZeroBuffer& buffer() const { return layout_.zero; }
  bool is_first_stage() const { return plan_.runtime.framework == Framework::Zero1; }
  bool waits() const { return is_first_stage() && !plan_.zero.overlap_comm; }
  bool is_large(int parameter) const;
  std::int64_t elements_of(int parameter) const;
  at::Tensor own_part() const;

  void make_memory();
  void place_parameters();
  void complete(ParameterState& state);
  void make_buffers();
  void put(int parameter);
  void fill_from_waiting();
  bool may_go(int parameter) const;
  void fill(int parameter, const at::Tensor& gradient);
  void reduce_bucket();
  void drop_gradient(int parameter);
  void reduce_slices(const GradientBucket& bucket, const at::Tensor& sum);
  void all_reduce(const at::Tensor& tensor, ReduceOp op);
  void keep(int parameter, const at::Tensor& reduced);
  void keep_of_micro_batch();
  at::Tensor flat_gradient();

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  std::vector<ParameterState*> states_;
  Group& group_;
  CollectiveListener& listener_;
  std::vector<int> uses_;          // [num parameters] Gradients that come in one backward.
  std::vector<ZeroSlice> slices_;  // Of the rank.
  std::vector<bool> is_in_part_;   // [num parameters] Reaches into the rank's part.
  std::vector<Place> places_;      // [num parameters] As DeepSpeed fills the buffer, in whatever order they come here.
  ParameterState part_;            // [part elements]
  at::Tensor flat_;                // [elements] What is computed with.
  bool is_computed_with_ = false;  // The flat buffer has the values of the copy.

  std::vector<at::Tensor> buffers_;  // [reduce_bucket_size] One, or two of which the other one is filled next.
  std::size_t num_filled_ = 0;       // Gradients that are in it.
  std::vector<int> waiting_;         // Complete gradients that belong to a later bucket.
  std::size_t next_bucket_ = 0;
  bool reduces_ = false;
  std::vector<at::Tensor> losses_;  // What DeepSpeed makes of the loss, during the backward.

  at::Tensor kept_;              // [touched elements] The reduced gradients of this micro-batch, whole.
  std::int64_t kept_end_ = 0;    // Elements of it that are there.
  std::vector<at::Tensor> sum_;  // [slices] The same of all micro-batches, as they lie in the first one's.
  at::Tensor padding_;           // Zeros behind the last parameter.
  at::Tensor squares_;           // [] Added up over all ranks.
  at::Tensor norm_;              // [] Of this step, and
  at::Tensor norm_before_;       // of the one before, which the engine keeps until then.
  bool is_left_out_ = false;     // The step: a gradient is not finite.
};

}  // namespace fsdp::executor
