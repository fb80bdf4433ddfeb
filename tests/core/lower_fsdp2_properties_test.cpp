// What holds for every schedule, on random small models and plans.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/frameworks/fsdp2/lower_fsdp2.h"
#include "core/frameworks/layout.h"
#include "core/plan/schedule.h"
#include "tests/support/collective_models.h"

namespace fsdp {
namespace {

using Kind = ReshardAfterForward::Kind;

constexpr int kRanks = 8;

Model any_model() {
  Model model;
  if (*rc::gen::arbitrary<bool>()) {
    const int blocks = *rc::gen::inRange(1, 5);
    Words sizes = {{"blocks", ""}, {"reuse", std::to_string(*rc::gen::inRange(1, 4))}};
    for (int b = 0; b < blocks; ++b) {
      sizes["blocks"] += (b == 0 ? "9," : ";9,") + std::to_string(*rc::gen::inRange(1, 20)) + ",9";
    }
    if (*rc::gen::arbitrary<bool>()) sizes["in"] = "6";
    if (*rc::gen::arbitrary<bool>()) sizes["out"] = "5";
    model = collective_model("mlp", sizes, Dtype::Float32);
  } else {
    const std::string layers = std::to_string(*rc::gen::inRange(1, 4));
    const std::string kind = *rc::gen::element<std::string>("llama", "t5");
    const Words sizes = {{"hidden", "32"},   {"layers", layers}, {"heads", "2"},  {"kv_heads", "1"},
                         {"head_dim", "16"}, {"ffn", "70"},      {"vocab", "99"}, {"tied", "1"}};
    model = collective_model(kind, sizes, Dtype::Float32);
  }
  for (Parameter& parameter : model.parameters)
    parameter.trainable = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
  derive_gradient_flow(model);
  return model;
}

bool holds_a_tie(const Model& model, const std::string& module) {
  return std::any_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& parameter) {
    return !parameter.tied_names.empty() &&
           (parameter.name.starts_with(module + ".") || parameter.tied_names[0].starts_with(module + "."));
  });
}

ReshardAfterForward any_reshard() {
  const std::vector<ReshardAfterForward> all = {
      {Kind::Default, 0}, {Kind::Always, 0}, {Kind::Never, 0}, {Kind::Smaller, 2}, {Kind::Smaller, 4}};
  return *rc::gen::elementOf(all);
}

/// Any modules as units of their own, children before parents.
Plan any_plan_for(const Model& model) {
  Plan plan;
  plan.mesh = {*rc::gen::inRange(1, 3), kRanks};
  for (std::size_t m = model.modules.size(); m-- > 1;) {
    const Module& module = model.modules[m];
    const bool container = module.class_name == "ModuleList" || !module.called;
    if (container || holds_a_tie(model, module.name) || *rc::gen::weightedElement<bool>({{2, true}, {1, false}}))
      continue;
    plan.units.push_back({{module.name}, any_reshard()});
  }
  plan.units.push_back({{""}, any_reshard()});
  plan.accumulation = *rc::gen::inRange(1, 4);
  plan.sync_every_micro_batch = *rc::gen::arbitrary<bool>();
  plan.forward_prefetch = *rc::gen::inRange(0, 4);
  plan.backward_prefetch = *rc::gen::inRange(1, 4);
  for (const Call& call : model.calls) {
    if (!call.repeated || *rc::gen::arbitrary<bool>()) continue;
    plan.checkpointing.entries.push_back({model.modules[call.module].name, CheckpointMode::Full});
  }
  return plan;
}

/// What a counterexample is.
std::string describe(const Model& model, const Plan& plan) {
  std::string text = fmt::format("{}, {} calls, {} micro-batches, sync {}, prefetch {} and {}, {} checkpointed; units",
                                 model.name, model.calls.size(), plan.accumulation, plan.sync_every_micro_batch,
                                 plan.forward_prefetch, plan.backward_prefetch, plan.checkpointing.entries.size());
  for (const Unit& unit : plan.units) {
    text += fmt::format(" \"{}\" {}", unit.modules[0], static_cast<int>(unit.reshard_after_forward.kind));
  }
  text += "; frozen";
  for (const Parameter& parameter : model.parameters) text += parameter.trainable ? "" : " " + parameter.name;
  return text;
}

std::int64_t gathered_elements(const Schedule& schedule, const Layout& layout) {
  std::int64_t sum = 0;
  for (const Instruction& step : schedule.instructions) {
    if (step.kind == InstructionKind::Unshard) sum += layout.units[step.unit].full_elements;
  }
  return sum;
}

RC_GTEST_PROP(LowerFsdp2Properties, EveryScheduleIsValid, ()) {
  const Model model = any_model();
  const Plan plan = any_plan_for(model);
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  RC_ASSERT(layout.has_value());
  const Errors errors = validate(lower_fsdp2(index, plan, *layout), index, *layout);
  if (!errors.empty()) RC_FAIL(to_string(errors.front()) + "\n" + describe(model, plan));
}

bool complains(const Schedule& schedule, const ModelIndex& index, const Layout& layout, std::string_view what) {
  const Errors errors = validate(schedule, index, layout);
  return std::any_of(errors.begin(), errors.end(),
                     [&](const Error& error) { return error.what.find(what) != std::string::npos; });
}

