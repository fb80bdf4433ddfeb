#include "core/plan/nested_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"

namespace fsdp {

namespace {

constexpr std::string_view kByKeyword = "self_attn";
constexpr int kOwn = 0;  // In `Block::modules`: the block itself.

/// The module that the block's forward calls to run an op; the block itself for its own ops.
int called_for(const Block& block, const Op& op) {
  int module = op.module;
  while (module != kOwn && block.modules[module].parent != kOwn) module = block.modules[module].parent;
  return module;
}

/// Whether others than these ops read a value that they read and that the block makes before them.
bool shares_inputs(const Block& block, Span ops) {
  std::vector<bool> is_made(block.values.size(), false);
  for (int o = 0; o < ops.begin; ++o) {
    for (const int value : block.ops[o].outputs) is_made[value] = true;
  }
  std::vector<bool> is_read(block.values.size(), false);
  for (int o = ops.begin; o < ops.end; ++o) {
    for (const int value : block.ops[o].inputs) is_read[value] = is_made[value];
  }
  const auto reads = [&](const Op& op) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](int value) { return is_read[value]; });
  };
  const auto first = block.ops.begin();
  return std::any_of(first, first + ops.begin, reads) || std::any_of(first + ops.end, block.ops.end(), reads);
}

}  // namespace

std::optional<std::vector<InnerCheckpoint>> inner_checkpoints(const Block& block) {
  std::vector<InnerCheckpoint> inner;
  std::vector<bool> has_run(block.modules.size(), false);
  int last = kOwn;
  bool has_attention = false;
  for (int o = 0; o < static_cast<int>(block.ops.size()); ++o) {
    const int module = called_for(block, block.ops[o]);
    if (module == kOwn) {
      last = kOwn;
      continue;
    }
    if (module == last) {
      inner.back().ops.end = o + 1;
      continue;
    }
    if (has_run[module]) return std::nullopt;
    has_run[module] = true;
    last = module;
    const bool is_attention = block.modules[module].name == kByKeyword;
    has_attention = has_attention || is_attention;
    inner.push_back({.ops = {o, o + 1}, .holds_inputs = is_attention});
  }
  const bool is_shared = std::any_of(inner.begin(), inner.end(), [&](const InnerCheckpoint& each) {
    return each.holds_inputs && shares_inputs(block, each.ops);
  });
  if (!has_attention || is_shared || inner.back().holds_inputs) return std::nullopt;
  return inner;
}

std::optional<Error> nested_checkpoints_misfit(const Plan& plan, const ModelIndex& index) {
  const Model& model = *index.model;
  constexpr std::string_view kPlace = "activation_checkpointing/modules";
  constexpr std::string_view kFull = "Write mode full.";
  const auto wrong = [&](std::string what) { return Error{std::string(kPlace), std::move(what), std::string(kFull)}; };
  const Checkpointing& given = plan.checkpointing;
  if (!given.has(CheckpointMode::Nested)) return std::nullopt;
  const FrameworkTraits& traits = traits_of(plan);
  if (!traits.wraps_units || !traits.has_dtensors) {
    return wrong(fmt::format("Nested checkpoints are not predicted for {}.", traits.title));
  }
  if (plan.mixed_precision.autocast) return wrong("Nested checkpoints under autocast are not predicted.");
  if (given.offload_inputs) return wrong("Nested checkpoints whose inputs are on the host are not predicted.");
  if (!given.early_stop) return wrong("Nested checkpoints that do not stop early are not predicted.");
  const std::vector<CheckpointMode> modes = checkpoint_modes(index, given);
  for (std::size_t c = 0; c < modes.size(); ++c) {
    if (modes[c] != CheckpointMode::Nested) continue;
    const Call& call = model.calls[c];
    const std::string& name = model.modules[call.module].name;
    const Block& block = model.blocks[call.block];
    if (block.recorded || !inner_checkpoints(block)) {
      return wrong(
          fmt::format("The modules of {} are not known to be called as those of a block of transformers.", name));
    }
  }
  return std::nullopt;
}

}  // namespace fsdp
