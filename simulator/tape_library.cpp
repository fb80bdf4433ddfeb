#include "simulator/tape_library.h"

#include <algorithm>

namespace fsdp::simulator {

namespace {

constexpr int kNumModes = 3;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

TapeContext context_of(const ModelIndex& index, int c) {
  const Model& model = *index.model;
  const Call& call = model.calls[at(c)];
  const Block& block = model.blocks[at(call.block)];
  TapeContext context;
  for (int v = 0; v < block.num_inputs; ++v) {
    context.input_requires_grad.push_back(index.flow.requires_grad[at(c)][at(v)]);
  }
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    context.output_reaches_loss.push_back(index.flow.output_reaches_loss[at(c)][o] &&
                                          index.flow.requires_grad[at(c)][at(block.outputs[o])]);
  }
  for (const int p : call.parameters) context.parameter_requires_grad.push_back(model.parameters[at(p)].trainable);
  return context;
}

// torchtitan's policy: of the matrix products every second one, counted per block, is run again.
std::vector<bool> kept_ops(const Block& block, const TapeSettings& settings) {
  std::vector<bool> kept;
  int num_linears = 0;
  for (const Op& op : block.ops) {
    bool keep = std::find(settings.selective_keep.begin(), settings.selective_keep.end(), op.kind) !=
                settings.selective_keep.end();
    if (op.kind == OpKind::Linear) {
      ++num_linears;
      if (settings.every_second_linear && num_linears % 2 == 0) keep = false;
    }
    kept.push_back(keep);
  }
  return kept;
}

}  // namespace

TapeLibrary::TapeLibrary(const ModelIndex& index) : index_(index) {
  for (int c = 0; c < static_cast<int>(index.model->calls.size()); ++c) class_of_call_.push_back(class_of(c));
}

int TapeLibrary::class_of(int call) {
  const int block = index_.model->calls[at(call)].block;
  TapeContext context = context_of(index_, call);
  for (std::size_t i = classes_.size(); i-- > 0;) {
    if (classes_[i].block == block && classes_[i].context == context) return static_cast<int>(i);
  }
  classes_.push_back({block, std::move(context)});
  return static_cast<int>(classes_.size()) - 1;
}

TapeLibrary::Shelf& TapeLibrary::shelf_of(const TapeSettings& settings) {
  for (const auto& shelf : shelves_) {
    if (shelf->settings == settings) return *shelf;
  }
  auto shelf = std::make_unique<Shelf>();
  shelf->settings = settings;
  shelf->programs.resize(index_.model->blocks.size());
  shelf->tapes.resize(classes_.size() * kNumModes);
  shelves_.push_back(std::move(shelf));
  return *shelves_.back();
}

const TimedTape& TapeLibrary::tape(const TapeSettings& settings, int call, CheckpointMode mode) {
  Shelf& shelf = shelf_of(settings);
  const int which = class_of_call_[at(call)];
  auto& slot = shelf.tapes[at(which * kNumModes + static_cast<int>(mode))];
  if (slot) return *slot;
  const CallClass& kind = classes_[at(which)];
  const Block& block = index_.model->blocks[at(kind.block)];
  auto& program = shelf.programs[at(kind.block)];
  if (!program) program = std::make_unique<KernelProgram>(expand_block(block, settings.rules));
  TapeContext context = kind.context;
  context.mode = mode;
  context.op_is_kept = kept_ops(block, settings);
  context.early_stop = settings.early_stop;
  context.keep_logits = settings.rules.implementations.keep_logits;
  slot = std::make_unique<TimedTape>();
  slot->tape = record_tape(block, *program, context);
  slot->times = call_times(slot->tape, settings.costs);
  slot->refusal = program->refusal;
  return *slot;
}

}  // namespace fsdp::simulator
