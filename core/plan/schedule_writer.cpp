#include "core/plan/schedule_writer.h"

#include <cstddef>

namespace fsdp {

void ScheduleWriter::emit_whole_forward(const ModelIndex& index, const Layout& layout) {
  const int left = layout.units.front().windows.empty() ? 0 : layout.units.front().windows.back().end;
  bool has_left = false;
  for (std::size_t c = 0; c + 1 < index.call_begin.size(); ++c) {
    if (!has_left && index.call_begin[c] >= left) {
      has_left = true;
      emit({.kind = InstructionKind::LeaveRoot});
    }
    emit_ops(InstructionKind::Forward, index, static_cast<int>(c), index.call_begin[c], index.call_begin[c + 1]);
  }
  if (!has_left) emit({.kind = InstructionKind::LeaveRoot});
}

void ScheduleWriter::emit_backward_in_buckets(const ModelIndex& index, const Layout& layout,
                                              const Reductions& reductions) {
  int next = reductions.begin;
  const auto is_ready = [&](int position) { return next < reductions.end && layout.bucket(next).ready >= position; };
  const auto reduce_ready = [&](int position) {
    for (; is_ready(position); ++next) {
      emit({.kind = InstructionKind::ReduceBucket, .ranks = reductions.ranks, .bucket = next});
    }
  };
  int position = index.num_positions();
  reduce_ready(position);
  while (position > 0) {
    if (!index.in_backward[position - 1]) {
      --position;
      continue;
    }
    const int call = index.call_at(position - 1);
    const int begin = index.call_begin[call];
    int stop = position - 1;
    while (stop > begin && index.in_backward[stop - 1] && !is_ready(stop)) --stop;
    emit_ops(InstructionKind::Backward, index, call, stop, position);
    position = stop;
    reduce_ready(position);
  }
  // Gradients that are ready only at the end, because the first ops have no backward.
  reduce_ready(0);
}

}  // namespace fsdp
