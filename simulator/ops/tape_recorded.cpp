// A recording has the events of each op; a tape has all of them in order, with the ranges of the ops. This file also
// computes the inputs of bounds: the bytes that live from forward to backward, and the highest sum inside a backward.
// It omits outputs that others hold and gradients that were passed out, so that both stay lower bounds.
//
// We refuse a run that was not recorded (another precision, selective checkpointing, other implementations), and list
// the recorded ones. The tape of a refused run is empty: nothing walks it.
//
// Not modeled: kernels, and their memory, can depend on the GPU; a recording is from one.
#include "simulator/ops/tape_recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::simulator {

namespace {

using Event = RecordedEvent::Kind;

TapeEvent::Kind kind_on_tape(Event kind) {
  switch (kind) {
    case Event::Alloc:
      return TapeEvent::Kind::Alloc;
    case Event::Free:
      return TapeEvent::Kind::Free;
    case Event::ParamGrad:
      return TapeEvent::Kind::AllocParamGrad;
    case Event::AddGrad:
      return TapeEvent::Kind::AddParamGrad;
    case Event::ReleaseInput:
      return TapeEvent::Kind::ReleaseInput;
    case Event::ReleaseOutput:
      return TapeEvent::Kind::ReleaseOutput;
    case Event::EmitGrad:
      return TapeEvent::Kind::EmitGrad;
    case Event::ReleaseGrad:
      return TapeEvent::Kind::ReleaseGradOut;
    case Event::DropGrad:
      return TapeEvent::Kind::ReleaseGradIn;
    case Event::ForwardGrad:
      return TapeEvent::Kind::ForwardGradOut;
    case Event::Hold:
      return TapeEvent::Kind::HoldOwn;
    case Event::HoldInput:
      return TapeEvent::Kind::HoldInput;
    case Event::ShareGrad:
      return TapeEvent::Kind::ShareGrad;
    case Event::UnshareGrad:
      return TapeEvent::Kind::UnshareGrad;
    case Event::Carry:
      return TapeEvent::Kind::Carry;
    case Event::DropCarried:
      return TapeEvent::Kind::DropCarried;
    case Event::Workspace:
      return TapeEvent::Kind::Workspace;
  }
  return TapeEvent::Kind::Workspace;
}

OpWork::Part part_of(const RecordedWork::Part& part, std::optional<Dtype> arithmetic) {
  return {.gemm_flops = part.gemm_flops,
          .convolution_flops = part.convolution_flops,
          .attention_flops = part.attention_flops,
          .bytes = part.bytes,
          .num_kernels = part.num_kernels,
          .arithmetic = arithmetic};
}

/// Appends events and counts live bytes inside.
class RecordingReader {
 public:
  RecordingReader(const Block& block, const RecordedTape& recorded) : block_(block), recorded_(recorded) {
    bytes_.assign(recorded.storage_op.size(), 0);
    is_lent_.assign(recorded.storage_op.size(), false);
    for (const RecordedOutput& output : recorded.outputs) {
      if (output.kind == RecordedOutput::Kind::Storage && !output.kept) is_lent_[output.index] = true;
    }
  }

  Tape read() {
    tape_.num_storages = static_cast<int>(recorded_.storage_op.size());
    tape_.storage_op = recorded_.storage_op;
    tape_.recomputed = recorded_.recomputed;
    tape_.recomputed.resize(block_.ops.size(), false);
    tape_.input_grad_strides.resize(static_cast<std::size_t>(block_.num_inputs));
    tape_.largest_convolution = recorded_.largest_convolution;
    for (const RecordedWork& work : recorded_.work) {
      tape_.work.push_back({part_of(work.forward, work.arithmetic), part_of(work.backward, work.arithmetic)});
    }
    for (const auto& events : recorded_.forward) {
      tape_.forward_of_op.push_back(append(events, tape_.forward, MemoryCategory::Activation));
    }
    bind_outputs();
    tape_.kept_bytes = inside_ - kept_outputs();
    in_backward_ = true;
    append(recorded_.recompute, tape_.recompute, MemoryCategory::Activation);
    tape_.backward_of_op.resize(block_.ops.size());
    for (std::size_t o = block_.ops.size(); o-- > 0;) {
      tape_.backward_of_op[o] = append(recorded_.backward[o], tape_.backward, MemoryCategory::Temp);
    }
    return std::move(tape_);
  }

