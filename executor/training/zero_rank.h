#pragma once

// DeepSpeed's ZeRO-1 and 2 on one rank: the flat buffer of all trained parameters, the buffer in which gradients are
// reduced, and the part of an updated copy that this rank's optimizer sees. When each happens is the schedule's to say;
// what each call allocates and frees is what the simulator says (simulator/memory/memory_walk_zero.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan/zero_partition.h"
#include "executor/training/zero_engine.h"

namespace fsdp::executor {

class ZeroRank final : public ZeroEngine {
 public:
  /// Gives the trained parameters of `states` [num parameters] places in one flat buffer, and shards that are views of
  /// the rank's part of the copy: zeros, whose values are the caller's to write. Takes the memory that DeepSpeed takes
  /// to make them from a model that is there. REQUIRES: `layout` is of ZeRO-1 or 2; all references outlive it.
  ZeroRank(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
           Group& group, CollectiveListener& listener);

  /// The rank's part of the copy.
  std::vector<ParameterState*> updated() override { return {&part_}; }
  Place place_of(const ParameterState& state) const override;
  void begin_forward(bool has_trained) override;
  void finish_backward() override;
  bool run(const Instruction& step, const Schedule& schedule) override;
  LaterNumber take_norm() override;
  void update(const std::function<void()>& step) override;

 private:
  bool is_first_stage() const { return plan_.runtime.framework == Framework::Zero1; }
  at::Tensor own_part() const;

  void make_memory();
  void place_parameters();
  void reduce(const GradientBucket& bucket, const at::Tensor& filled) override;
  void reduce_slices(const GradientBucket& bucket, const at::Tensor& sum);
  void keep(int parameter, const at::Tensor& reduced);
  void keep_of_micro_batch();
  at::Tensor piece_of(std::size_t slice) const;
  void check_overflow();
  at::Tensor flat_gradient();
  void gather();
  void zero_grad();

  std::vector<ZeroSlice> slices_;  // Of the rank.
  std::vector<bool> is_in_part_;   // [num parameters] Reaches into the rank's part.
  ParameterState part_;            // [part elements]
  at::Tensor flat_;                // [elements] What is computed with.
  bool is_computed_with_ = false;  // The flat buffer has the values of the copy.

  at::Tensor kept_;              // [touched elements] The reduced gradients of this micro-batch, whole.
  std::int64_t kept_end_ = 0;    // Elements of it that are there.
  std::vector<at::Tensor> sum_;  // [slices] The same of all micro-batches, as they lie in the first one's.
  at::Tensor padding_;           // Zeros behind the last parameter.
  at::Tensor squares_;           // [] Added up over all ranks.
  at::Tensor norm_before_;       // Of the step before, which the engine keeps until this one's is there.
};

}  // namespace fsdp::executor
