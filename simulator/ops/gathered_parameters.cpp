// Memory of a read that makes a whole copy of a parameter (SimpleFSDP), and of the copy's gradient on its way back.
//
// For a parameter of E elements in dtype o, cut into chunks of S elements over N ranks, computed with in dtype c and
// reduced in dtype r, with R copies of the shards:
//
//   read      [the part cast to c] [the part padded to S], the all-gather's output of N S elements in c; the others go.
//             Over one rank the copy is the cast itself, or nothing: the parameter itself is read
//   backward  [the gradient cast to r, E] [the all-reduce's output, E, if R > 1] [chunks that lack rows padded, and
//             all of them put one after the other, N S, if rows do not divide], the reduce-scatter's output, S
//             [cast to o]: the gradient of the parameter
//
// A copy is a tensor like any other: it lives until the kernels of the op have used it, or until the last node that
// saved it has run. So a linear layer whose input needs a gradient keeps its weight whole from the forward to the
// backward, and a checkpointed block makes it again.
//
// Sources: torch/distributed/tensor/_redistribute.py (Redistribute, redistribute_local_tensor), placement_types.py
// (Shard._to_replicate_tensor, _reduce_shard_tensor, Partial._reduce_value), torch/distributed/
// _functional_collectives.py, torch 2.11; torchtitan/experiments/graph_trainer/simple_fsdp.py, torchtitan 0.3.0.

#include <algorithm>

#include "core/frameworks/simple_fsdp/parameter_reads.h"
#include "core/plan/parameter_part.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

// The stored part, whose size is that of its gradient: the gradient from a reduce-scatter without a cast is padded.
// Under autocast it is the whole parameter.
void KernelWriter::own_parameter(std::size_t p, Dtype own) {
  const GatheredReads& reads = context_.reads;
  if (reads.shard == 0) {
    Slot& whole = program_.slots[program_.parameter_slot[p]];
    whole.dtype = own;
    program_.storages[whole.storage].bytes = whole.bytes();
    return;
  }
  const ParameterPart cut = part_of(block_.parameters[p], CutBy::Rows, reads.shard, reads.rank);
  const bool is_cast_last = read_reduce_dtype(reads.precision, own) != own;
  Slot& slot = program_.slots[program_.parameter_slot[p]];
  slot.elements = is_cast_last || reads.shard == 1 ? cut.local : cut.chunk;
  slot.dtype = own;
  slot.is_dtensor = true;
}

void KernelWriter::start_op(int op) {
  op_ = op;
  reads_.clear();
  if (context_.reads.shard == 0) return;
  for (const int parameter : block_.ops[op].parameters) reads_.push_back(read(parameter));
}

void KernelWriter::end_op() {
  if (reads_.empty() || program_.kernels.empty() || program_.kernels.back().op != op_) return;
  Kernel& last = program_.kernels.back();
  last.holds.insert(last.holds.end(), reads_.begin(), reads_.end());
}

int KernelWriter::read(int parameter) {
  const GatheredReads& reads = context_.reads;
  const int own_slot = program_.parameter_slot[parameter];
  const Dtype own = slot(own_slot).dtype;
  const Dtype given = read_dtype(reads.precision, own);
  const ParameterPart cut = part_of(block_.parameters[parameter], CutBy::Rows, reads.shard, reads.rank);
  const bool is_copy = reads.shard > 1 || given != own;
  // On a single rank, in one dtype, the reader uses the parameter itself.
  if (!is_copy && reads.replicate == 1 && read_reduce_dtype(reads.precision, own) == own) return own_slot;
  const int whole = is_copy ? make(cut.elements, given) : alias(own_slot, cut.elements);
  if (is_copy) {
    Storage& storage = program_.storages[slot(whole).storage];
    storage.bytes = cut.full * size_of(given).count();
    storage.is_parameter = true;
  }
  Kernel& kernel = add(is_copy ? KernelKind::Read : KernelKind::View, {{own_slot, GradRule::Fresh}}, {whole});
  if (reads.shard > 1) {
    const std::int64_t item = size_of(given).count();
    if (given != own) kernel.forward_temps.push_back(cut.local * item);
    if (cut.local < cut.chunk) kernel.forward_temps.push_back(cut.chunk * item);
    kernel.late_outputs = 1;
  }
  write_reduction(kernel, parameter, given, own);
  return whole;
}

void KernelWriter::write_reduction(Kernel& kernel, int parameter, Dtype read, Dtype own) const {
  const GatheredReads& reads = context_.reads;
  const Dtype reduced = read_reduce_dtype(reads.precision, own);
  const ParameterPart cut = part_of(block_.parameters[parameter], CutBy::Rows, reads.shard, reads.rank);
  const std::int64_t item = size_of(reduced).count();
  const bool is_cast_last = reduced != own;
  const bool is_scattered = reads.shard > 1;
  const bool is_summed = reads.replicate > 1;
  // The last temporary is the gradient; the earlier ones are freed once it exists.
  std::vector<BackwardTemp>& made = kernel.backward_temps;
  const TempLife between = is_cast_last && is_scattered ? TempLife::Early : TempLife::Whole;
  if (reduced != read) made.push_back({cut.elements * item, TempLife::Whole});
  if (is_summed) made.push_back({cut.elements * item, between});
  if (is_scattered && cut.is_padded()) {
    for (std::int64_t rank = 0; rank < reads.shard; ++rank) {
      const bool lacks_rows = cut.elements - rank * cut.chunk < cut.chunk;
      if (lacks_rows) made.push_back({cut.chunk * item, between});
    }
    made.push_back({cut.full * item, between});
  }
  if (is_scattered) made.push_back({cut.chunk * item, TempLife::Whole});
  if (!is_cast_last) made.pop_back();
  // The receive buffer of a reduce-scatter over Gloo (executor/network/collectives_gloo.cpp).
  if (is_scattered && context_.is_cpu()) {
    const TempLife received = is_cast_last ? TempLife::Early : TempLife::Late;
    made.push_back({cut.full * item, received, -1, MemoryCategory::ReduceScatter});
  }
}

}  // namespace fsdp::simulator
