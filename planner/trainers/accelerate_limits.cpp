// The limits of accelerate's FSDP2, and those that transformers' Trainer adds. The same code shards for both.
//
// Every unit is one module, chosen by its class or by its size (fsdp2_prepare_auto_wrap_policy), and gets the same
// arguments (fsdp2_prepare_model). Up to 1.13 the root does, too: if units are resharded, backward gathers the root
// again. Since 1.14 there are units beside those of the policy (planner/trainers/accelerate_ends.h): the embedding, and
// norm and head together, which stay gathered; and the root uses FSDP2's default. `mixed_precision` is one option for
// all dtypes (accelerate_precision_limits.cpp). fsdp_activation_checkpointing wraps the units, or up to
// 1.13 their children one by one (fsdp2_apply_ac), and leaves on the cache of keys and values, which such a block would
// fill twice. So we checkpoint whole blocks by transformers' gradient_checkpointing_enable, which checkpoints all of
// them.
//
// For FSDP1 (fsdp_version 1, accelerator.py prepare_model) it has options for the strategy and the prefetches, but not
// for limit_all_gathers. transformer_auto_wrap_policy chooses by class; PyTorch's policy by size differs from
// accelerate's own. planner/space/chosen_precision.cpp has its precision.
// HYBRID_SHARD gets no mesh, so PyTorch shards it over the GPUs of a node.

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/frameworks/fsdp1/flat_units.h"
#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/rewrap.h"
#include "planner/trainers/accelerate_ends.h"
#include "planner/trainers/trainer_limits.h"

