// How a call runs. Its ops are split at the cuts; each piece runs with its own graph:
//
//   value made in the piece               as autograd made it
//   value from before, needs a gradient   enters the graph anew (`entering`), once per piece
//   value needed after the piece          its edge is stored, and the value continues without a history
//
// In the backward a piece takes the gradients of its continued values from the pieces and calls after it, and returns
// the gradients of the values that entered. The graph of a checkpointed call has no tensors
// (executor/training/recomputation.h); when autograd needs the first one, all ops of the call run once more, in one
// piece and from the same state of the random generator.
//
// Source: torch/utils/checkpoint.py (non-reentrant), torch 2.11.

#include "executor/training/model_run.h"

#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "core/plan/input_casts.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/training/gradients.h"
#include "executor/training/random_state.h"
#include "executor/training/value_lifetimes.h"

namespace fsdp::executor {

namespace {

constexpr int kNever = -1;

using Wanted = KeptOutputs::Wanted;

Wanted wanted_of(const Op& op) {
  return op.kind == OpKind::Attention ? Wanted::FusedAttention : Wanted::Everything;
}

bool is_random(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return op.attributes.probability > 0; });
}

std::optional<c10::ScalarType> output_dtype_of(const Plan& plan) {
  if (!plan.mixed_precision.output_dtype) return {};
  return scalar_type(*plan.mixed_precision.output_dtype);
}

}  // namespace

/// A running piece: its values with a history, and its graph.
struct ModelRun::PieceRun {
  std::map<int, at::Tensor> made;     // Values made by the piece, and
  std::map<int, at::Tensor> entered;  // values that entered from before it.
  AutogradPiece graph;
};

struct ModelRun::CallState {
  struct Piece {
    int begin = 0;
    int end = 0;
    AutogradPiece graph;
  };

  std::map<int, at::Tensor> values;     // The values of the block, without a history.
  std::map<int, at::Tensor> gradients;  // The gradients of values that go from piece to piece.
  std::vector<Piece> pieces;
  AutogradPiece unused;                          // The graph that does not lead to the loss.
  std::shared_ptr<Recomputation> recomputation;  // A checkpointed call's, during its forward.
};

ModelRun::ModelRun(const ModelIndex& index, const Plan& plan, const Schedule& schedule, KernelContext context,
                   ParameterAccess& parameters, std::int64_t loss_divisor)
    : index_(index),
      context_(std::move(context)),
      parameters_(parameters),
      first_gradient_(1.0F / static_cast<float>(loss_divisor)),
      output_dtype_(output_dtype_of(plan)),
      stops_early_(plan.checkpointing.early_stop),
      checkpoint_modes_(checkpoint_modes(index, plan.checkpointing)),
      cuts_(index.model->calls.size()),
      last_use_(index.model->values.size(), kNever),
      values_(index.model->values.size()),
      cast_inputs_(inputs_cast_by_root(*index.model, plan)),
      casts_(index.model->values.size()),
      gradients_(index.model->values.size()),
      calls_(index.model->calls.size()) {
  find_cuts(schedule);
  for (std::vector<int>& cuts : cuts_) {
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  }
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    const Call& call = index.model->calls[c];
    for (const int input : call.inputs) last_use_[input] = static_cast<int>(c);
  }
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    const int module = index.model->calls[c].module;
    const std::vector<Span> runs = module < 0 ? std::vector<Span>{} : index.runs[module];
    is_part_.push_back(std::any_of(runs.begin(), runs.end(), [&](const Span& run) {
      return run.begin < index.call_begin[c] && index.call_begin[c] < run.end;
    }));
  }
  for (const Block& block : index.model->blocks) {
    drops_.push_back(values_to_drop(block));
    kept_ops_.push_back(kept_ops(block, plan.checkpointing));
  }
  ends_of_unused_ = ends_of_unused(index, drops_, is_part_);
}

ModelRun::~ModelRun() = default;

// Consecutive backwards of one call, with only ops without a backward between them, are one piece: if both read a
// value, autograd adds its gradients in a different order than two pieces would.
void ModelRun::find_cuts(const Schedule& schedule) {
  const std::vector<Instruction>& steps = schedule.instructions;
  const auto is_same_backward = [&](std::size_t a, std::size_t b) {
    return b < steps.size() && steps[a].kind == InstructionKind::Backward &&
           steps[b].kind == InstructionKind::Backward && steps[a].call == steps[b].call;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != InstructionKind::Forward && steps[i].kind != InstructionKind::Backward) continue;
    std::vector<int>& cuts = cuts_[steps[i].call];
    if (i == 0 || !is_same_backward(i - 1, i)) cuts.push_back(steps[i].op_end);
    if (!is_same_backward(i, i + 1)) cuts.push_back(steps[i].op_begin);
  }
}

