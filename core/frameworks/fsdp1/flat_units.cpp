// How FSDP1 makes a flat parameter of a unit.
//
// The parameters of a unit lie one after the other: those of a module, then those of its children. The flat parameter
// has T elements, and is cut into N shards of S = ceil(T / N), the last ones padded. NO_SHARD cuts nothing.
//
// With use_orig_params each parameter begins at a multiple of 16 bytes of the dtype that is computed in, and T is
// padded to a multiple of the number of ranks of the process group, which for NO_SHARD are all. All trained ones have a
// gradient then, which is a view of the flat one.
//
// Sources: torch/distributed/fsdp/_flat_param.py (_init_flat_param_and_metadata, _get_shard, _get_aligned_numel,
// _validate_tensors_to_flatten, _reset_is_grad_none), _init_utils.py (_init_core_state), torch 2.11.
//
// Not modeled: frozen parameters beside trained ones in one flat parameter, whose gradients FSDP1 computes, too (the
// planner makes units of the trained ones, planner/space/wrap_apart.h); ignored modules; sync_module_states; buffers
// that are cast; autocast, which would keep casts of weights and cast at every op; keep_low_precision_grads, with which
// PyTorch's Adam fails ("expected dtype float for `end` but got dtype c10::BFloat16").

#include "core/frameworks/fsdp1/flat_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/plan/parameter_part.h"
#include "core/plan/schedule.h"

namespace fsdp {

namespace {

using Kind = ReshardAfterForward::Kind;

constexpr std::int64_t kAlignment = 16;  // Bytes; ALIGNMENT in _get_aligned_numel.

// Settings of the units below the root; of the root, where it is alone.
bool counts(const Plan& plan, const Unit& unit) {
  return plan.units.size() == 1 || !is_root(unit);
}

bool keeps(const Unit& unit) {
  return unit.reshard_after_forward.kind == Kind::Never;
}

void check_strategy(const Plan& plan, Errors& errors) {
  const Unit* first = nullptr;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const Unit& unit = plan.units[u];
    const std::string where = fmt::format("units/{}", u);
    if (unit.modules.size() > 1) {
      errors.push_back({where, "FSDP1 wraps one module at a time, and the unit has several.",
                        "Give each a unit of its own, or wrap the module around them."});
    }
    if (unit.reshard_after_forward.kind == Kind::Smaller) {
      errors.push_back({where, "FSDP1 has no number for reshard_after_forward.", "Write true or false."});
    }
    if (plan.mesh.dp_shard() == 1 || !counts(plan, unit)) continue;
    if (first == nullptr) first = &unit;
    if (keeps(unit) == keeps(*first)) continue;
    errors.push_back({where, "FSDP1 has one strategy for all units, and their reshard_after_forward differs.",
                      "Write true (FULL_SHARD) or false (SHARD_GRAD_OP) for all but the root."});
    return;
  }
}

void check_shared_grads(const Layout& layout, const Plan& plan, const Model& model, Errors& errors) {
  const bool keeps_gradients = plan.accumulation > 1 && !plan.sync_every_micro_batch;
  if (!keeps_gradients) return;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      const Parameter& parameter = model.parameters[p.parameter];
      if (!fails_unreduced(plan, plan.mesh, parameter)) continue;
      errors.push_back({"fsdp1/use_orig_params",
                        fmt::format("PyTorch fails at the gradient of \"{}\", which is tied, computed in {} and not "
                                    "reduced.",
                                    parameter.name, name_of(unit.param_dtype)),
                        "Write false, or reduce every micro-batch."});
      return;
    }
  }
}

// Copies of a buffer that ops make in another dtype are not listed. A rotary table computes in fp32 whatever the dtype
// of its frequencies, of which it makes a copy of some hundred bytes.
void check_buffers(const Plan& plan, const Model& model, Errors& errors) {
  if (!plan.fsdp1.buffer_dtype) return;
  for (const Buffer& buffer : model.buffers) {
    if (!buffer.registered || !is_floating_point(buffer.dtype) || buffer.dtype == *plan.fsdp1.buffer_dtype) continue;
    if (buffer.name.ends_with("inv_freq")) continue;
    errors.push_back({"fsdp1/buffer_dtype",
                      fmt::format("The buffer \"{}\" is {}, and its ops with one in {} are not predicted.", buffer.name,
                                  name_of(buffer.dtype), name_of(*plan.fsdp1.buffer_dtype)),
                      fmt::format("Write null or {}.", name_of(buffer.dtype))});
    return;
  }
}

