// SimpleFSDP's reads of parameters, and the plans that it can express.
//
// data_parallel puts a DTensor in the place of each parameter and a property in the place of its name: whoever reads
// the name gets a whole copy, made for this read alone. Its graph has the way back: the gradient of the copy is cast to
// reduce_dtype, summed over the ranks and cut. Nothing is shared between two reads, of a tied parameter or of a module
// that runs again: each gathers and each reduces.
//
// Sources: torchtitan/experiments/graph_trainer/simple_fsdp.py (data_parallel, ReplicateComputation), torchtitan 0.3.0;
// torch/distributed/tensor/_redistribute.py (Redistribute), placement_types.py (Shard), torch 2.11.
//
// Not modeled: shard_dim other than 0, full_dtensor, a model that has tensor or expert parallelism already, and
// torch.compile, whose passes merge, reorder and recompute collectives.

#include "core/frameworks/simple_fsdp/parameter_reads.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/parameter_part.h"

namespace fsdp {

namespace {

template <class Wrong>
void check_parameters(const Plan& plan, const Model& model, const Wrong& wrong) {
  const Parameter* first = nullptr;
  for (const Parameter& parameter : model.parameters) {
    if (!is_floating_point(parameter.dtype)) {
      wrong("runtime/name",
            fmt::format("\"{}\" is {}; SimpleFSDP with parameters that are no floating-point numbers is not predicted.",
                        parameter.name, name_of(parameter.dtype)),
            "Plan for --runtime fsdp2.");
      return;
    }
    if (parameter.shape.empty() && plan.mesh.dp_shard() > 1) {
      wrong("runtime/name",
            fmt::format("\"{}\" has no dimension, and SimpleFSDP cuts along the first one.", parameter.name),
            "Plan for --runtime ddp, or write a shape of one element in the spec.");
      return;
    }
    if (!parameter.trainable || plan.parameter_dtype) continue;
    if (first == nullptr) first = &parameter;
    if (parameter.dtype == first->dtype) continue;
    wrong("parameter_dtype",
          fmt::format("\"{}\" is {} and \"{}\" is {}; SimpleFSDP is predicted with one dtype of trained parameters.",
                      first->name, name_of(first->dtype), parameter.name, name_of(parameter.dtype)),
          "Set parameter_dtype.");
    return;
  }
}

}  // namespace

Errors check_simple_fsdp_plan(const Plan& plan, const Model& model) {
  Errors errors;
  const auto wrong = [&](std::string where, std::string what, std::string hint) {
    errors.push_back({std::move(where), std::move(what), std::move(hint)});
  };
  if (plan.units.size() != 1) {
    wrong("units", fmt::format("SimpleFSDP knows no units, and the plan has {}.", plan.units.size()),
          "Leave the root as the only one.");
  } else if (plan.units[0].reshard_after_forward != ReshardAfterForward{}) {
    wrong("units/0",
          "SimpleFSDP has no reshard_after_forward without a compiler: autograd frees gathered parameters when it "
          "needs them no more.",
          "Leave it out. Activation checkpointing gathers the parameters of a block again.");
  }
  if (plan.forward_prefetch != 0 || plan.backward_prefetch != 1) {
    wrong("prefetch", "SimpleFSDP does not prefetch.", "Leave forward_prefetch and backward_prefetch out.");
  }
  if (plan.cpu_offload) wrong("cpu_offload", "SimpleFSDP does not offload.", "Write false.");
  if (plan.mixed_precision.output_dtype) {
    wrong("mixed_precision/output_dtype", "SimpleFSDP's MixedPrecisionPolicy has only param_dtype and reduce_dtype.",
          "Leave it out.");
  }
  if (plan.accumulation > 1 && !plan.sync_every_micro_batch) {
    wrong("sync_every_micro_batch", "SimpleFSDP reduces gradients after every micro-batch.", "Write true.");
  }
  if (plan.initialization != Initialization::Meta) {
    wrong("initialization", "SimpleFSDP is predicted only with a model made on the meta device, as in torchtitan.",
          "Write meta.");
  }
  check_parameters(plan, model, wrong);
  if (is_captured(model)) {
    wrong("runtime/name",
          "The model was captured, and its recording does not show which of its calls would gather a parameter.",
          "Plan for --runtime fsdp2, fsdp1 or ddp, or write a model spec.");
  }
  return errors;
}

Dtype read_dtype(const MixedPrecision& precision, Dtype own) {
  return precision.param_dtype.value_or(own);
}

Dtype read_reduce_dtype(const MixedPrecision& precision, Dtype own) {
  return precision.reduce_dtype.value_or(own);
}

std::vector<GradientBucket> gradients_of_reads(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  std::vector<GradientBucket> gradients;
  if (plan.mesh.world_size() == 1) return gradients;
  const Model& model = *index.model;
  for (int position = index.num_positions() - 1; position >= 0; --position) {
    if (!index.in_backward[position]) continue;
    const int c = index.call_at(position);
    const Call& call = model.calls[c];
    const std::vector<int>& reads = model.blocks[call.block].ops[position - index.call_begin[c]].parameters;
    // Among two copies that one op reads, the one that was made last has its gradient reduced first.
    for (auto read = reads.rbegin(); read != reads.rend(); ++read) {
      const int p = call.parameters[*read];
      if (!model.parameters[p].trainable) continue;
      gradients.push_back({.parameters = {p},
                           .dtype = read_reduce_dtype(plan.mixed_precision, layout.parameter_dtype[p]),
                           .elements = part_of(model.parameters[p].shape, CutBy::Rows, plan.mesh.dp_shard()).full,
                           .ready = position});
    }
  }
  return gradients;
}

void add_reads(Layout& layout, const ModelIndex& index, const Plan& plan) {
  layout.gathers_each_read = true;
  layout.buckets = gradients_of_reads(index, plan, layout);
}

}  // namespace fsdp
