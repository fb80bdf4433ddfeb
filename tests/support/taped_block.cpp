#include "tests/support/taped_block.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace fsdp::simulator {

namespace {

std::vector<bool> or_all(const std::vector<bool>& given, std::size_t size) {
  return given.empty() ? std::vector<bool>(size, true) : given;
}

}  // namespace

std::int64_t TapedBlock::saved_bytes() const {
  std::int64_t bytes = tape.kept_bytes;
  for (int v = 0; v < block.num_inputs; ++v) {
    if (keeps_input(v)) bytes += program.storages[v].bytes;
  }
  for (std::size_t o = 0; o < tape.output.size(); ++o) {
    if (tape.output_is_kept[o] && tape.output[o].kind == Storage::Kind::Inside) bytes += tape.output[o].bytes;
  }
  return bytes;
}

bool TapedBlock::keeps_input(int input) const {
  return std::none_of(tape.forward.begin(), tape.forward.end(), [&](const TapeEvent& event) {
    return event.kind == TapeEvent::Kind::ReleaseInput && event.storage == input;
  });
}

TapedBlock tape_block(BlockBuilder builder, const TapedSettings& settings) {
  auto finished = builder.finish();
  if (!finished) {
    for (const Error& error : finished.error()) std::cerr << to_string(error) << "\n";
    std::abort();
  }
  TapedBlock result;
  result.block = finished->block;
  result.program = expand_block(result.block, settings.rules);
  TapeContext context;
  context.input_requires_grad = or_all(settings.inputs, static_cast<std::size_t>(result.block.num_inputs));
  context.parameter_requires_grad = or_all(settings.parameters, result.block.parameters.size());
  context.output_reaches_loss = or_all(settings.outputs, result.block.outputs.size());
  context.mode = settings.mode;
  context.op_is_kept = settings.kept;
  context.op_is_kept.resize(result.block.ops.size(), false);
  if (settings.mode == CheckpointMode::Nested) {
    context.inner = inner_checkpoints(result.block).value_or(std::vector<InnerCheckpoint>{});
  }
  context.early_stop = settings.early_stop;
  context.offloads_inputs = settings.offloads_inputs;
  context.keeps_parameters = settings.keeps_parameters;
  context.keep_logits = settings.keep_logits;
  result.tape = record_tape(result.block, result.program, context);
  return result;
}

AllocationCounts allocations(const std::vector<TapeEvent>& events) {
  AllocationCounts counts;
  for (const TapeEvent& event : events) {
    if (event.kind == TapeEvent::Kind::Alloc || event.kind == TapeEvent::Kind::AllocParamGrad) ++counts[event.bytes];
  }
  return counts;
}

std::int64_t peak_of(const std::vector<TapeEvent>& events) {
  std::map<int, std::int64_t> live;
  std::int64_t total = 0;
  std::int64_t peak = 0;
  for (const TapeEvent& event : events) {
    if (event.kind == TapeEvent::Kind::Alloc) {
      live[event.storage] = event.bytes;
      total += event.bytes;
    } else if (event.kind == TapeEvent::Kind::AllocParamGrad) {
      total += event.bytes;
    } else if (event.kind == TapeEvent::Kind::Free) {
      total -= live[event.storage];
    }
    peak = std::max(peak, total);
  }
  return peak;
}

}  // namespace fsdp::simulator
