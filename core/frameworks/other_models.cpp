// Another model takes its turn in each micro-batch: its forward without gradients on the same inputs.
//
//   turn=after    LoadInputs, forward of the trained model, forward of the other, backward     TRL's DPO, KTO
//   turn=before   LoadInputs, forward of the other, forward of the trained model, backward     TRL's GRPO; verl
//
// It is held by a plan of its own, with the mesh and the policy of the trained one. TRL hands prepare_fsdp what
// accelerate's plugin says of the trained model, but under FSDP2 it calls fully_shard for the whole model alone: all of
// it is gathered at once.
//
// reshard_after_forward is true for every unit, as the plugin and verl pass it, so the root is freed, too. FSDP1 keeps
// the root's parameters after its forward, which nobody's backward frees: they are gathered in the first step alone.
//
// Sources: TRL 1.16.0, models/utils.py (prepare_fsdp), trainer/dpo_trainer.py (_compute_loss: the policy's forward,
// then the reference's under no_grad), trainer/kto_trainer.py, trainer/grpo_trainer.py
// (_generate_and_score_completions); torch/distributed/fsdp/_runtime_utils.py (_post_forward_reshard), torch 2.11.
//
// Not modeled: a batch of other rows for the other model; generation; a model that is trained, too.

#include "core/frameworks/other_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/dtype.h"
#include "core/frameworks/check_plan.h"
#include "core/model/op.h"
#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"

namespace fsdp {

namespace {

constexpr std::string_view kPlaceOfOthers = "--also";

// What the batch of the trained model lacks. Labels of another head do not count: log-probabilities need none.
std::string missing_input(const Model& trained, const Model& other) {
  for (const int input : other.inputs) {
    const Value& wanted = other.values[static_cast<std::size_t>(input)];
    const bool is_there = std::any_of(trained.inputs.begin(), trained.inputs.end(), [&](int each) {
      const Value& value = trained.values[static_cast<std::size_t>(each)];
      return value.name == wanted.name && value.shape == wanted.shape && value.dtype == wanted.dtype;
    });
    if (!is_there) return wanted.name;
  }
  return {};
}

void check_other_framework(const Plan& plan, const Model& model, Errors& errors) {
  const FrameworkTraits& traits = traits_of(plan);
  const auto refuse = [&](std::string what, std::string hint) {
    errors.push_back({std::string(kPlaceOfOthers), std::move(what), std::move(hint)});
  };
  if (traits.zero_stage > 0 || traits.gathers_each_read) {
    refuse(fmt::format("Another model beside the trained one is not predicted under {}.", traits.title),
           "Plan with --runtime fsdp2, fsdp1 or ddp.");
  }
  if (plan.mixed_precision.autocast) {
    refuse("Another model's forward under autocast is not predicted.", "Plan with --precision mixed or bf16.");
  }
  if (plan.packing) {
    refuse("Another model is not predicted on rows of documents.", "Leave --packing out.");
  }
  if (plan.cuda_graphs) {
    refuse("Another model is not predicted beside a step that is a CUDA graph.", "Leave --cuda-graphs out.");
  }
  if (plan.liger) {
    refuse("Another model is not predicted beside one with Liger's kernels.", "Leave --liger out.");
  }
  if (plan.runtime.implementations.titan_attention) {
    refuse("torchtitan trains one model, and another one with its attention is not predicted.",
           "Plan with another --flavor.");
  }
  if (plan.runtime.implementations.float_logits) {
    refuse("Another model is not predicted beside one that itself casts its logits.", "Leave \"float_logits\" out.");
  }
  if (loss_row(plan.runtime.implementations.loss).calls_head) {
    refuse("Another model is not predicted with a loss that calls the head.", "Plan with another --loss.");
  }
  if (is_captured(model)) {
    refuse("The model was captured, and its step is a recording.",
           "Capture a script that has both models: it counts the other one (docs/how-to/capture-your-script.md).");
  }
}

void check_held(const Plan& plan, std::size_t index, Errors& errors) {
  const OtherModel& other = plan.also[index];
  const FrameworkTraits& traits = traits_of(plan);
  const OtherWrap wrap = wrap_of(other, plan.runtime.framework);
  const auto refuse = [&](std::string what, std::string hint) {
    errors.push_back({std::string(kPlaceOfOthers), fmt::format("{}: {}", other.file, what), std::move(hint)});
  };
  if (wrap != OtherWrap::None && !traits.wraps_units) {
    refuse(fmt::format("A sharded model beside one of {} is not predicted.", traits.title), "Write wrap=none.");
  }
  if (wrap == OtherWrap::None && other.offload) {
    refuse("A model without units is not offloaded: CPUOffloadPolicy is an argument of fully_shard.",
           "Write wrap=root or wrap=blocks, or leave offload out.");
  }
  if (traits.has_flat_parameters && wrap == OtherWrap::Root) {
    refuse("FSDP1 keeps the parameters of a root gathered forever if nothing has a backward.", "Write wrap=blocks.");
  }
  if (traits.has_flat_parameters && other.offload) {
    refuse("An offloaded model beside one of FSDP1 is not predicted.", "Plan with --runtime fsdp2.");
  }
}

void check_built(const Model& trained, const Model& other, Errors& errors) {
  const auto refuse = [&](std::string what, std::string hint) {
    errors.push_back({std::string(kPlaceOfOthers), std::move(what), std::move(hint)});
  };
  if (is_captured(other) || has_passes(other)) {
    return refuse(
        fmt::format("{} was captured; only models of specs and of Hugging Face are predicted here.", other.name),
        "Name a shipped model, a spec or a folder with a config.json.");
  }
  const auto caps_logits = [](const Block& block) {
    return std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return op.kind == OpKind::Softcap; });
  };
  if (std::any_of(other.blocks.begin(), other.blocks.end(), caps_logits)) {
    refuse(fmt::format("{} caps its logits, which is not predicted of another model.", other.name),
           "Name a model that does not.");
  }
  if (const std::string missing = missing_input(trained, other); !missing.empty()) {
    refuse(fmt::format("{} needs \"{}\", which the batch of {} does not have in this shape.", other.name, missing,
                       trained.name),
           "Both read the same micro-batch: name a model with the same inputs.");
  }
}

}  // namespace