const Block& ModelRun::block_of(int call) const {
  return index_.model->blocks[call_of(call).block];
}

// PyTorch records a graph even if it leads to no output.
bool ModelRun::is_recorded(int call, int op) const {
  const std::vector<int>& outputs = block_of(call).ops[op].outputs;
  return std::any_of(outputs.begin(), outputs.end(), [&](int value) { return index_.flow.requires_grad[call][value]; });
}

ModelRun::InGraph ModelRun::in_graph(int call, int op) const {
  if (index_.in_backward[index_.call_begin[call] + op]) return InGraph::Piece;
  return is_recorded(call, op) ? InGraph::Unused : InGraph::No;
}

void ModelRun::begin_micro_batch(Tensors inputs) {
  const std::vector<int>& ids = index_.model->inputs;
  for (std::size_t i = 0; i < ids.size(); ++i) values_[ids[i]] = inputs[i];
  const CategoryScope activations(MemoryCategory::Activation);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (cast_inputs_[i]) casts_[ids[i]] = inputs[i].to(context_.activation);
  }
}

void ModelRun::leave_root() {
  for (at::Tensor& cast : casts_) cast = at::Tensor();
}

void ModelRun::forward(const Instruction& step) {
  if (step.op_begin == 0) begin_call(step.call);
  CallState& state = calls_[step.call];
  {
    const Recomputation::Scope places(state.recomputation.get());
    run_range(step.call, step.op_begin, step.op_end);
  }
  if (static_cast<std::size_t>(step.op_end) != block_of(step.call).ops.size()) return;
  state.recomputation.reset();
  returning_ = step.call;
}

void ModelRun::return_from_call() {
  const int call = std::exchange(returning_, kNever);
  if (call < 0) return;
  calls_[call].values.clear();
  const int position = index_.call_begin[call + 1];
  drop_unused(position);
  // Modules above several calls whose forward is over lose their arguments.
  for (const HeldArgument& held : index_.held_arguments) {
    if (held.end <= position && last_use_[held.value] <= call && !is_held(held.value)) {
      values_[held.value] = at::Tensor();
    }
  }
}

void ModelRun::begin_call(int call) {
  CallState& state = calls_[call];
  state.pieces.clear();
  const std::vector<int>& inputs = call_of(call).inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& cast = casts_[inputs[i]];
    const bool is_inside = call_of(call).module >= 0;
    state.values[static_cast<int>(i)] = cast.defined() && is_inside ? cast : values_[inputs[i]];
  }
  if (is_training_ && checkpoint_modes_[call] != CheckpointMode::None) state.recomputation = recomputation_of(call);
  for (const int input : inputs) {
    if (last_use_[input] == call && !is_held(input) && !is_argument(input)) values_[input] = at::Tensor();
  }
}

bool ModelRun::is_held(int value) const {
  const auto& held = index_.model->held;
  return value == index_.model->loss || std::any_of(held.begin(), held.end(), [&](const HeldValue& each) {
           return each.value == value && (!each.if_cached || context_.implementations.use_cache);
         });
}

bool ModelRun::is_argument(int value) const {
  return std::any_of(index_.held_arguments.begin(), index_.held_arguments.end(),
                     [&](const HeldArgument& held) { return held.value == value; });
}

void ModelRun::run_range(int call, int begin, int end) {
  for (const int cut : cuts_[call]) {
    if (cut <= begin || cut >= end) continue;
    run_piece(call, begin, cut);
    begin = cut;
  }
  run_piece(call, begin, end);
}

void ModelRun::run_piece(int call, int begin, int end) {
  CallState& state = calls_[call];
  PieceRun piece;
  run_ops(call, begin, end, piece, state.recomputation ? &state.recomputation->kept() : nullptr);
  for (const auto& [value, tensor] : piece.made) {
    if (tensor.requires_grad()) {
      const bool is_unused = !index_.flow.reaches_loss[call][value];
      (is_unused ? state.unused : piece.graph).outputs.push_back({edge_of(tensor), value});
    }
    state.values[value] = tensor.variable_data();
  }
  piece.made.clear();
  piece.entered.clear();
  publish(call);
  state.pieces.push_back({.begin = begin, .end = end, .graph = std::move(piece.graph)});
}

