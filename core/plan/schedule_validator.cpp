// The promises of a schedule, checked by playing it: what state each unit, parameter, bucket and buffer is in, and
// whether the next instruction may find it there.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/schedule.h"

namespace fsdp {

namespace {

enum class UnitState { Sharded, Gathering, Unsharded };
enum class BufferState { None, There, Freed };

// Replays a schedule and writes down each broken promise.
class Validator {
 public:
  Validator(const ModelIndex& index, const Layout& layout)
      : index_(index),
        layout_(layout),
        resting_(layout.units.size(), layout.is_replicated ? UnitState::Unsharded : UnitState::Sharded),
        kept_(layout.units.size()),
        buffers_(layout.units.size() * kNumBufferKinds * kNumSlots, BufferState::None) {
    start_micro_batch();
  }

  Errors run(const Schedule& schedule) {
    const std::vector<Instruction>& steps = schedule.instructions;
    schedule_ = &schedule;
    if (has_passes(*index_.model)) find_left_gathered();
    states_ = resting_;
    start_parameters();
    start_buckets();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      where_ = fmt::format("instruction {}", i);
      if (!is_part(steps, i)) wrong("A free begins and ends no instruction.");
      step(steps[i]);
    }
    where_ = "end";
    finish_micro_batch();
    for (const Instruction& step : steps) {
      const bool persists =
          step.kind == InstructionKind::GatherParameters && step.group >= 0 && step.phase == StepPhase::Optimizer;
      if (persists) move_group(step, UnitState::Unsharded, UnitState::Sharded, "not whole at the end");
    }
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (parameters_[p] == UnitState::Sharded) continue;
      wrong(fmt::format("\"{}\" is left gathered.", index_.model->parameters[p].name));
    }
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      const bool may_stay = b == first_buckets();
      if (buffers_[b] == BufferState::There && !may_stay) wrong(fmt::format("{} is never freed.", buffer_name(b)));
    }
    for (std::size_t u = 0; u < states_.size(); ++u) {
      if (states_[u] != resting_[u]) wrong(fmt::format("Unit \"{}\" is left unsharded.", layout_.units[u].name));
    }
    return std::move(errors_);
  }

 private:
  void wrong(std::string what) { errors_.push_back({where_, std::move(what), ""}); }

  // For a step of passes: what it gives up before it gathers it was left by the step before.
  void find_left_gathered() {
    std::vector<bool> is_seen(layout_.units.size(), false);
    for (const Instruction& step : schedule_->instructions) {
      if (step.kind != InstructionKind::Unshard && step.kind != InstructionKind::Reshard) continue;
      const auto unit = static_cast<std::size_t>(step.unit);
      if (!is_seen[unit] && step.kind == InstructionKind::Reshard) resting_[unit] = UnitState::Unsharded;
      is_seen[unit] = true;
    }
  }

  void start_micro_batch() {
    next_forward_ = 0;
    pass_ = 0;
    start_backward();
  }

  void start_backward() {
    next_backward_ = index_.num_positions();
    reduced_.assign(layout_.units.size(), 0);
    next_bucket_ = -1;
  }

  // Whether the backward at hand runs through the op.
  bool is_in_backward(int position) const {
    if (!index_.in_backward[position]) return false;
    return !has_passes(*index_.model) || index_.model->calls[index_.call_at(position)].backward == pass_;
  }

  bool has_gradients(const ShardedUnit& unit) const {
    if (!has_passes(*index_.model)) return true;
    const bool is_trained = gives_gradients(*index_.model, pass_, unit.modules.front());
    return is_trained && std::any_of(unit.windows.begin(), unit.windows.end(), [&](const Window& window) {
             return window.pre_backward >= 0 && is_in_backward(window.pre_backward);
           });
  }

  void finish_backward() {
    if (!has_passes(*index_.model)) return;
    check_backward();
    if (++pass_ < static_cast<int>(index_.model->passes.size())) start_backward();
  }

  void finish_micro_batch() {
    if (next_forward_ != index_.num_positions()) wrong("The forward is not complete.");
    if (!has_passes(*index_.model)) return check_backward();
    if (pass_ != static_cast<int>(index_.model->passes.size())) wrong("A backward is missing.");
  }

  void check_backward() {
    while (next_backward_ > 0 && !is_in_backward(next_backward_ - 1)) --next_backward_;
    if (next_backward_ != 0) wrong("The backward is not complete.");
    const int later = static_cast<int>(layout_.buckets.size());
    const int begin = next_bucket_ > later ? later : 0;
    const int end = next_bucket_ > later ? layout_.num_buckets() : later;
    if (next_bucket_ >= 0 && next_bucket_ != end) {
      wrong(fmt::format("{} of {} buckets are reduced.", next_bucket_ - begin, end - begin));
    }
    if (layout_.is_replicated) return;
    for (std::size_t u = 0; u < layout_.units.size(); ++u) {
      const bool is_trained = layout_.units[u].reduced_true_elements > 0 && has_gradients(layout_.units[u]);
      const int expected = is_trained ? 1 : 0;
      if (reduced_[u] != expected)
        wrong(fmt::format("The gradients of unit \"{}\" are reduced {} times.", layout_.units[u].name, reduced_[u]));
    }
  }

  // Reductions of several ranks name those, and what calls nobody names none.
  void check_ranks(const Instruction& instruction) {
    const bool names_any = !instruction.ranks.empty() || !instruction.copies.empty();
    const bool reduces =
        instruction.kind == InstructionKind::ReduceGrads || instruction.kind == InstructionKind::ReduceBucket;
    const bool is_alone = instruction.unit >= 0 && layout_.units[instruction.unit].is_alone();
    if (reduces && !names_any && !is_alone && layout_.mesh.world_size() > 1)
      wrong("Gradients are reduced over no ranks.");
    if (names_any && !calls_ranks(instruction.kind)) {
      wrong(fmt::format("{} names ranks, and calls none.", name_of(instruction.kind)));
    }
  }

  void step(const Instruction& instruction) {
    check_ranks(instruction);
    switch (instruction.kind) {
      case InstructionKind::LoadInputs:
        if (instruction.micro_batch > 0) finish_micro_batch();
        start_micro_batch();
        return;
      case InstructionKind::Unshard:
        if (!is_flat()) make(instruction, BufferKind::AllGatherOutput);
        return move(instruction.unit, UnitState::Sharded, UnitState::Gathering, "unsharded twice");
      case InstructionKind::WaitForUnshard:
        if (!is_flat()) use(instruction, BufferKind::AllGatherOutput);
        return move(instruction.unit, UnitState::Gathering, UnitState::Unsharded, "waited for without an unshard");
      case InstructionKind::Reshard:
        // A prefetch that nobody used is dropped before its copy-out.
        if (states_[instruction.unit] == UnitState::Sharded && !keeps_smaller_shard(instruction.unit)) {
          wrong("A sharded unit is resharded.");
        }
        states_[instruction.unit] = UnitState::Sharded;
        return;
      case InstructionKind::Forward:
        return forward(instruction);
      case InstructionKind::Backward:
        return backward(instruction);
      case InstructionKind::AccumulateGrads:
        kept_[instruction.unit] = true;
        ++reduced_[instruction.unit];
        return check_backward_done(instruction.unit);
      case InstructionKind::ReduceGrads:
        make(instruction, BufferKind::ReduceInput);
        if (instruction.keeps_all_reduce_output) make(instruction, BufferKind::AllReduceOutput);
        return instruction.reduces_loss() ? reduce_loss(instruction.unit) : reduce(instruction.unit);
      case InstructionKind::Free:
        return free(instruction);
      case InstructionKind::OptimizerStep:
        return check_optimizer(instruction.part);
      case InstructionKind::PrepareReduce:
        next_bucket_ = 0;
        return;
      case InstructionKind::ReduceBucket:
        return reduce_bucket(instruction.bucket);
      case InstructionKind::FetchParameters:
        return move_group(instruction, UnitState::Sharded, UnitState::Gathering, "gathered twice");
      case InstructionKind::WaitForParameters:
        return move_group(instruction, UnitState::Gathering, UnitState::Unsharded, "waited for without a gather");
      case InstructionKind::ReleaseParameters:
        return move_group(instruction, UnitState::Unsharded, UnitState::Sharded, "released while it is sharded");
      case InstructionKind::GatherParameters:
        if (instruction.group < 0) return;
        if (layout_.gathers_each_read) return gathered_.push_back(instruction.group);
        return move_group(instruction, UnitState::Sharded, UnitState::Unsharded, "gathered twice");
      case InstructionKind::FinishReduce:
        return finish_backward();
      case InstructionKind::LeaveRoot:
      case InstructionKind::LimitGathers:
      case InstructionKind::FlattenGrads:
      case InstructionKind::SyncBuffers:
      case InstructionKind::ReduceUsedMap:
      case InstructionKind::CheckOverflow:
      case InstructionKind::ClipGradNorm:
      case InstructionKind::DropFetched:
      case InstructionKind::ZeroGrad:
      case InstructionKind::RunOther:
        return;
    }
  }

  // For a step of passes it steps its own models.
  void check_optimizer(int optimizer) {
    for (std::size_t u = 0; u < states_.size(); ++u) {
      const bool is_own = optimizer < 0 || optimizer_of(*index_.model, layout_.units[u].modules.front()) == optimizer;
      const UnitState wanted = layout_.is_replicated ? UnitState::Unsharded : UnitState::Sharded;
      if (is_own && states_[u] != wanted) wrong("The optimizer runs while a unit is unsharded.");
    }
  }

  // ---- parameters of ZeRO-3
  // ------------------------------------------------------------------------------------------

  // Whole parameters are there when a step begins, unless the step gathers it, as the first one does.
  void start_parameters() {
    parameters_.clear();
    if (layout_.hooked.empty() || layout_.zero.ranks == 1) return;
    parameters_.assign(layout_.parameter_dtype.size(), UnitState::Sharded);
    std::vector<bool> is_seen(parameters_.size(), false);
    for (const Instruction& step : schedule_->instructions) {
      if (step.group < 0) continue;
      for (const int p : schedule_->groups[step.group].parameters) {
        if (!is_seen[p] && step.kind == InstructionKind::ReleaseParameters) parameters_[p] = UnitState::Unsharded;
        is_seen[p] = true;
      }
    }
  }

  // SimpleFSDP: the first op of a stretch has had what it reads gathered, in order; the others read nothing.
  void check_reads(const Instruction& instruction) {
    const Call& call = index_.model->calls[instruction.call];
    std::vector<int> reads;
    for (int op = instruction.op_begin; op < instruction.op_end; ++op) {
      for (const int read : index_.model->blocks[call.block].ops[op].parameters) reads.push_back(call.parameters[read]);
    }
    if (reads != gathered_) wrong("An op reads other parameters than those gathered before it.");
    gathered_.clear();
  }

  void move_group(const Instruction& step, UnitState from, UnitState to, std::string_view complaint) {
    for (const int p : schedule_->groups[step.group].parameters) {
      if (parameters_[p] != from) wrong(fmt::format("\"{}\" is {}.", index_.model->parameters[p].name, complaint));
      parameters_[p] = to;
    }
  }

  // ---- buffers -----------------------------------------------------------------------------------------------------

  std::size_t number_of(const Instruction& instruction, BufferKind kind) const {
    return (instruction.unit * kNumBufferKinds + static_cast<std::size_t>(kind)) * kNumSlots + instruction.slot;
  }

  std::string buffer_name(std::size_t number) const {
    const std::string_view place = number % kNumSlots == 0 ? "" : "second ";
    const auto kind = static_cast<BufferKind>(number / kNumSlots % kNumBufferKinds);
    return fmt::format("The {}{} of \"{}\"", place, name_of(kind),
                       layout_.units[number / kNumSlots / kNumBufferKinds].name);
  }

  void make(const Instruction& instruction, BufferKind kind) {
    const std::size_t number = number_of(instruction, kind);
    if (buffers_[number] == BufferState::There) {
      wrong(fmt::format("{} is made while it is still there.", buffer_name(number)));
    }
    buffers_[number] = BufferState::There;
  }

  void use(const Instruction& instruction, BufferKind kind) {
    const std::size_t number = number_of(instruction, kind);
    if (buffers_[number] == BufferState::There) return;
    const bool was_there = buffers_[number] == BufferState::Freed;
    wrong(fmt::format("{} is used {}.", buffer_name(number), was_there ? "after it was freed" : "before it is made"));
  }

  void free(const Instruction& instruction) {
    const std::size_t number = number_of(instruction, instruction.buffer);
    if (buffers_[number] != BufferState::There) {
      const bool was_there = buffers_[number] == BufferState::Freed;
      wrong(fmt::format("{} is freed {}.", buffer_name(number), was_there ? "twice" : "before it is made"));
    }
    buffers_[number] = BufferState::Freed;
  }

  // A free that ends an instruction follows it, or another one that does; one that begins an instruction comes before
  // it, or before another one that does.
  static bool is_part(const std::vector<Instruction>& steps, std::size_t i) {
    if (steps[i].kind != InstructionKind::Free) return !steps[i].ends_previous;
    if (steps[i].ends_previous)
      return i > 0 && (steps[i - 1].kind != InstructionKind::Free || steps[i - 1].ends_previous);
    return i + 1 < steps.size() && !steps[i + 1].ends_previous;
  }

  // ---- units -------------------------------------------------------------------------------------------------------

  // The loss has run, and its unit is still gathered.
  void reduce_loss(int unit) {
    const UnitOfLoss& loss = layout_.loss;
    if (unit != loss.unit || loss.true_elements == 0)
      return wrong("A unit without gradients of the loss reduces them.");
    if (next_forward_ != index_.call_begin[static_cast<std::size_t>(loss.call) + 1]) {
      wrong("Gradients of the loss are reduced, and the loss has not just run.");
    }
    if (states_[unit] != UnitState::Unsharded) wrong("Gradients of the loss are reduced by a sharded unit.");
  }

  // Between two passes of a module, FSDP2 reduces what earlier micro-batches left, alone.
  void reduce(int unit) {
    const bool only_kept = kept_[unit] && !is_backward_done(unit);
    kept_[unit] = false;
    if (only_kept) return;
    ++reduced_[unit];
    check_backward_done(unit);
  }

  // The first reduction's buckets are there when a run begins, if the step reduces or frees them.
  std::size_t first_buckets() const { return number_of({.unit = 0}, BufferKind::FirstBuckets); }
  void start_buckets() {
    const auto needs_them = [&](const Instruction& step) {
      return step.kind == InstructionKind::Free ? step.buffer == BufferKind::FirstBuckets : is_of_first(step.bucket);
    };
    const std::vector<Instruction>& steps = schedule_->instructions;
    if (std::any_of(steps.begin(), steps.end(), needs_them)) buffers_[first_buckets()] = BufferState::There;
  }
  bool is_of_first(int bucket) const { return bucket >= static_cast<int>(layout_.buckets.size()); }

  void reduce_bucket(int bucket) {
    const bool are_first_there = buffers_[first_buckets()] == BufferState::There;
    if (is_of_first(bucket) != are_first_there) {
      wrong(fmt::format("Bucket {} is reduced {}.", bucket, are_first_there ? "before it is made" : "after its Free"));
    }
    if (is_of_first(bucket) && next_bucket_ == 0) next_bucket_ = static_cast<int>(layout_.buckets.size());
    if (bucket != next_bucket_) wrong(fmt::format("Bucket {} is reduced where {} comes next.", bucket, next_bucket_));
    next_bucket_ = bucket + 1;
    for (int p = layout_.bucket(bucket).ready; p < next_backward_; ++p) {
      if (!index_.in_backward[p]) continue;
      wrong(fmt::format("Bucket {} is reduced before its gradients are there.", bucket));
      return;
    }
  }

  bool is_flat() const { return layout_.has_flat_units(); }

  bool keeps_smaller_shard(int unit) const {
    return layout_.units[unit].reshard.kind == ReshardAfterForward::Kind::Smaller;
  }

  void move(int unit, UnitState from, UnitState to, std::string_view complaint) {
    if (states_[unit] != from) wrong(fmt::format("Unit \"{}\" is {}.", layout_.units[unit].name, complaint));
    states_[unit] = to;
  }

  void forward(const Instruction& instruction) {
    const int begin = index_.call_begin[instruction.call] + instruction.op_begin;
    if (begin != next_forward_) wrong("An op is skipped or run twice in forward.");
    next_forward_ = begin + instruction.op_end - instruction.op_begin;
    if (layout_.gathers_each_read && layout_.mesh.dp_shard() > 1) check_reads(instruction);
    check_parameters(instruction);
  }

  void backward(const Instruction& instruction) {
    const int end = index_.call_begin[instruction.call] + instruction.op_end;
    for (int p = end; p < next_backward_; ++p) {
      if (is_in_backward(p)) wrong("An op is skipped in backward.");
    }
    if (end > next_backward_) wrong("An op is run twice in backward.");
    if (has_passes(*index_.model) && !is_in_backward(end - 1)) wrong("An op has no backward here.");
    next_backward_ = end - (instruction.op_end - instruction.op_begin);
    gathered_.clear();
    // The backward of a loss that has called its unit hands on what the forward has made.
    if (instruction.call != layout_.loss.call) check_parameters(instruction);
  }

  void check_parameters(const Instruction& instruction) {
    const Call& call = index_.model->calls[instruction.call];
    const Block& block = index_.model->blocks[call.block];
    for (int o = instruction.op_begin; o < instruction.op_end; ++o) {
      for (const int local : block.ops[o].parameters) {
        const int parameter = call.parameters[local];
        if (!parameters_.empty() && parameters_[parameter] != UnitState::Unsharded) {
          wrong(fmt::format("An op runs while \"{}\" is sharded.", index_.model->parameters[parameter].name));
          return;
        }
        const int unit = layout_.unit_of_parameter[parameter];
        if (states_[unit] == UnitState::Unsharded) continue;
        wrong(fmt::format("An op of \"{}\" runs while its parameters are sharded.", layout_.units[unit].name));
        return;
      }
    }
  }

  bool is_backward_done(int unit) const {
    for (const Window& window : layout_.units[unit].windows) {
      for (int p = window.begin; p < std::min(window.end, next_backward_); ++p) {
        if (is_in_backward(p)) return false;
      }
    }
    return true;
  }

  void check_backward_done(int unit) {
    if (is_backward_done(unit)) return;
    wrong(fmt::format("The gradients of \"{}\" are taken before its backward is done.", layout_.units[unit].name));
  }

  const ModelIndex& index_;
  const Layout& layout_;
  std::vector<UnitState> resting_;  // Between steps.
  std::vector<UnitState> states_;
  const Schedule* schedule_ = nullptr;
  std::vector<UnitState> parameters_;  // For ZeRO-3.
  std::vector<int> gathered_;          // SimpleFSDP: since the last op.
  std::vector<int> reduced_;
  std::vector<bool> kept_;            // Gradients of earlier micro-batches.
  std::vector<BufferState> buffers_;  // [units, kinds, slots]
  int next_forward_ = 0;
  int next_backward_ = 0;
  int pass_ = 0;          // In Model::passes.
  int next_bucket_ = -1;  // -1: this micro-batch reduces none.
  std::string where_;
  Errors errors_;
};

}  // namespace

Errors validate(const Schedule& schedule, const ModelIndex& index, const Layout& layout) {
  return Validator(index, layout).run(schedule);
}

}  // namespace fsdp