 private:
  Tape::Range append(const std::vector<RecordedEvent>& events, std::vector<TapeEvent>& to, MemoryCategory category) {
    Tape::Range range{.first = static_cast<std::int32_t>(to.size())};
    bool follows_hold = false;  // True if it carries the held storage.
    for (const RecordedEvent& event : events) {
      const bool is_view = event.kind == Event::Carry ? follows_hold : event.is_view;
      to.push_back({kind_on_tape(event.kind), is_view, category, event.index, event.value});
      count(event);
      follows_hold = event.kind == Event::Hold;
    }
    range.last = static_cast<std::int32_t>(to.size());
    return range;
  }

  void count(const RecordedEvent& event) {
    const bool goes = event.kind == Event::Free || event.kind == Event::ReleaseOutput || event.kind == Event::EmitGrad;
    if (event.kind == Event::Alloc && !is_lent_[event.index]) inside_ += bytes_[event.index] = event.value;
    if (goes) inside_ -= std::exchange(bytes_[event.index], 0);
    if (in_backward_) tape_.backward_peak = std::max(tape_.backward_peak, inside_);
  }

  void bind_outputs() {
    for (const RecordedOutput& output : recorded_.outputs) {
      Storage where{.kind = Storage::Kind::Inside, .index = output.index, .bytes = output.bytes};
      if (output.kind == RecordedOutput::Kind::Input) where.kind = Storage::Kind::Input;
      if (output.kind == RecordedOutput::Kind::Parameter) where.kind = Storage::Kind::Parameter;
      tape_.output.push_back(where);
      tape_.output_bytes.push_back(output.bytes);
      tape_.output_is_kept.push_back(output.kept);
    }
  }

  std::int64_t kept_outputs() const {
    std::int64_t bytes = 0;
    std::vector<int> seen;
    for (const RecordedOutput& output : recorded_.outputs) {
      if (output.kind != RecordedOutput::Kind::Storage) continue;
      if (std::find(seen.begin(), seen.end(), output.index) != seen.end()) continue;
      seen.push_back(output.index);
      bytes += bytes_[output.index];
    }
    return bytes;
  }

  const Block& block_;
  const RecordedTape& recorded_;
  Tape tape_;
  std::vector<std::int64_t> bytes_;  // [num storages] Bytes that count as inside.
  std::vector<bool> is_lent_;        // [num storages] True for an output that only others hold.
  std::int64_t inside_ = 0;
  bool in_backward_ = false;
};

/// A tape without events, in the sizes of the block.
Tape empty_tape(const Block& block) {
  Tape tape;
  tape.forward_of_op.resize(block.ops.size());
  tape.backward_of_op.resize(block.ops.size());
  tape.work.resize(block.ops.size());
  tape.recomputed.assign(block.ops.size(), false);
  tape.input_grad_strides.resize(static_cast<std::size_t>(block.num_inputs));
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    tape.output.push_back({.kind = Storage::Kind::Parameter, .index = 0});
    tape.output_bytes.push_back(0);
    tape.output_is_kept.push_back(false);
  }
  return tape;
}

/// Blocks that lack the same recording have the same error, so that it is reported once.
Error not_recorded_in(const Recording& recording, Dtype dtype) {
  std::string there_is;
  for (const RecordedTape& tape : recording.tapes) {
    if (!tape.checkpointed) there_is += fmt::format("{}{}", there_is.empty() ? "" : " and ", name_of(tape.dtype));
  }
  return {"model", fmt::format("The capture has no recording in {}.", name_of(dtype)),
          fmt::format("It has {}: take that for parameters or mixed precision, or capture the script again.",
                      there_is.empty() ? "none without checkpointing" : there_is)};
}

Error not_recorded_with(std::string_view checkpointing, Dtype dtype) {
  return {"model", fmt::format("The capture has no recording with {} in {}.", checkpointing, name_of(dtype)),
          "Take another --activation-checkpointing, or capture the script again."};
}