// `kept`: of a checkpointed call.
void ModelRun::run_ops(int call, int begin, int end, PieceRun& piece, KeptOutputs* kept) {
  const bool is_selective = is_training_ && checkpoint_modes_[call] == CheckpointMode::Selective;
  const std::vector<bool>& keeps = kept_ops_[call_of(call).block];
  const KeptOutputs::Scope calls(is_selective ? kept : nullptr);
  for (int op = begin; op < end; ++op) {
    const InGraph where = is_training_ ? in_graph(call, op) : InGraph::No;
    if (is_selective) kept->set_wanted(Wanted::Nothing);
    const c10::AutoGradMode mode(where != InGraph::No);
    OpListener* const listener = is_in_backward_ ? nullptr : listener_;
    if (listener != nullptr) listener->op_begins();
    run_op_at(call, op, where, piece, is_selective && keeps[op] ? kept : nullptr);
    drop_after(call, op, piece);
    if (!is_in_backward_) drop_unused(index_.call_begin[call] + op + 1);
    if (listener != nullptr) listener->op_ended(call, op);
  }
}

at::Tensor ModelRun::take_value(int call, int value, InGraph where, PieceRun& piece) {
  for (const auto* values : {&piece.made, &piece.entered}) {
    if (const auto found = values->find(value); found != values->end()) return found->second;
  }
  const at::Tensor& plain = calls_[call].values.at(value);
  if (where == InGraph::No || !index_.flow.requires_grad[call][value]) return plain;
  const at::Tensor entered = entering(plain);
  if (where == InGraph::Unused) return entered;
  piece.graph.inputs.push_back({edge_of(entered), value});
  piece.entered[value] = entered;
  return entered;
}

// `keeps`: of selective checkpointing, if the op's outputs are kept; otherwise null.
void ModelRun::run_op_at(int call, int op_index, InGraph where, PieceRun& piece, KeptOutputs* keeps) {
  const Op& op = block_of(call).ops[op_index];
  Tensors inputs;
  for (const int input : op.inputs) inputs.push_back(take_value(call, input, where, piece));
  const Tensors parameters = take_parameters(call, op, where, piece);
  // Calls that read a parameter are not the op's.
  if (keeps != nullptr) keeps->set_wanted(wanted_of(op));
  const KeptOutputs::Mode mode(is_training_ && op.kind == OpKind::Attention &&
                               checkpoint_modes_[call] == CheckpointMode::Selective);
  Op without_dropout;
  if (!is_training_ && op.attributes.probability > 0) {
    without_dropout = op;
    without_dropout.attributes.probability = 0;
  }
  const Op& run = without_dropout.outputs.empty() ? op : without_dropout;
  Tensors outputs = run_op({context_, *index_.model, call_of(call), run, inputs, parameters});
  for (std::size_t o = 0; o < op.outputs.size(); ++o) piece.made[op.outputs[o]] = std::move(outputs[o]);
}

Tensors ModelRun::take_parameters(int call, const Op& op, InGraph where, PieceRun& piece) {
  Tensors taken;
  for (const int index : op.parameters) {
    const int id = call_of(call).parameters[index];
    at::Tensor whole = parameters_.whole(id);
    if (where == InGraph::Unused && index_.model->parameters[id].trainable) {
      whole = entering(whole);
    } else if (where == InGraph::Piece && index_.model->parameters[id].receives_gradient) {
      whole = entering_parameter(whole);
      piece.graph.parameters.push_back({edge_of(whole), id});
    }
    taken.push_back(std::move(whole));
  }
  return taken;
}

// Drops tensors that no later op reads and no other call gets.
void ModelRun::drop_after(int call, int op_index, PieceRun& piece) {
  CallState& state = calls_[call];
  for (const int value : drops_[call_of(call).block][op_index]) {
    // The caller keeps a call's inputs alive until it returns; a part of a longer forward is not called.
    if (value < block_of(call).num_inputs && !is_part_[call]) continue;
    state.values.erase(value);
    piece.entered.erase(value);
    piece.made.erase(value);
  }
}

// Drops graphs that lead to no output and whose last reader is before this position.
void ModelRun::drop_unused(int position) {
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    if (ends_of_unused_[c] == position) calls_[c].unused = {};
  }
}

void ModelRun::publish(int call) {
  const Block& block = block_of(call);
  CallState& state = calls_[call];
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    const auto found = state.values.find(block.outputs[o]);
    const int value = call_of(call).outputs[o];
    if (found == state.values.end() || values_[value].defined()) continue;
    if (last_use_[value] == kNever && !is_held(value) && !is_argument(value)) continue;
    values_[value] = found->second;
    if (value == index_.model->loss) return_loss(found->second);
  }
}

