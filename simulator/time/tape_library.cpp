// If a tensor leaves a call in another memory order than that of its shape (heads last, channel by channel), the
// kernels that read it copy it or choose another algorithm; the same holds for a gradient on its way back. When
// settings are new, we go through the calls once in forward order, expanding each for the orders of its inputs, and
// once backward, recording a tape for the orders of its gradients. Layers with the same orders share a tape, so this
// needs a few tapes instead of one per layer.
//
// Not modeled: checkpointing could change the order of a gradient (it does not, in any rule).

#include "simulator/time/tape_library.h"

#include <algorithm>
#include <utility>

#include "core/model/experts.h"
#include "simulator/ops/strides.h"
#include "simulator/ops/tape_recorded.h"

namespace fsdp::simulator {

namespace {

TapeContext context_of(const ModelIndex& index, int c) {
  const Model& model = *index.model;
  const Call& call = model.calls[c];
  const Block& block = model.blocks[call.block];
  TapeContext context;
  for (int v = 0; v < block.num_inputs; ++v) {
    context.input_requires_grad.push_back(index.flow.requires_grad[c][v]);
  }
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    context.output_reaches_loss.push_back(index.flow.output_reaches_loss[c][o] &&
                                          index.flow.requires_grad[c][block.outputs[o]]);
  }
  for (const int p : call.parameters) context.parameter_requires_grad.push_back(model.parameters[p].trainable);
  return context;
}

// The strides of a tensor. Empty if they are those of its shape.
Shape out_of_order(const Shape& shape, const Shape& strides) {
  return strides.size() != shape.size() || is_dense(shape, strides) ? Shape{} : strides;
}

}  // namespace

std::vector<NamedWork> TapeLibrary::works_of(const TapeSettings& settings, int call) const {
  std::vector<NamedWork> works;
  if (settings.costs.tables() == nullptr) return works;
  const Block& block = index_.model->blocks[index_.model->calls[call].block];
  for (int op = 0; op < static_cast<int>(block.ops.size()); ++op) {
    works.push_back(work_of_op(index_, call, op, settings.rules.activation, settings.rules.implementations));
  }
  return works;
}

TapeLibrary::TapeLibrary(const ModelIndex& index) : index_(index) {
  for (int c = 0; c < static_cast<int>(index.model->calls.size()); ++c) class_of_call_.push_back(class_of(c));
}

int TapeLibrary::class_of(int call) {
  const int block = index_.model->calls[call].block;
  TapeContext context = context_of(index_, call);
  for (std::size_t i = classes_.size(); i-- > 0;) {
    if (classes_[i].block == block && classes_[i].context == context) return static_cast<int>(i);
  }
  classes_.push_back({block, call, std::move(context)});
  return static_cast<int>(classes_.size()) - 1;
}

TapeLibrary::Shelf& TapeLibrary::shelf(const TapeSettings& given) {
  TapeSettings settings = given;
  settings.checkpointing =
      Checkpointing{.early_stop = given.checkpointing.early_stop, .offload_inputs = given.checkpointing.offload_inputs};
  for (const auto& known : shelves_) {
    if (known->settings == settings) return *known;
  }
  shelves_.push_back(std::make_unique<Shelf>());
  shelves_.back()->settings = std::move(settings);
  lay_out(*shelves_.back());
  return *shelves_.back();
}

