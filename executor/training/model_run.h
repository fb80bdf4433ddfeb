#pragma once

// The model's forward and backward, a range of ops at a time, for `Forward` and `Backward` of a schedule.
//
// Values between calls are plain tensors without a history. The graph of a call is cut wherever the schedule's backward
// may stop, so that each piece can run by itself (executor/training/autograd_piece.h). A value is dropped after its
// last use.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/schedule.h"
#include "executor/kernels/kernels.h"
#include "executor/training/autograd_piece.h"
#include "executor/training/later_number.h"
#include "executor/training/recomputation.h"

namespace fsdp::executor {

/// The calls of a model's ops to the owner of the parameters.
class ParameterAccess {
 public:
  virtual ~ParameterAccess() = default;
  /// The unsharded parameter. Throws ScheduleBroken if its unit is sharded.
  virtual at::Tensor whole(int parameter) = 0;
  virtual void add_gradient(int parameter, at::Tensor gradient) = 0;
  /// Adds it to the gradient of earlier micro-batches if autograd would. False if not: call `add_gradient` then.
  virtual bool add_to_earlier(int parameter, const at::Tensor& gradient) = 0;
};

/// The schedule uses something that does not exist: a bug of ours, reported with its instruction.
class ScheduleBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Called when the ops of a model run, and when their backward runs.
class OpListener {
 public:
  virtual ~OpListener() = default;
  virtual void op_begins() = 0;
  /// In the block of the call.
  virtual void op_ended(int call, int op) = 0;
  virtual void backward_begins() = 0;
  virtual void backward_ended() = 0;
};

class ModelRun {
 public:
  /// `schedule` has the places where the backward may stop. Gradients are those of the loss over `loss_divisor`.
  ModelRun(const ModelIndex& index, const Plan& plan, const Schedule& schedule, KernelContext context,
           ParameterAccess& parameters, std::int64_t loss_divisor = 1);
  ~ModelRun();

  /// Takes the inputs of a micro-batch, in the order of `Model::inputs`.
  void begin_micro_batch(Tensors inputs);
  /// The forward of the root has returned.
  void leave_root();
  void forward(const Instruction& step);
  /// Call after the hooks of the last forward have run: its call releases its inputs.
  void return_from_call();
  /// Gives the loss its gradient, unless it has it.
  void begin_backward();
  void backward(const Instruction& step);
  /// False: forwards record no graph and apply no dropout; there is no backward. Defaults to true.
  void set_training(bool is_training) { is_training_ = is_training; }
  /// Null for none. It is not called for recomputation. REQUIRES: it outlives this, or is removed.
  void set_listener(OpListener* listener) { listener_ = listener; }
  /// Call after backward: frees all unused values.
  void end_micro_batch();

  /// The loss of the micro-batch whose forward has ended.
  LaterNumber loss() const { return loss_; }

 private:
  struct CallState;
  struct PieceRun;
  enum class InGraph : std::uint8_t { No, Piece, Unused };

  const Call& call_of(int call) const { return index_.model->calls[call]; }
  const Block& block_of(int call) const;
  void find_cuts(const Schedule& schedule);
  void begin_call(int call);
  void run_range(int call, int begin, int end);
  void run_piece(int call, int begin, int end);
  void run_ops(int call, int begin, int end, PieceRun& piece, KeptOutputs* kept);
  at::Tensor take_value(int call, int value, InGraph where, PieceRun& piece);
  void run_op_at(int call, int op_index, InGraph where, PieceRun& piece, KeptOutputs* keeps);
  Tensors take_parameters(int call, const Op& op, InGraph where, PieceRun& piece);
  void drop_after(int call, int op_index, PieceRun& piece);
  void drop_unused(int position);
  void publish(int call);
  void return_loss(const at::Tensor& loss);
  std::shared_ptr<Recomputation> recomputation_of(int call);
  void recompute(int call, const Tensors& inputs, const std::string& random, KeptOutputs& kept);
  at::Tensor take_gradient(int call, int value);
  at::Tensor& gradient_slot(int call, int value);
  void give_gradient(int call, int value, at::Tensor gradient);

  bool is_recorded(int call, int op) const;
  InGraph in_graph(int call, int op) const;
  bool is_held(int value) const;
  bool is_argument(int value) const;

  const ModelIndex& index_;
  KernelContext context_;
  ParameterAccess& parameters_;
  float first_gradient_;                         ///< The loss's gradient at the start of a backward.
  std::optional<c10::ScalarType> output_dtype_;  ///< The dtype of the loss; other units return that of activations.
  c10::ScalarType loss_dtype_ = c10::kFloat;     ///< The loss's dtype before the cast to that.
  bool stops_early_;
  std::vector<CheckpointMode> checkpoint_modes_;      ///< [num_calls]
  std::vector<std::vector<bool>> kept_ops_;           ///< [num blocks] Ops whose outputs selective checkpointing keeps.
  std::vector<std::vector<int>> cuts_;                ///< [num_calls] Ops before which the backward may stop, sorted.
  std::vector<std::vector<std::vector<int>>> drops_;  ///< [num blocks] For each op, the values freed after it.
  std::vector<bool> is_part_;                         ///< [num_calls] Whether its module's forward had begun before.
  std::vector<int> ends_of_unused_;    ///< [num_calls] The position before which the part of its graph that leads to no
                                       ///< output is freed.
  std::vector<int> last_use_;          ///< [num values] The last call that reads the value.
  std::vector<at::Tensor> values_;     ///< [num values]
  std::vector<bool> cast_inputs_;      ///< [num inputs] The root casts them.
  std::vector<at::Tensor> casts_;      ///< [num values] The root's casts, until its forward returns.
  std::vector<at::Tensor> gradients_;  ///< [num values]
  std::vector<CallState> calls_;       ///< [num_calls]
  int returning_ = -1;                 ///< The call whose hooks are running; -1 if there is none.
  bool is_in_backward_ = false;
  bool is_training_ = true;
  OpListener* listener_ = nullptr;
  at::Tensor loss_gradient_;  ///< Lives as long as the backward, like the argument of PyTorch's.
  LaterNumber loss_;
};

}  // namespace fsdp::executor
