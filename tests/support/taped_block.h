#pragma once

// One block's tape, for tests of op rules and of the tape itself.

#include <cstdint>
#include <map>
#include <vector>

#include "core/spec/block_builder.h"
#include "simulator/ops/op_rules.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// How a block is run. By default everything requires a gradient and every output leads to the loss.
struct TapedSettings {
  OpRuleContext rules;
  CheckpointMode mode = CheckpointMode::None;
  bool early_stop = true;
  bool offloads_inputs = false;
  bool keeps_parameters = false;
  bool keep_logits = false;
  std::vector<bool> inputs = {};      ///< [num inputs] Which require a gradient; integers never do.
  std::vector<bool> parameters = {};  ///< [num parameters] Which are trained.
  std::vector<bool> outputs = {};     ///< [num outputs] Which lead to the loss.
  std::vector<bool> kept = {};        ///< [num ops] Of selective checkpointing.
};

struct TapedBlock {
  Block block;
  KernelProgram program;
  Tape tape;

  /// Bytes that live from forward to backward because autograd saved them: made inside (the outputs that are saved,
  /// too) and inputs.
  std::int64_t saved_bytes() const;
  /// Autograd keeps this input until the backward.
  bool keeps_input(int input) const;
};

/// Ends the test program when the block is wrong.
TapedBlock tape_block(BlockBuilder builder, const TapedSettings& settings = {});

/// bytes -> how often it is allocated.
using AllocationCounts = std::map<std::int64_t, int>;
AllocationCounts allocations(const std::vector<TapeEvent>& events);
/// Highest bytes alive at once among those that the events allocate.
std::int64_t peak_of(const std::vector<TapeEvent>& events);

}  // namespace fsdp::simulator