Plan plan_of_other(const OtherModel& other, const Model& model, const Plan& trained) {
  Plan plan;
  plan.model = model.name;
  plan.dimensions = model.dimensions;
  plan.parameter_dtype = other.dtype;
  plan.runtime = trained.runtime;
  plan.runtime.implementations.keep_logits = false;  // Its results are gone after its forward.
  plan.initialization = trained.initialization;
  const OtherWrap wrap = wrap_of(other, trained.runtime.framework);
  if (wrap == OtherWrap::None) {
    plan.runtime.framework = Framework::Ddp;
    plan.units = {Unit{{""}, {}}};
    return plan;
  }
  plan.mesh = trained.mesh;
  plan.mixed_precision = trained.mixed_precision;
  plan.fsdp1 = trained.fsdp1;
  plan.cpu_offload = other.offload;
  ReshardAfterForward reshard{.kind = ReshardAfterForward::Kind::Always};
  if (traits_of(trained).has_flat_parameters && !trained.units.empty()) {
    reshard = trained.units.front().reshard_after_forward;
  }
  // TRL loads it on the CPU, and fully_shard moves what it wraps.
  if (wrap == OtherWrap::Root && plan.initialization == Initialization::Meta) {
    plan.initialization = Initialization::Cpu;
  }
  for (const Stack& stack : model.stacks) {
    if (wrap == OtherWrap::Root) break;
    for (const int call : stack.calls) {
      const int module = model.calls[static_cast<std::size_t>(call)].module;
      plan.units.push_back({{model.modules[static_cast<std::size_t>(module)].name}, reshard});
    }
  }
  plan.units.push_back({{""}, traits_of(trained).has_flat_parameters ? ReshardAfterForward{} : reshard});
  return plan;
}

Model held_model(const OtherModel& other, Model model) {
  for (Parameter& parameter : model.parameters) {
    if (!is_floating_point(parameter.dtype)) continue;
    parameter.trainable = true;
    if (other.dtype) parameter.dtype = *other.dtype;
  }
  for (Block& block : model.blocks) {
    for (Op& op : block.ops) {
      if (op.kind == OpKind::Dropout || op.kind == OpKind::Attention) op.attributes.probability = 0;
    }
  }
  derive_gradient_flow(model);
  return model;
}

void place_other_models(Schedule& schedule, const Plan& plan) {
  if (plan.also.empty()) return;
  std::vector<Instruction> steps;
  bool is_forward = false;
  int micro_batch = 0;
  const auto run = [&](OtherTurn turn) {
    for (std::size_t i = 0; i < plan.also.size(); ++i) {
      if (plan.also[i].turn != turn) continue;
      steps.push_back({.kind = InstructionKind::RunOther,
                       .phase = StepPhase::Forward,
                       .micro_batch = micro_batch,
                       .part = static_cast<int>(i)});
    }
  };
  const std::vector<Instruction>& all = schedule.instructions;
  for (std::size_t begin = 0; begin < all.size();) {
    const Action action = action_at(all, begin);
    const Instruction& main = all[action.main];
    if (is_forward && main.phase != StepPhase::Forward) {
      run(OtherTurn::After);
      is_forward = false;
    }
    steps.insert(steps.end(), all.begin() + static_cast<std::ptrdiff_t>(action.begin),
                 all.begin() + static_cast<std::ptrdiff_t>(action.end));
    begin = action.end;
    if (main.kind != InstructionKind::LoadInputs) continue;
    is_forward = true;
    micro_batch = main.micro_batch;
    run(OtherTurn::Before);
  }
  schedule.instructions = std::move(steps);
}

Errors other_models_misfits(const Plan& plan, const Model& model) {
  Errors errors;
  if (plan.also.empty() && model.beside.empty()) return errors;
  if (plan.also.size() > kMostOtherModels) {
    errors.push_back({std::string(kPlaceOfOthers), fmt::format("There are {} other models.", plan.also.size()),
                      fmt::format("At most {} are predicted beside the trained one.", kMostOtherModels)});
    return errors;
  }
  if (plan.also.size() != model.beside.size()) {
    errors.push_back({std::string(kPlaceOfOthers), "The model was built without the other models of the plan.", ""});
    return errors;
  }
  check_other_framework(plan, model, errors);
  for (std::size_t i = 0; i < plan.also.size(); ++i) check_held(plan, i, errors);
  for (const Model& other : model.beside) check_built(model, other, errors);
  return errors;
}

Errors check_other_models(const Plan& plan, const Model& model) {
  Errors errors = other_models_misfits(plan, model);
  if (!errors.empty()) return errors;
  for (std::size_t i = 0; i < plan.also.size(); ++i) {
    const Model held = held_model(plan.also[i], model.beside[i]);
    for (Error& error : check(plan_of_other(plan.also[i], held, plan), held)) {
      errors.push_back(
          {std::string(kPlaceOfOthers), fmt::format("{}: {}", held.name, error.what), std::move(error.hint)});
    }
  }
  return errors;
}

}  // namespace fsdp