std::int64_t group_size(const Mesh& mesh) {
  return mesh.dp_shard() > 1 ? mesh.dp_shard() : mesh.dp_replicate();
}

std::int64_t round_up(std::int64_t value, std::int64_t to) {
  return (value + to - 1) / to * to;
}

// An error for parameters that one flat parameter cannot hold, or not in a predicted way.
std::optional<Error> misfit(const ShardedUnit& unit, const Layout& layout, const Plan& plan, const Model& model,
                            const std::string& where) {
  if (unit.parameters.empty()) return std::nullopt;
  const Parameter& first = model.parameters[unit.parameters.front().parameter];
  for (const ShardedParameter& of : unit.parameters) {
    const Parameter& parameter = model.parameters[of.parameter];
    const Dtype dtype = layout.parameter_dtype[of.parameter];
    if (!is_floating_point(dtype) || dtype != unit.original_dtype || parameter.shape.empty()) {
      return Error{
          where,
          fmt::format("\"{}\" is {}{}, and does not go into a flat parameter of {}.", parameter.name,
                      parameter.shape.empty() ? "a scalar of " : "", name_of(dtype), name_of(unit.original_dtype)),
          "Leave --wrap out, so that each dtype gets its own units; or set parameter_dtype, or name those modules in "
          "--wrap, too."};
    }
    if (parameter.trainable == first.trainable) continue;
    return Error{where,
                 fmt::format("\"{}\" is {} and \"{}\" is {}: {}.", first.name, first.trainable ? "trained" : "frozen",
                             parameter.name, parameter.trainable ? "trained" : "frozen",
                             plan.fsdp1.use_orig_params
                                 ? "FSDP1 computes the gradients of frozen parts, too, which is not predicted"
                                 : "a flat parameter is trained or frozen as a whole"),
                 "Leave --wrap out, so that trained parameters get their own units, as by peft's "
                 "fsdp_auto_wrap_policy; or name those modules in --wrap, too."};
  }
  return std::nullopt;
}

}  // namespace

bool reshards_after_forward(const Plan& plan) {
  return std::none_of(plan.units.begin(), plan.units.end(),
                      [&](const Unit& unit) { return counts(plan, unit) && keeps(unit); });
}

Errors check_flat_plan(const Plan& plan, const Model& /*model*/) {
  Errors errors;
  check_strategy(plan, errors);
  if (plan.forward_prefetch != 0 || plan.backward_prefetch != 1) {
    errors.push_back({"prefetch", "FSDP1 has no prefetch by a number of units.",
                      "Write forward_prefetch 0 and backward_prefetch 1, and choose in \"fsdp1\"."});
  }
  if (plan.mixed_precision.output_dtype) {
    errors.push_back({"mixed_precision/output_dtype", "FSDP1 casts no outputs.", "Leave it out."});
  }
  return errors;
}

std::optional<Error> offload_misfit(const Plan& plan, const Model& model, const Mesh& mesh, bool adds_up) {
  if (mesh.dp_shard() == 1) {
    return Error{"cpu_offload", "NO_SHARD with CPU offload is not predicted.",
                 "Shard over several GPUs, or write false."};
  }
  if (adds_up) {
    return Error{
        "cpu_offload",
        "With CPU offload FSDP1 copies each reduced gradient over that of the micro-batch before, which is lost.",
        "Reduce gradients once a step (sync_every_micro_batch false), or write false."};
  }
  if (!plan.fsdp1.use_orig_params) return std::nullopt;
  for (const Parameter& parameter : model.parameters) {
    const Dtype own = plan.parameter_dtype.value_or(parameter.dtype);
    if (plan.mixed_precision.param_dtype.value_or(own) != own) continue;
    return Error{"cpu_offload",
                 fmt::format("With use_orig_params and \"{}\" in {} throughout, CPU offload is not predicted: its "
                             "views hold the copies on the GPU.",
                             parameter.name, name_of(own)),
                 "Write another param_dtype, or false for use_orig_params or cpu_offload."};
  }
  return std::nullopt;
}