// Treats the loss as the root treats its results. A loss that runs after the root does not change.
void ModelRun::return_loss(const at::Tensor& loss) {
  loss_dtype_ = loss.scalar_type();
  const bool is_returned = index_.model->calls.back().module >= 0;
  const at::Tensor returned = output_dtype_ && is_returned ? loss.to(*output_dtype_) : loss;
  values_[index_.model->loss] = returned;
  loss_ = LaterNumber(returned);
}

// ---- backward ----

// (loss / N).backward() passes the same number to the loss, but makes one more tensor.
void ModelRun::begin_backward() {
  if (is_in_backward_) return;
  is_in_backward_ = true;
  const int loss = index_.model->loss;
  loss_gradient_ = at::full_like(values_[loss], first_gradient_);
  gradients_[loss] = loss_gradient_.to(loss_dtype_);
  for (const HeldValue& held : index_.model->held) values_[held.value] = at::Tensor();
}

void ModelRun::backward(const Instruction& step) {
  begin_backward();
  CallState& state = calls_[step.call];
  while (!state.pieces.empty() && state.pieces.back().begin >= step.op_end) state.pieces.pop_back();
  while (!state.pieces.empty() && state.pieces.back().begin >= step.op_begin) {
    CallState::Piece piece = std::move(state.pieces.back());
    state.pieces.pop_back();
    std::vector<at::Tensor> gradients;
    for (const PieceEdge& output : piece.graph.outputs) gradients.push_back(take_gradient(step.call, output.id));
    const auto take = [this](int parameter, const at::Tensor& gradient) {
      return parameters_.add_to_earlier(parameter, gradient);
    };
    if (listener_ != nullptr) listener_->backward_begins();
    PieceGradients result = run_backward(std::move(piece.graph), std::move(gradients), take);
    if (listener_ != nullptr) listener_->backward_ended();
    for (auto& [value, gradient] : result.inputs) give_gradient(step.call, value, std::move(gradient));
    for (auto& [parameter, gradient] : result.parameters) parameters_.add_gradient(parameter, std::move(gradient));
  }
}

std::shared_ptr<Recomputation> ModelRun::recomputation_of(int call) {
  Tensors inputs;
  for (const int input : call_of(call).inputs) inputs.push_back(values_[input]);
  const std::string random = is_random(block_of(call)) ? random_state(context_.device) : "";
  return std::make_shared<Recomputation>(
      std::move(inputs), stops_early_,
      [this, call, random](const Tensors& again, KeptOutputs& kept) { recompute(call, again, random, kept); });
}

void ModelRun::recompute(int call, const Tensors& inputs, const std::string& random, KeptOutputs& kept) {
  const CategoryScope activations(MemoryCategory::Activation);
  CallState& state = calls_[call];
  // Also if the recomputation stops early.
  struct Restore {
    ~Restore() {
      state.values.clear();
      if (!random.empty()) set_random_state(device, random);
    }
    CallState& state;
    c10::Device device;
    std::string random;
  } const restore{state, context_.device, random.empty() ? "" : random_state(context_.device)};
  if (!random.empty()) set_random_state(context_.device, random);
  for (std::size_t i = 0; i < inputs.size(); ++i) state.values[static_cast<int>(i)] = inputs[i];
  PieceRun piece;
  run_ops(call, 0, static_cast<int>(block_of(call).ops.size()), piece, &kept);
}

// From the pieces and calls after it.
at::Tensor ModelRun::take_gradient(int call, int value) {
  const Block& block = block_of(call);
  at::Tensor sum;
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    if (block.outputs[o] != value) continue;
    add_gradient_to(sum, std::exchange(gradients_[call_of(call).outputs[o]], {}));
  }
  std::map<int, at::Tensor>& local = calls_[call].gradients;
  if (const auto found = local.find(value); found != local.end()) {
    at::Tensor gradient = std::move(found->second);
    local.erase(found);
    add_gradient_to(sum, std::move(gradient));
  }
  return sum;
}

at::Tensor& ModelRun::gradient_slot(int call, int value) {
  const bool is_input = value < block_of(call).num_inputs;
  return is_input ? gradients_[call_of(call).inputs[value]] : calls_[call].gradients[value];
}

void ModelRun::give_gradient(int call, int value, at::Tensor gradient) {
  add_gradient_to(gradient_slot(call, value), std::move(gradient));
}

void ModelRun::end_micro_batch() {
  is_in_backward_ = false;
  loss_gradient_ = at::Tensor();
  std::fill(values_.begin(), values_.end(), at::Tensor());
  std::fill(gradients_.begin(), gradients_.end(), at::Tensor());
  for (CallState& state : calls_) {
    state.values.clear();
    state.gradients.clear();
    state.pieces.clear();
  }
}

}  // namespace fsdp::executor