namespace fsdp::planner {

namespace {

bool is_resharded(const Unit& unit) {
  switch (unit.reshard_after_forward.kind) {
    case ReshardAfterForward::Kind::Default:
      return !is_root(unit);
    case ReshardAfterForward::Kind::Always:
    case ReshardAfterForward::Kind::Smaller:
      return true;
    case ReshardAfterForward::Kind::Never:
      return false;
  }
  return false;
}

/// [num_modules] The elements of the parameters below each module, under any of their names.
std::vector<std::int64_t> elements_of_modules(const Model& model) {
  // A model of experts has tens of thousands of names, and few of them are tied.
  std::unordered_map<std::string_view, int> by_name;
  const bool has_ties = std::any_of(model.parameters.begin(), model.parameters.end(),
                                    [](const Parameter& parameter) { return !parameter.tied_names.empty(); });
  for (std::size_t m = 0; has_ties && m < model.modules.size(); ++m) {
    by_name.emplace(model.modules[m].name, static_cast<int>(m));
  }
  std::vector<std::int64_t> elements(model.modules.size(), 0);
  std::vector<const Parameter*> last(model.modules.size(), nullptr);
  const auto count = [&](const Parameter& parameter, int module) {
    for (; module >= 0 && last[module] != &parameter; module = model.modules[module].parent) {
      last[module] = &parameter;
      elements[module] += num_elements(parameter.shape);
    }
  };
  for (const Parameter& parameter : model.parameters) {
    count(parameter, parameter.module);
    for (const std::string& name : parameter.tied_names) {
      const std::size_t dot = name.rfind('.');
      const auto owner = by_name.find(std::string_view(name).substr(0, dot == std::string::npos ? 0 : dot));
      if (owner != by_name.end()) count(parameter, owner->second);
    }
  }
  return elements;
}

/// The ends for a release. Empty if the release makes no units of them.
AccelerateEnds ends_of(bool has_units_of_ends, const Model& model) {
  return has_units_of_ends ? accelerate_ends_of(model) : AccelerateEnds{};
}

bool is_tail(const Unit& unit, const AccelerateEnds& ends) {
  return !ends.tail.empty() && unit.modules == ends.tail;
}

/// The units that a policy must choose. nullopt if a unit has several modules, or if one of the ends is missing.
struct Chosen {
  std::set<std::string> modules;
  std::set<std::string> either;  ///< Units whether or not a policy chooses them.
};

std::optional<Chosen> chosen_units(const Plan& plan, const AccelerateEnds& ends) {
  Chosen chosen;
  bool has_tail = ends.tail.empty();
  for (const Unit& unit : plan.units) {
    if (is_tail(unit, ends)) {
      has_tail = true;
      continue;
    }
    if (unit.modules.size() != 1) return std::nullopt;
    if (!is_root(unit)) chosen.modules.insert(unit.modules.front());
  }
  if (!has_tail) return std::nullopt;
  if (ends.embedding.empty()) return chosen;
  if (chosen.modules.erase(ends.embedding) == 0) return std::nullopt;
  chosen.either.insert(ends.embedding);
  return chosen;
}

/// A module of a unit's class that is not a unit. Empty if there is none.
std::string left_out_by_class(const Model& model, const Chosen& chosen, std::vector<std::string>* classes) {
  std::set<std::string> wanted;
  for (const Module& module : model.modules) {
    if (chosen.modules.contains(module.name) && wanted.insert(module.class_name).second) {
      classes->push_back(module.class_name);
    }
  }
  for (const Module& module : model.modules) {
    const bool is_unit = chosen.modules.contains(module.name) || chosen.either.contains(module.name);
    if (module.parent >= 0 && wanted.contains(module.class_name) && !is_unit) return module.name;
  }
  return {};
}

/// A number such that exactly the units have more parameters. nullopt if there is none.
std::optional<std::int64_t> size_of_units(const Model& model, const Chosen& chosen) {
  std::int64_t smallest_unit = -1;
  std::int64_t largest_other = 0;
  const std::vector<std::int64_t> elements = elements_of_modules(model);
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (model.modules[m].parent < 0 || chosen.either.contains(model.modules[m].name)) continue;
    if (!chosen.modules.contains(model.modules[m].name)) {
      largest_other = std::max(largest_other, elements[m]);
    } else if (smallest_unit < 0 || elements[m] < smallest_unit) {
      smallest_unit = elements[m];
    }
  }
  // The plugin reads 0 as no policy at all.
  if (smallest_unit <= std::max<std::int64_t>(largest_other, 1)) return std::nullopt;
  return std::max<std::int64_t>(largest_other, 1);
}

/// A list of classes separates them by commas.
bool has_comma(const std::vector<std::string>& classes) {
  return std::any_of(classes.begin(), classes.end(),
                     [](const std::string& name) { return name.find(',') != std::string::npos; });
}

std::optional<WrapPolicy> policy_of(const Plan& plan, const Model& model, const AccelerateEnds& ends) {
  const std::optional<Chosen> chosen = chosen_units(plan, ends);
  if (!chosen) return std::nullopt;
  WrapPolicy policy;
  if (chosen->modules.empty()) return policy;
  if (left_out_by_class(model, *chosen, &policy.classes).empty() && !has_comma(policy.classes)) return policy;
  policy.classes.clear();
  policy.more_than = size_of_units(model, *chosen);
  if (!policy.more_than) return std::nullopt;
  return policy;
}

/// "Embedding \"model.embed_tokens\" is a unit, and \"model.norm\" and \"lm_head\" are one"
std::string described(const AccelerateEnds& ends) {
  std::string tail;
  for (const std::string& name : ends.tail) tail += fmt::format("{}\"{}\"", tail.empty() ? "" : ", ", name);
  if (ends.embedding.empty()) return fmt::format("accelerate makes one unit of {}.", tail);
  if (ends.tail.empty()) return fmt::format("accelerate makes a unit of \"{}\".", ends.embedding);
  return fmt::format("accelerate makes a unit of \"{}\", and one of {}.", ends.embedding, tail);
}

bool has_ends_of(const Plan& plan, const AccelerateEnds& ends) {
  const auto is_embedding = [&](const Unit& unit) {
    return unit.modules.size() == 1 && unit.modules.front() == ends.embedding;
  };
  const auto is_one_tail = [&](const Unit& unit) { return is_tail(unit, ends); };
  return (ends.embedding.empty() || std::any_of(plan.units.begin(), plan.units.end(), is_embedding)) &&
         (ends.tail.empty() || std::any_of(plan.units.begin(), plan.units.end(), is_one_tail));
}

std::optional<Error> units_beside(const Plan& plan, const Model& model, const AccelerateEnds& ends) {
  if (policy_of(plan, model, ends)) return std::nullopt;
  if (!has_ends_of(plan, ends)) return Error{"/units", described(ends), "Plan with --for accelerate."};
  const std::string hint = "Plan with --wrap blocks --wrap-ends no.";
  for (const Unit& unit : plan.units) {
    if (unit.modules.size() == 1 || is_tail(unit, ends)) continue;
    return Error{"/units",
                 fmt::format("A unit has {} modules, \"{}\" and more; each unit of accelerate is one module.",
                             unit.modules.size(), unit.modules.front()),
                 hint};
  }
  std::vector<std::string> classes;
  const std::string left_out = left_out_by_class(model, *chosen_units(plan, ends), &classes);
  if (left_out.empty())
    return Error{"/units", "A class has a comma in its name; accelerate lists them with commas.", ""};
  return Error{
      "/units",
      fmt::format("\"{}\" is not a unit but shares its class with one; accelerate chooses units by class.", left_out),
      hint};
}

/// A parameter of the ends that also has a name outside their unit: two units cannot share it.
std::optional<Error> tie_beyond_ends(const Plan&, const Model& model) {
  const AccelerateEnds ends = accelerate_ends_of(model);
  for (const std::vector<std::string>& unit : {ends.tail, std::vector<std::string>{ends.embedding}}) {
    const auto is_in_unit = [&](const std::string& name) {
      return std::any_of(unit.begin(), unit.end(),
                         [&](const std::string& module) { return !module.empty() && is_inside(name, module); });
    };
    for (const Parameter& parameter : model.parameters) {
      if (parameter.tied_names.empty()) continue;  // A parameter with one name is either inside or outside.
      std::vector<std::string> names = parameter.tied_names;
      names.push_back(parameter.name);
      const auto outside = std::partition(names.begin(), names.end(), is_in_unit);
      if (outside == names.begin() || outside == names.end()) continue;
      return Error{
          "/units",
          fmt::format("{} \"{}\" of it is also \"{}\" outside: PyTorch 2.13 refuses that, and up to 2.12 the two "
                      "are trained apart.",
                      described(ends), names.front(), *outside),
          "Plan for a release without such units, --trainer-version 1.12.0 of accelerate or 4.57.3 of "
          "transformers, or write --to fsdp2."};
    }
  }
  return std::nullopt;
}

std::optional<Error> other_units(const Plan& plan, const Model& model) {
  return units_beside(plan, model, {});
}

std::optional<Error> other_units_beside_ends(const Plan& plan, const Model& model) {
  return units_beside(plan, model, accelerate_ends_of(model));
}

/// Classes all of whose modules are units by themselves.
std::set<std::string> whole_classes(const Plan& plan, const Model& model) {
  std::set<std::string> units;
  for (const Unit& unit : plan.units) {
    if (unit.modules.size() == 1) units.insert(unit.modules.front());
  }
  std::set<std::string> whole;
  std::set<std::string> others;
  for (const Module& module : model.modules) {
    if (module.parent >= 0) (units.contains(module.name) ? whole : others).insert(module.class_name);
  }
  for (const std::string& name : others) whole.erase(name);
  return whole;
}

/// Keeps the units that a class chooses. If blocks were wrapped in another way, makes each block a unit. Adds the ends
/// as units.
void wrap_beside(Plan& plan, const Model& model, const AccelerateEnds& ends, bool root_is_as_units) {
  const std::set<std::string> classes = whole_classes(plan, model);
  std::set<std::string> blocks;
  for (const auto& stack : blocks_of(model)) blocks.insert(stack.begin(), stack.end());
  std::set<std::string> dropped;
  for (const Unit& unit : plan.units) dropped.insert(unit.modules.begin(), unit.modules.end());
  dropped.erase(ends.embedding);
  for (const std::string& name : ends.tail) dropped.erase(name);
  std::vector<std::string> names;
  for (const Module& module : model.modules) {
    if (dropped.contains(module.name) && classes.contains(module.class_name)) names.push_back(module.name);
  }
  for (const std::string& name : names) dropped.erase(name);
  // Units inside blocks divided a block's parameters, and the remaining ones do not.
  const bool is_block_dropped = std::any_of(blocks.begin(), blocks.end(), [&](const std::string& block) {
    return std::any_of(dropped.begin(), dropped.end(),
                       [&](const std::string& name) { return name == block || is_inside(name, block); });
  });
  if (is_block_dropped) {
    for (const Module& module : model.modules) {
      const bool is_there = std::find(names.begin(), names.end(), module.name) != names.end();
      if (blocks.contains(module.name) && !is_there) names.push_back(module.name);
    }
  }
  // A unit inside another one is sharded first.
  const auto depth = [](const std::string& name) { return std::count(name.begin(), name.end(), '.'); };
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return depth(a) > depth(b); });
  const ReshardAfterForward reshard = reshard_below_root(plan);
  plan.units.clear();
  if (!ends.embedding.empty()) plan.units.push_back({{ends.embedding}, reshard});
  for (std::string& name : names) plan.units.push_back({{std::move(name)}, reshard});
  if (!ends.tail.empty()) plan.units.push_back({ends.tail, {ReshardAfterForward::Kind::Never, 0}});
  plan.units.push_back({{""}, root_is_as_units ? reshard : ReshardAfterForward{}});
}