// "attempting to assign a gradient with dtype 'c10::BFloat16' to a tensor with grad_dtype 'Float'."
bool fails_unreduced(const Plan& plan, const Mesh& mesh, const Parameter& parameter) {
  if (!plan.fsdp1.use_orig_params || mesh.dp_shard() > 1) return false;
  const Dtype own = plan.parameter_dtype.value_or(parameter.dtype);
  return parameter.trainable && !parameter.tied_names.empty() && plan.mixed_precision.param_dtype.value_or(own) != own;
}

Errors flatten(ShardedUnit& unit, const Layout& layout, const Plan& plan, const Model& model,
               const std::string& where) {
  if (auto error = misfit(unit, layout, plan, model, where)) return {*std::move(error)};
  const bool aligns = plan.fsdp1.use_orig_params;
  const std::int64_t alignment = aligns ? kAlignment / size_of(unit.param_dtype).count() : 1;
  const std::int64_t ranks = plan.mesh.dp_shard();
  bool has_gradient = false;
  std::int64_t total = 0;
  for (ShardedParameter& of : unit.parameters) {
    const Parameter& parameter = model.parameters[of.parameter];
    total = round_up(total, alignment);
    const ParameterPart part = part_of(parameter.shape, CutBy::Elements, ranks);
    of.elements = part.elements;
    of.shard_elements = part.chunk;
    of.receives_gradient = parameter.receives_gradient;
    of.flat_begin = total;
    total += of.elements;
    has_gradient = has_gradient || of.receives_gradient;
  }
  if (aligns) total = round_up(total, group_size(plan.mesh));
  unit.true_elements = total;
  unit.shard_elements = part_of(total, CutBy::Elements, ranks).chunk;
  unit.full_elements = ranks * unit.shard_elements;
  unit.gather_shard_bytes = size_of(unit.param_dtype) * unit.shard_elements;
  if (has_gradient) {
    unit.reduced_shard_elements = unit.shard_elements;
    unit.reduced_full_elements = unit.full_elements;
    unit.reduced_true_elements = total;
  }
  for (ShardedParameter& of : unit.parameters) {
    if (aligns && has_gradient) of.receives_gradient = true;  // Zeros if nothing flows to it.
    of.flat_shard = unit.shard_elements;
    of.local_elements = of.local_elements_of(layout.rank);
  }
  return {};
}

Errors check_flat_units(const Layout& layout, const Plan& plan, const ModelIndex& index) {
  Errors errors;
  check_buffers(plan, *index.model, errors);
  check_shared_grads(layout, plan, *index.model, errors);
  const bool adds_up = plan.accumulation > 1 && plan.sync_every_micro_batch;
  if (plan.cpu_offload) {
    if (auto misfit = offload_misfit(plan, *index.model, plan.mesh, adds_up)) errors.push_back(*std::move(misfit));
  }
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const ShardedUnit& unit = layout.units[u];
    const bool has_backward = std::any_of(unit.windows.begin(), unit.windows.end(),
                                          [](const Window& window) { return window.pre_backward >= 0; });
    const bool stays =
        layout.flat == FlatParameters::Whole && plan.mesh.dp_shard() > 1 && !reshards_after_forward(plan);
    if (has_backward || !stays || unit.parameters.empty() || unit.windows.empty()) continue;
    errors.push_back(
        {fmt::format("units/{}", u),
         fmt::format("\"{}\" has no backward, so that SHARD_GRAD_OP keeps it unsharded from its first forward "
                     "on, which is not predicted.",
                     unit.name),
         "Write true for reshard_after_forward (FULL_SHARD), or leave it to another unit."});
  }
  return errors;
}

}  // namespace fsdp
