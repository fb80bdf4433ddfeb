#pragma once

// The gathers and reductions of FSDP2's units as instructions, and when it lets go of their buffers
// (lower_fsdp2.cpp has the rules).

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/frameworks/fsdp2/unit_states.h"
#include "core/plan/plan.h"
#include "core/plan/schedule_writer.h"

namespace fsdp {

class Fsdp2Buffers {
 protected:
  Fsdp2Buffers(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : plan_(plan),
        layout_(layout),
        quirks_(plan.runtime.quirks),
        units_(layout.units.size()),
        tree_of_unit_(trees_of_units(index, layout)),
        trees_(make_trees(index, layout, tree_of_unit_)) {}

  static constexpr bool kBegins = false;  // A free begins the next instruction, or
  static constexpr bool kEnds = true;     // ends the last one.

  Fsdp2Tree& tree(int unit) { return trees_[static_cast<std::size_t>(tree_of_unit_[static_cast<std::size_t>(unit)])]; }

  void unshard(int unit, int call = -1) {
    Fsdp2Unit& state = units_[unit];
    if (state.unsharded || state.gathering) return;
    state.gathering = true;
    // A unit that is called twice in a row gathers again while its last output is held.
    state.slot = tree(unit).held_gather == unit && tree(unit).held_slot == 0 ? 1 : 0;
    out_.emit({.kind = InstructionKind::Unshard,
               .slot = state.slot,
               .ranks = state.smaller ? ranks_along(MeshAxis::DpShard, layout_.units[unit].reshard.world_size)
                                      : layout_.group_of(layout_.units[unit], !quirks_.skip_collectives_of_one),
               .unit = unit,
               .call = call});
  }

  // `holds`: in a forward the output of the gather is kept.
  void wait(int unit, bool holds = true) {
    Fsdp2Unit& state = units_[unit];
    if (!state.gathering) return;
    state.gathering = false;
    state.unsharded = true;
    state.smaller = false;
    Fsdp2Tree& of = tree(unit);
    if (!quirks_.forward_all_gather_output_kept) free_held_gather(of, kBegins);
    out_.emit({.kind = InstructionKind::WaitForUnshard, .slot = state.slot, .unit = unit});
    free_held_gather(of, kEnds);
    const bool is_forward = out_.phase == StepPhase::Forward || runs_again_;
    if (is_forward && holds && !layout_.units[unit].is_alone()) {
      of.held_gather = unit;
      of.held_slot = state.slot;
    } else {
      free(BufferKind::AllGatherOutput, unit, state.slot, kEnds);
    }
  }

  void reshard(int unit) {
    Fsdp2Unit& state = units_[unit];
    if (!state.unsharded && !state.gathering) return;
    if (state.gathering) free(BufferKind::AllGatherOutput, unit, state.slot, kBegins);
    state.unsharded = state.gathering = false;
    out_.emit(InstructionKind::Reshard, unit);
  }

  void reduce(int unit, std::uint8_t slot = 0) {
    Fsdp2Tree& of = tree(unit);
    if (!quirks_.reduce_input_kept_in_next) recycle_reduce_inputs(of);
    free_all_reduced(of, unit);
    const bool keeps_output = layout_.mesh.dp_replicate() > 1 && quirks_.all_reduce_output_kept;
    out_.emit({.kind = InstructionKind::ReduceGrads,
               .slot = slot,
               .keeps_last_gradient = quirks_.last_gradient_kept_in_reduce &&
                                      (layout_.units[unit].shards > 1 || !quirks_.skip_reductions_of_one),
               .keeps_all_reduce_output = keeps_output,
               .ranks = layout_.group_of(layout_.units[unit], !quirks_.skip_reductions_of_one),
               .copies = layout_.mesh.group_along(MeshAxis::DpReplicate),
               .unit = unit});
    while (quirks_.reduce_input_kept_in_next && !of.reduce_inputs.empty()) free_oldest_reduce_input(of, kEnds);
    of.reduce_inputs.push_back({unit, slot});
    if (keeps_output) of.all_reduced.push_back({unit, slot});
  }

  void free_all_reduced(Fsdp2Tree& of, int unit) {
    for (const Fsdp2Reduction& reduction : of.all_reduced) {
      if (reduction.unit == unit) free(BufferKind::AllReduceOutput, unit, reduction.slot, kBegins);
    }
    std::erase_if(of.all_reduced, [&](const Fsdp2Reduction& reduction) { return reduction.unit == unit; });
  }

  void free(BufferKind buffer, int unit, std::uint8_t slot, bool ends) {
    out_.emit({.kind = InstructionKind::Free, .buffer = buffer, .slot = slot, .ends_previous = ends, .unit = unit});
  }

  void free_held_gather(Fsdp2Tree& of, bool ends) {
    if (of.held_gather >= 0) free(BufferKind::AllGatherOutput, of.held_gather, of.held_slot, ends);
    of.held_gather = -1;
  }

  void free_oldest_reduce_input(Fsdp2Tree& of, bool ends = kBegins) {
    free(BufferKind::ReduceInput, of.reduce_inputs.front().unit, of.reduce_inputs.front().slot, ends);
    of.reduce_inputs.pop_front();
  }

  // Until there is room for one more.
  void recycle_reduce_inputs(Fsdp2Tree& of) {
    while (static_cast<std::int64_t>(of.reduce_inputs.size()) >= plan_.reduce_scatter_buffers)
      free_oldest_reduce_input(of);
  }

  const Plan& plan_;
  const Layout& layout_;
  const Quirks& quirks_;
  ScheduleWriter out_;
  std::vector<Fsdp2Unit> units_;
  std::vector<int> tree_of_unit_;  // [units]
  std::vector<Fsdp2Tree> trees_;   // As in roots_of.
  bool runs_again_ = false;        // Within a reentrant checkpoint, whose block has a forward of its own.
};

}  // namespace fsdp