void wrap_by_class(Plan& plan, const Model& model) {
  wrap_beside(plan, model, {}, true);
}

void wrap_beside_ends(Plan& plan, const Model& model) {
  wrap_beside(plan, model, accelerate_ends_of(model), false);
}

/// For a release that treats root and tail like the units.
std::optional<bool> reshard_of_every_unit(const Plan& plan) {
  std::set<bool> found;
  for (const Unit& unit : plan.units) {
    if (unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Smaller) return std::nullopt;
    found.insert(is_resharded(unit));
  }
  if (found.size() != 1) return std::nullopt;
  return *found.begin();
}

/// For a release whose root and tail stay gathered. If nothing else is a unit, any setting will do.
std::optional<bool> reshard_beside_ends(const Plan& plan, const AccelerateEnds& ends) {
  std::set<bool> found;
  for (const Unit& unit : plan.units) {
    if (unit.reshard_after_forward.kind == ReshardAfterForward::Kind::Smaller) return std::nullopt;
    if (!is_root(unit) && !is_tail(unit, ends)) {
      found.insert(is_resharded(unit));
    } else if (is_resharded(unit)) {
      return std::nullopt;
    }
  }
  if (found.size() == 2) return std::nullopt;
  return found.empty() || *found.begin();
}

std::optional<Error> mixed_reshard(const Plan& plan) {
  const std::string place = "/units/reshard_after_forward";
  std::set<bool> below;
  for (const Unit& unit : plan.units) {
    const ReshardAfterForward& reshard = unit.reshard_after_forward;
    if (reshard.kind == ReshardAfterForward::Kind::Smaller) {
      return Error{
          place, fmt::format("Units are resharded over {} ranks; accelerate knows true and false.", reshard.world_size),
          "Plan with --reshard true or --reshard false."};
    }
    if (!is_root(unit)) below.insert(is_resharded(unit));
  }
  if (below.size() < 2) return std::nullopt;
  return Error{place, "Some units are resharded after forward and others are not; accelerate treats all alike.",
               "Plan with --reshard true or --reshard false."};
}

