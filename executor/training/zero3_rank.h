#pragma once

// DeepSpeed's ZeRO-3 on one rank: its parts of all parameters, the ones that are gathered, and the parts' gradients.
// Which are gathered and let go when is the schedule's to say; what each call allocates and frees is what the simulator
// says (simulator/memory/memory_walk_zero3.h).

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "executor/training/zero_engine.h"

namespace fsdp::executor {

class Zero3Rank final : public ZeroEngine {
 public:
  /// Gives the parameters of `states` [num parameters] their parts: of trained ones shards that are views of the rank's
  /// copy of a sub-group, zeros, whose values are the caller's to write. REQUIRES: `layout` is of ZeRO-3 without second
  /// copies; all references outlive it.
  Zero3Rank(const ModelIndex& index, const Plan& plan, const Layout& layout, std::vector<ParameterState*> states,
            Group& group, CollectiveListener& listener);

  /// The rank's copy of each sub-group.
  std::vector<ParameterState*> updated() override;
  Place place_of(const ParameterState& state) const override;
  void begin_forward(bool has_trained) override;
  void begin_evaluation() override;
  void end_evaluation() override;
  void finish_backward() override;
  bool run(const Instruction& step, const Schedule& schedule) override;
  at::Tensor read(int parameter) override;
  void rerun_comes_to(int op) override;
  void has_run_again() override;
  LaterNumber take_norm() override;
  void update(const std::function<void()>& step) override;

 private:
  struct Gather {
    at::Tensor output;  // [ranks * elements of all parts] Undefined: of one parameter, whose memory it is.
    std::unique_ptr<Pending> pending;
  };

  bool is_cut() const { return buffer().ranks > 1; }
  std::int64_t part_elements(int parameter) const;
  std::size_t num_groups() const { return buffer().num_groups(); }
  std::int64_t begin_of_group(std::size_t group) const { return buffer().begins[buffer().group_begins[group]]; }
  at::Tensor range_of(const at::Tensor& parts, std::size_t place) const;

  bool move(const Instruction& step, const Schedule& schedule);
  void do_next();

  void make_module(int module, std::vector<bool>& is_made);
  void make_model();
  void make_copies();
  void fetch(int group, const std::vector<int>& parameters);
  void wait_for(int group, const std::vector<int>& parameters);
  void gather_alone(int parameter);
  void release(int parameter);
  void reduce(const GradientBucket& bucket, const at::Tensor& filled) override;
  at::Tensor interleaved(const std::vector<int>& parameters, const at::Tensor& filled) const;
  void keep(int parameter, const at::Tensor& reduced);

  std::vector<int> made_as_;            // [num parameters] In the order in which deepspeed.zero.Init makes them.
  std::vector<int> place_of_;           // [num parameters] In the buffer's parameters; -1: frozen.
  std::vector<at::Tensor> parts_;       // [num parameters] [part elements] What is gathered.
  at::Tensor trained_parts_;            // [part elements of all] Of the trained ones, in one.
  std::vector<ParameterState> groups_;  // [sub-groups] [part elements of the group] What the optimizer updates.
  at::Tensor grads_;                    // [part elements of all]
  std::map<int, Gather> gathers_;       // Under way, by the group of the schedule.
  /// [num parameters] What a block that runs again reads, in the gathered memory; undefined: none has.
  std::vector<at::Tensor> read_again_;
  bool runs_again_ = false;
  /// Of a block that is to run again.
  std::deque<std::pair<const Instruction*, const Schedule*>> waiting_;
  std::array<at::Tensor, 2> flags_;  // [1] What the engine keeps of a barrier, and for overflows.
  int micro_batch_ = 0;
  bool is_computed_with_ = false;  // The parts have the values of the copies.
};

}  // namespace fsdp::executor
