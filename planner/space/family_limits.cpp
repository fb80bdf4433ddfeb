#include "planner/space/family_limits.h"

#include <algorithm>

#include "core/frameworks/fsdp1/flat_units.h"
#include "core/frameworks/other_models.h"
#include "core/plan/automodel.h"
#include "core/plan/expert_parallel.h"
#include "core/plan/framework_traits.h"

namespace fsdp::planner {

namespace {

std::optional<Error> misfit_of_passes(const Plan& base, const Family& family, const Model& model) {
  if (!has_passes(model)) return std::nullopt;
  Plan plan = base;
  plan.mesh = family.mesh;
  plan.accumulation = family.accumulation;
  plan.forward_prefetch = family.forward_prefetch;
  plan.backward_prefetch = family.backward_prefetch;
  set_offload(plan, family.cpu_offload);
  return passes_misfit(plan, model);
}

std::optional<Error> misfit_of_automodel(const Plan& base, const Family& family, const Model& model) {
  if (!is_of_automodel(base.runtime.flavor)) return std::nullopt;
  Plan plan = base;
  plan.mesh = family.mesh;
  plan.accumulation = family.accumulation;
  if (family.checkpointed.back() > 0) plan.checkpointing.entries = {{.module = "", .mode = family.ways.front().mode}};
  return automodel_misfit(plan, model);
}

std::optional<Error> misfit_of_experts(const Plan& base, const Family& family, const Model& model) {
  if (family.mesh.ep == 1) return std::nullopt;
  Plan plan = base;
  plan.forward_prefetch = family.forward_prefetch;
  plan.backward_prefetch = family.backward_prefetch;
  if (!family.checkpointed.empty() && family.checkpointed.back() > 0) plan.checkpointing.entries = {{}};
  return expert_misfit(plan, model, family.mesh, family.cpu_offload);
}

std::optional<Error> misfit_of_float8(const Plan& base, const Family& family, const Model& model) {
  if (!base.float8) return std::nullopt;
  Plan plan = base;
  plan.mesh = family.mesh;
  set_offload(plan, family.cpu_offload);
  plan.units = {{.modules = {""}, .reshard_after_forward = {family.reshard, family.reshard_world_size}}};
  if (!family.checkpointed.empty() && family.checkpointed.back() > 0) {
    plan.checkpointing.entries = {{.module = "", .mode = family.ways.front().mode}};
  }
  return float8_misfit(plan, model);
}

}  // namespace

std::optional<Error> family_misfit(const Plan& base, const Family& family, const Model& model) {
  if (auto misfit = misfit_of_passes(base, family, model)) return misfit;
  if (auto misfit = quantization_misfit(base, model)) return misfit;
  if (auto misfit = misfit_of_experts(base, family, model)) return misfit;
  if (auto misfit = liger_misfit(base)) return misfit;
  if (auto misfit = misfit_of_float8(base, family, model)) return misfit;
  if (auto misfit = misfit_of_automodel(base, family, model)) return misfit;
  if (Errors misfits = other_models_misfits(base, model); !misfits.empty()) return std::move(misfits.front());
  if (auto misfit = optimizer_misfit(base, model, family.mesh, family.cpu_offload)) return misfit;
  if (!traits_of(base).has_flat_parameters) return std::nullopt;
  const bool accumulates = family.accumulation > 1;
  if (family.cpu_offload) {
    const bool adds_up = accumulates && family.sync_every_micro_batch;
    if (auto misfit = offload_misfit(base, model, family.mesh, adds_up)) {
      return Error{"--offload", misfit->what, misfit->hint};
    }
  }
  const auto fails = [&](const Parameter& parameter) { return fails_unreduced(base, family.mesh, parameter); };
  if (accumulates && !family.sync_every_micro_batch &&
      std::any_of(model.parameters.begin(), model.parameters.end(), fails)) {
    return Error{"--gradient-sync", "FSDP1 has no plan that keeps gradients of tied parameters in another dtype.",
                 "Reduce every micro-batch, or write false for use_orig_params."};
  }
  return std::nullopt;
}

}  // namespace fsdp::planner