std::optional<Error> other_reshard(const Plan& plan, const Model&) {
  if (reshard_of_every_unit(plan)) return std::nullopt;
  if (std::optional<Error> mixed = mixed_reshard(plan)) return mixed;
  return Error{"/units/reshard_after_forward",
               "The root's setting differs from the units below it; accelerate treats all alike, and gathers the root "
               "again in backward if they are resharded.",
               "Write the same for the root into the plan, or plan with --reshard false."};
}

std::optional<Error> other_reshard_beside_ends(const Plan& plan, const Model& model) {
  const AccelerateEnds ends = accelerate_ends_of(model);
  if (reshard_beside_ends(plan, ends)) return std::nullopt;
  Plan others = plan;
  std::erase_if(others.units, [&](const Unit& unit) { return is_tail(unit, ends); });
  if (std::optional<Error> mixed = mixed_reshard(others)) return mixed;
  return Error{"/units/reshard_after_forward",
               "The root, or the unit of norm and head, is resharded after forward; accelerate keeps them gathered.",
               "Plan with --for accelerate."};
}

void reshard_alike(Plan& plan, const Model&) {
  const bool is_any = std::any_of(plan.units.begin(), plan.units.end(),
                                  [](const Unit& unit) { return !is_root(unit) && is_resharded(unit); });
  for (Unit& unit : plan.units) {
    unit.reshard_after_forward = {is_any ? ReshardAfterForward::Kind::Always : ReshardAfterForward::Kind::Never, 0};
  }
}

void reshard_alike_beside_ends(Plan& plan, const Model& model) {
  const AccelerateEnds ends = accelerate_ends_of(model);
  const auto is_between = [&](const Unit& unit) { return !is_root(unit) && !is_tail(unit, ends); };
  const bool is_any = std::any_of(plan.units.begin(), plan.units.end(),
                                  [&](const Unit& unit) { return is_between(unit) && is_resharded(unit); });
  for (Unit& unit : plan.units) {
    const bool reshards = is_any && is_between(unit);
    unit.reshard_after_forward = {reshards ? ReshardAfterForward::Kind::Always : ReshardAfterForward::Kind::Never, 0};
    if (is_root(unit)) unit.reshard_after_forward = {};
  }
}