/// Without differentiable tensors, checkpointing does nothing.
bool has_backward(const RecordedTape& tape) {
  return std::any_of(tape.backward.begin(), tape.backward.end(), [](const auto& events) { return !events.empty(); });
}

/// A recording is of the user's own code, which these implementations would replace.
bool asks_for_other_code(Implementations use) {
  const Implementations usual;
  use.use_cache = usual.use_cache;
  use.cudnn_allow_tf32 = usual.cudnn_allow_tf32;
  use.matmul_allow_tf32 = usual.matmul_allow_tf32;
  return use != usual;
}

std::optional<Error> refusal_of(const OpRuleContext& context, CheckpointMode mode, const Checkpointing& checkpointing) {
  if (context.is_cpu()) {
    return Error{"model", "A captured model was recorded on a GPU; the CPU kernels' memory is not known.",
                 "Plan it for GPUs."};
  }
  if (asks_for_other_code(context.implementations)) {
    return Error{
        "model", "A captured model runs the script's own code, which no other implementations can replace.",
        "Leave --flavor, or runtime/implementations of the plan, out; change the script and capture it again."};
  }
  if (mode == CheckpointMode::Selective) return not_recorded_with("selective checkpointing", context.activation);
  if (mode == CheckpointMode::Nested) return not_recorded_with("nested checkpointing", context.activation);
  if (mode == CheckpointMode::Reentrant) return not_recorded_with("reentrant checkpointing", context.activation);
  if (mode == CheckpointMode::Full && checkpointing.offload_inputs) {
    return not_recorded_with("checkpointing that keeps inputs on the host", context.activation);
  }
  if (mode == CheckpointMode::Full && !checkpointing.early_stop) {
    return not_recorded_with("checkpointing that does not stop early", context.activation);
  }
  return std::nullopt;
}

}  // namespace

KernelProgram recorded_program(const Block& block, Dtype activation) {
  KernelProgram program;
  for (std::size_t v = 0; v < block.values.size(); ++v) {
    const Value& value = block.values[v];
    const int index = static_cast<int>(v);
    const bool is_input = index < block.num_inputs;
    program.slots.push_back(
        {.storage = index, .elements = num_elements(value.shape), .dtype = value.dtype.value_or(activation)});
    program.storages.push_back({.kind = is_input ? Storage::Kind::Input : Storage::Kind::Inside,
                                .index = is_input ? index : -1,
                                .bytes = program.slots.back().bytes()});
    program.value_slot.push_back(index);
  }
  for (std::size_t p = 0; p < block.parameters.size(); ++p) {
    const int index = static_cast<int>(program.slots.size());
    program.slots.push_back({.storage = index, .elements = num_elements(block.parameters[p]), .dtype = activation});
    program.storages.push_back(
        {.kind = Storage::Kind::Parameter, .index = static_cast<int>(p), .bytes = program.slots.back().bytes()});
    program.parameter_slot.push_back(index);
  }
  return program;
}

Tape tape_of_recording(const Block& block, const RecordedTape& recorded) {
  return RecordingReader(block, recorded).read();
}

FoundTape find_recorded_tape(const Block& block, const OpRuleContext& context, CheckpointMode mode,
                             const Checkpointing& checkpointing) {
  const Recording& recording = *block.recorded;
  FoundTape found{.tape = {}, .refusal = refusal_of(context, mode, checkpointing)};
  const bool is_checkpointed = mode != CheckpointMode::None;
  const RecordedTape* recorded = found.refusal ? nullptr : recording.find(context.activation, is_checkpointed);
  const RecordedTape* plain = recording.find(context.activation, false);
  if (recorded == nullptr && is_checkpointed && plain != nullptr && !has_backward(*plain)) recorded = plain;
  if (recorded == nullptr && !found.refusal) {
    found.refusal = plain != nullptr ? not_recorded_with("full checkpointing", context.activation)
                                     : not_recorded_in(recording, context.activation);
  }
  found.tape = found.refusal ? empty_tape(block) : tape_of_recording(block, *recorded);
  return found;
}

}  // namespace fsdp::simulator