void TapeLibrary::lay_out(Shelf& shelf) {
  const Model& model = *index_.model;
  std::vector<const Program*> programs;
  std::vector<Shape> strides(model.values.size());
  // Inputs that the root casts in its forward, and the values that derive their dtype from them.
  std::vector<std::optional<Dtype>> dtypes(model.values.size());
  std::vector<bool> is_cast(model.values.size(), false);
  for (std::size_t i = 0; i < shelf.settings.cast_inputs.size(); ++i) {
    is_cast[model.inputs[i]] = shelf.settings.cast_inputs[i];
  }
  for (const Call& call : model.calls) {
    const Block& block = model.blocks[call.block];
    std::vector<Shape> of_inputs;
    std::vector<std::optional<Dtype>> dtypes_of_inputs;
    for (const int value : call.inputs) {
      of_inputs.push_back(strides[value]);
      const bool is_cast_here = is_cast[value] && call.module >= 0;
      dtypes_of_inputs.push_back(is_cast_here ? shelf.settings.rules.activation : dtypes[value]);
    }
    programs.push_back(program_of(shelf, call, std::move(of_inputs), std::move(dtypes_of_inputs)));
    const KernelProgram& program = programs.back()->program;
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      const int value = block.outputs[o];
      const Shape& lies = program.slots[program.value_slot[value]].strides;
      strides[call.outputs[o]] = out_of_order(block.values[value].shape, lies);
      const std::optional<Dtype>& declared = block.values[value].dtype;
      const Dtype made = program.slots[program.value_slot[value]].dtype;
      const bool is_promoted =
          shelf.settings.rules.autocast && made != declared.value_or(shelf.settings.rules.activation);
      if (is_promoted || (declared && *declared != made)) dtypes[call.outputs[o]] = made;
    }
  }
  // The first of several gradients of a value decides.
  std::vector<Shape> of_grads(model.values.size());
  std::vector<bool> has_grad(model.values.size(), false);
  shelf.kind_of_call.resize(model.calls.size());
  for (std::size_t c = model.calls.size(); c-- > 0;) {
    const Call& call = model.calls[c];
    std::vector<Shape> of_outputs;
    for (const int value : call.outputs) of_outputs.push_back(of_grads[value]);
    Kind* kind = kind_of(shelf, class_of_call_[c], programs[c], std::move(of_outputs));
    shelf.kind_of_call[c] = kind;
    const Tape& tape = tape_of(shelf, *kind, {}, CheckpointMode::None, {}).tape;
    for (const TapeEvent& event : tape.backward) {
      if (event.kind != TapeEvent::Kind::EmitGrad && event.kind != TapeEvent::Kind::ForwardGradOut) continue;
      const auto input = static_cast<std::size_t>(event.bytes);
      const int value = call.inputs[input];
      if (has_grad[value]) continue;
      has_grad[value] = true;
      of_grads[value] = out_of_order(model.values[value].shape, tape.input_grad_strides[input]);
    }
  }
}

const TapeLibrary::Program* TapeLibrary::program_of(Shelf& shelf, const Call& call, std::vector<Shape> input_strides,
                                                    std::vector<std::optional<Dtype>> input_dtypes) {
  std::vector<Dtype> parameter_dtypes;
  if (!shelf.settings.parameter_dtypes.empty()) {
    for (const int p : call.parameters) parameter_dtypes.push_back(shelf.settings.parameter_dtypes[p]);
  }
  for (const auto& program : shelf.programs) {
    const bool is_same = program->block == call.block && program->input_strides == input_strides &&
                         program->parameter_dtypes == parameter_dtypes;
    if (is_same && program->input_dtypes == input_dtypes) return program.get();
  }
  auto program = std::make_unique<Program>();
  program->block = call.block;
  const Block& written = index_.model->blocks[call.block];
  const OpRuleContext& rules = shelf.settings.rules;
  const bool has_part = rules.expert_parallel > 1 && !written.recorded;
  const Block own = has_part ? own_experts(written, rules.expert_parallel) : Block{};
  program->program = written.recorded
                         ? recorded_program(written, rules.activation)
                         : expand_block(has_part ? own : written, rules, input_strides, input_dtypes, parameter_dtypes);
  program->input_strides = std::move(input_strides);
  program->input_dtypes = std::move(input_dtypes);
  program->parameter_dtypes = std::move(parameter_dtypes);
  shelf.programs.push_back(std::move(program));
  return shelf.programs.back().get();
}