std::optional<Error> other_checkpointing(const Plan& plan, const Model& model) {
  const auto& entries = plan.checkpointing.entries;
  if (plan.checkpointing.has(CheckpointMode::Nested)) {
    return Error{"/activation_checkpointing",
                 "The modules of blocks are checkpoints inside of those of the blocks; transformers has the latter.",
                 "Plan with --activation-checkpointing full."};
  }
  if (plan.checkpointing.has(CheckpointMode::Reentrant)) {
    return Error{"/activation_checkpointing", "Checkpoints are reentrant; transformers' are not by default.",
                 "Plan with --activation-checkpointing full."};
  }
  if (plan.checkpointing.has(CheckpointMode::Selective)) {
    return Error{"/activation_checkpointing",
                 "Blocks keep the outputs of some ops; transformers recomputes whole blocks.",
                 "Plan with --activation-checkpointing full or none."};
  }
  if (!entries.empty() && !plan.checkpointing.early_stop) {
    return Error{"/activation_checkpointing/early_stop",
                 "Blocks are recomputed to their end; transformers stops at the last tensor that is needed.",
                 "Write true into the plan."};
  }
  return not_all_blocks(plan, model);
}

void checkpoint_as_transformers(Plan& plan, const Model& model) {
  plan.checkpointing.early_stop = true;
  checkpoint_all(plan, model);
}

std::optional<Error> other_code(const Plan& plan, const Model&) {
  if (!is_of_torchtitan(plan.runtime.flavor)) return std::nullopt;
  return Error{"/runtime/flavor", "The plan is for torchtitan's model code.", "Plan with --flavor transformers."};
}

std::optional<Error> gradient_sync(const Plan& plan, const Model&) {
  if (plan.accumulation == 1 || !plan.sync_every_micro_batch) return std::nullopt;
  return Error{"/sync_every_micro_batch",
               "Gradients are reduced after every micro-batch; the Trainer reduces them after the last one.",
               "Plan with --gradient-sync last."};
}

/// Classes that liger-kernel patches, among those that a spec can name (monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN).
/// The Trainer warns about others and trains them with PyTorch's loss.
constexpr std::string_view kPatchedByLiger[] = {
    "Gemma2ForCausalLM",  "GemmaForCausalLM", "LlamaForCausalLM",   "MistralForCausalLM", "MixtralForCausalLM",
    "Olmo2ForCausalLM",   "Phi3ForCausalLM",  "Qwen2ForCausalLM",   "Qwen3ForCausalLM",   "Qwen3MoeForCausalLM",
    "SmolLM3ForCausalLM", "Glm4ForCausalLM",  "GraniteForCausalLM",
};

/// transformers' models compute PyTorch's loss (loss/loss_utils.py), or the one of a library that TrainingArguments
/// name; a user's own loop on accelerate may compute another.
std::optional<Error> other_loss(const Plan& plan, const Model& model) {
  const Loss& loss = plan.runtime.implementations.loss;
  const LossRow& row = loss_row(loss);
  if (loss == Loss{}) return std::nullopt;
  constexpr std::string_view kPlace = "/runtime/implementations/loss";
  if (row.hugging_face.empty()) {
    return Error{std::string(kPlace), fmt::format("transformers' Trainer has no argument for {}.", row.title),
                 "Plan with --loss pytorch."};
  }
  const std::string& name = model.modules.front().class_name;
  if (std::find(std::begin(kPatchedByLiger), std::end(kPatchedByLiger), name) != std::end(kPatchedByLiger))
    return std::nullopt;
  return Error{std::string(kPlace), fmt::format("{} does not know the class {}.", row.library, name),
               "Plan with --loss pytorch."};
}

std::optional<Error> no_norm(const Plan& plan, const Model&) {
  if (plan.optimizer.clip_grad_norm) return std::nullopt;
  return Error{"/optimizer/clip_grad_norm",
               "The Trainer takes the norm of the gradients in every step, clipped or not.",
               "Plan with --clip-grad-norm 1, its default."};
}

/// A model that ends with the head and its loss in one is another one.
void compute_loss_of_transformers(Plan& plan, const Model&) {
  const Implementations usual;
  if (loss_row(plan.runtime.implementations.loss).takes_head) return;
  plan.runtime.implementations.loss = usual.loss;
  plan.runtime.implementations.upcast_logits = usual.upcast_logits;
}

// ---- FSDP1