RC_GTEST_PROP(LowerFsdp2Properties, RepeatedOrMissingFreeIsAlwaysFound, ()) {
  const Model model = any_model();
  Plan plan = any_plan_for(model);
  plan.runtime.quirks.forward_all_gather_output_kept = *rc::gen::arbitrary<bool>();
  plan.runtime.quirks.all_reduce_output_kept = *rc::gen::arbitrary<bool>();
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  RC_ASSERT(layout.has_value());
  const Schedule good = lower_fsdp2(index, plan, *layout);
  RC_ASSERT(validate(good, index, *layout).empty());
  std::vector<std::ptrdiff_t> frees;
  for (std::size_t i = 0; i < good.instructions.size(); ++i) {
    if (good.instructions[i].kind == InstructionKind::Free) frees.push_back(static_cast<std::ptrdiff_t>(i));
  }
  RC_PRE(!frees.empty());
  const std::ptrdiff_t at = *rc::gen::elementOf(frees);
  const Instruction free = good.instructions[at];

  Schedule twice = good;
  twice.instructions.insert(twice.instructions.begin() + at, free);
  RC_ASSERT(complains(twice, index, *layout, "is freed twice."));

  // Left out it is missed at the end, or where the buffer is made the next time.
  Schedule never = good;
  never.instructions.erase(never.instructions.begin() + at);
  RC_ASSERT(complains(never, index, *layout, "is never freed.") ||
            complains(never, index, *layout, "is made while it is still there."));

  // Before what has made it.
  const auto makes = [&](const Instruction& step) {
    const bool gathers = free.buffer == BufferKind::AllGatherOutput;
    return step.unit == free.unit && step.slot == free.slot &&
           step.kind == (gathers ? InstructionKind::Unshard : InstructionKind::ReduceGrads);
  };
  Schedule early = never;
  const auto made = std::find_if(early.instructions.rend() - at, early.instructions.rend(), makes);
  RC_ASSERT(made != early.instructions.rend());
  Instruction begins = free;
  begins.ends_previous = false;
  early.instructions.insert(made.base() - 1, begins);
  RC_ASSERT(complains(early, index, *layout, "is freed before it is made.") ||
            complains(early, index, *layout, "is freed twice."));

  // Right after that, so that a gather is copied out of what is gone.
  Schedule gone = never;
  const auto again = std::find_if(gone.instructions.rend() - at, gone.instructions.rend(), makes).base();
  const bool is_copied = std::any_of(again, gone.instructions.begin() + at, [&](const Instruction& step) {
    return free.buffer == BufferKind::AllGatherOutput && step.kind == InstructionKind::WaitForUnshard &&
           step.unit == free.unit && step.slot == free.slot;
  });
  gone.instructions.insert(again, begins);
  RC_ASSERT(complains(gone, index, *layout, "is used after it was freed.") == is_copied);
}

RC_GTEST_PROP(LowerFsdp2Properties, EveryParameterIsInOneUnitAndNoElementIsLost, ()) {
  const Model model = any_model();
  const Plan plan = any_plan_for(model);
  const ModelIndex index = index_of(model);
  std::int64_t held = 0;
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    const auto layout = make_layout(index, plan, rank);
    RC_ASSERT(layout.has_value());
    std::size_t parameters = 0;
    for (const ShardedUnit& unit : layout->units) {
      parameters += unit.parameters.size();
      RC_ASSERT(unit.full_elements >= unit.true_elements);
      RC_ASSERT(unit.full_elements == kRanks * unit.shard_elements);
      for (const ShardedParameter& p : unit.parameters) {
        RC_ASSERT(p.local_elements <= p.shard_elements);
        held += p.local_elements;
      }
    }
    RC_ASSERT(parameters == model.parameters.size());
  }
  RC_ASSERT(held == num_parameters(model));
}

RC_GTEST_PROP(LowerFsdp2Properties, ReshardingNeverGathersLess, ()) {
  const Model model = any_model();
  Plan plan = any_plan_for(model);
  const ModelIndex index = index_of(model);
  const auto gathered_with = [&](ReshardAfterForward reshard) {
    for (Unit& unit : plan.units) unit.reshard_after_forward = reshard;
    const auto layout = make_layout(index, plan);
    RC_ASSERT(layout.has_value());
    return gathered_elements(lower_fsdp2(index, plan, *layout), *layout);
  };
  RC_ASSERT(gathered_with({Kind::Always, 0}) >= gathered_with({Kind::Never, 0}));
}

RC_GTEST_PROP(LowerFsdp2Properties, MicroBatchesWithSyncAreEqual, ()) {
  const Model model = any_model();
  Plan plan = any_plan_for(model);
  plan.sync_every_micro_batch = true;
  const ModelIndex index = index_of(model);
  const auto layout = make_layout(index, plan);
  RC_ASSERT(layout.has_value());
  std::vector<std::vector<Instruction>> lists(static_cast<std::size_t>(plan.accumulation));
  for (Instruction step : lower_fsdp2(index, plan, *layout).instructions) {
    if (step.phase == StepPhase::Optimizer) continue;
    auto& list = lists[step.micro_batch];
    step.micro_batch = 0;
    list.push_back(step);
  }
  for (const auto& list : lists) {
    if (list != lists.front()) RC_FAIL(describe(model, plan));
  }
}

}  // namespace
}  // namespace fsdp