TapeLibrary::Kind* TapeLibrary::kind_of(Shelf& shelf, int call_class, const Program* program,
                                        std::vector<Shape> output_grad_strides) {
  for (const auto& kind : shelf.kinds) {
    const bool is_same = kind->call_class == call_class && kind->program == program;
    if (is_same && kind->output_grad_strides == output_grad_strides) return kind.get();
  }
  auto kind = std::make_unique<Kind>();
  kind->call_class = call_class;
  kind->program = program;
  kind->output_grad_strides = std::move(output_grad_strides);
  shelf.kinds.push_back(std::move(kind));
  return shelf.kinds.back().get();
}

const TimedTape& TapeLibrary::tape(const TapeSettings& settings, int call, CheckpointMode mode,
                                   const std::vector<Span>& hooks) {
  return tape(shelf(settings), settings.checkpointing, call, mode, hooks);
}

const TimedTape& TapeLibrary::tape(const Shelf& shelf, const Checkpointing& kept, int call, CheckpointMode mode,
                                   const std::vector<Span>& hooks) {
  return tape_of(shelf, *shelf.kind_of_call[call], kept, mode, hooks);
}

const TimedTape& TapeLibrary::tape_of(const Shelf& shelf, Kind& kind, const Checkpointing& kept, CheckpointMode mode,
                                      const std::vector<Span>& hooks) {
  const bool keeps = mode == CheckpointMode::Selective;
  for (const Recorded& recorded : kind.recorded) {
    if (recorded.mode != mode || recorded.hooks != hooks) continue;
    const bool is_same =
        recorded.kept == kept.selective_keep && recorded.every_second_linear == kept.every_second_linear;
    if (!keeps || is_same) return *recorded.tape;
  }
  Recorded made{.mode = mode, .kept = {}, .every_second_linear = kept.every_second_linear, .hooks = hooks, .tape = {}};
  if (keeps) made.kept = kept.selective_keep;
  made.tape = std::make_unique<TimedTape>(make_tape(shelf.settings, kind, kept, mode, hooks));
  return *kind.recorded.emplace_back(std::move(made)).tape;
}

TimedTape TapeLibrary::make_tape(const TapeSettings& settings, const Kind& kind, const Checkpointing& kept,
                                 CheckpointMode mode, const std::vector<Span>& hooks) const {
  const Block& block = index_.model->blocks[kind.program->block];
  TimedTape timed;
  if (block.recorded) {
    FoundTape found = find_recorded_tape(block, settings.rules, mode, settings.checkpointing);
    timed.tape = std::move(found.tape);
    add_runs(timed.tape, settings.kept_workspaces);
    timed.times = call_times(timed.tape, settings.costs);
    timed.refusal = std::move(found.refusal);
    return timed;
  }
  TapeContext context = classes_[kind.call_class].context;
  context.output_grad_strides = kind.output_grad_strides;
  context.mode = mode;
  context.hooks = hooks;
  context.op_is_kept = kept_ops(block, kept);
  if (mode == CheckpointMode::Nested) context.inner = inner_checkpoints(block).value_or(std::vector<InnerCheckpoint>{});
  context.early_stop = settings.checkpointing.early_stop;
  context.offloads_inputs = settings.checkpointing.offload_inputs && !settings.rules.is_cpu();
  context.keeps_parameters = settings.rules.implementations.zero3_linear;
  context.keep_logits = settings.rules.implementations.keep_logits;
  context.workspaces = settings.workspaces;
  context.threads = settings.rules.num_sms;
  timed.tape = record_tape(block, kind.program->program, context);
  add_runs(timed.tape, settings.kept_workspaces);
  timed.times = call_times(timed.tape, settings.costs, works_of(settings, classes_[kind.call_class].call));
  timed.refusal = kind.program->program.refusal;
  return timed;
}

}  // namespace fsdp::simulator