std::optional<Error> other_flat_units(const Plan& plan, const Model& model) {
  const std::optional<WrapPolicy> policy = policy_of(plan, model, {});
  if (!policy) return other_units(plan, model);
  if (!policy->more_than) return std::nullopt;
  return Error{"/units",
               "accelerate chooses FSDP1's units by class, and a module that is none has the class of a unit.",
               "Plan with --wrap blocks --wrap-ends no."};
}

std::optional<Error> hybrid_groups(const Plan& plan, const Model&) {
  if (plan.mesh.dp_replicate() == 1 || plan.mesh.dp_shard() == 1) return std::nullopt;
  return Error{"/mesh",
               fmt::format("Copies are sharded over {} GPUs; accelerate tells FSDP1 of no mesh, which shards them over "
                           "the GPUs of a node.",
                           plan.mesh.dp_shard()),
               "Plan with --strategy FULL_SHARD, or write --to fsdp1."};
}

std::optional<Error> unlimited_gathers(const Plan& plan, const Model&) {
  if (plan.fsdp1.limit_all_gathers) return std::nullopt;
  return Error{"/fsdp1/limit_all_gathers", "accelerate's configuration has no key for it, and limits them.",
               "Write true into the plan, or --to fsdp1."};
}

constexpr Limit kLimitsOfAccelerateFsdp1[] = {
    {other_flat_units, wrap_by_class},
    {other_flat_precision, mix_flat_units},
    {hybrid_groups, shard_over_all},
    {unlimited_gathers, [](Plan& plan, const Model&) { plan.fsdp1.limit_all_gathers = true; }},
    {other_checkpointing, checkpoint_as_transformers},
    {other_code, nullptr},
};

constexpr Limit kLimitsOfAccelerate[] = {
    {[](const Plan& plan, const Model&) { return not_sharded(plan, "accelerate"); }, shard_over_all},
    {tie_beyond_ends, nullptr, true},
    {other_units_beside_ends, wrap_beside_ends},
    {other_reshard_beside_ends, reshard_alike_beside_ends},
    {other_precision, mix_units_alike},
    {other_checkpointing, checkpoint_as_transformers},
    {other_code, nullptr},
};
/// The same for releases before units of the ends.
constexpr Limit kLimitsOfAccelerateWithoutEnds[] = {
    kLimitsOfAccelerate[0], {other_units, wrap_by_class}, {other_reshard, reshard_alike}, {frozen_upcast, nullptr},
    kLimitsOfAccelerate[4], kLimitsOfAccelerate[5],       kLimitsOfAccelerate[6],
};
constexpr Limit kLimitsOfTransformersLoop[] = {
    {gradient_sync, [](Plan& plan, const Model&) { plan.sync_every_micro_batch = false; }},
    {other_loss, compute_loss_of_transformers},
    {no_norm, [](Plan& plan, const Model&) { plan.optimizer.clip_grad_norm = 1.0; }},
};

}  // namespace

std::optional<WrapPolicy> wrap_policy_of(const TrainerRelease& release, const Plan& plan, const Model& model) {
  return policy_of(plan, model, ends_of(release.has_units_of_ends && !traits_of(plan).has_flat_parameters, model));
}

std::optional<bool> reshard_of_all(const TrainerRelease& release, const Plan& plan, const Model& model) {
  return release.has_units_of_ends ? reshard_beside_ends(plan, accelerate_ends_of(model)) : reshard_of_every_unit(plan);
}

std::span<const Limit> limits_of_accelerate(const TrainerRelease& release) {
  if (!release.has_units_of_ends) return kLimitsOfAccelerateWithoutEnds;
  return kLimitsOfAccelerate;
}

std::span<const Limit> limits_of_accelerate_fsdp1() {
  return kLimitsOfAccelerateFsdp1;
}

std::string_view flat_strategy_of(const Plan& plan) {
  if (plan.mesh.dp_shard() == 1) return "NO_SHARD";
  const bool frees = reshards_after_forward(plan);
  if (plan.mesh.dp_replicate() == 1) return frees ? "FULL_SHARD" : "SHARD_GRAD_OP";
  return frees ? "HYBRID_SHARD" : "_HYBRID_SHARD_ZERO2";
}

std::span<const Limit> limits_of_transformers_loop(const TrainerRelease& release) {
  std::span<const Limit> limits = kLimitsOfTransformersLoop;
  if (release.can_sync_each_batch) limits = limits.subspan(1);
  return release.takes_norms ? limits : limits.first(limits.size() - 1);
}

}  // namespace fsdp::planner
