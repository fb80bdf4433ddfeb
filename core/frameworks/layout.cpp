// How FSDP2 forms units and cuts parameters.
//
// fully_shard(m) makes one unit of all parameters in m's subtree that no earlier call has taken; calls go bottom-up. So
// the unit of a parameter is that of its nearest wrapped ancestor. Inside a unit the parameters are in post-order
// (children in order of registration, then the module's own).
//
// A parameter of d rows is cut along dimension 0 into N chunks of c = ceil(d / N) rows: rank k holds the rows
// [k c, min((k+1) c, d)), trailing ranks perhaps none, and every rank allocates all c rows, zero-filled. Hence
//
//   S_u = sum over parameters of ceil(d / N) * row elements     (per rank)
//   F_u = N * S_u                                               (what an all-gather gives)
//
// Under expert parallelism a unit of experts has the rank's own ones, and N is the number of ranks with the same.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_init.py (_get_managed_modules, _get_managed_states),
// _fsdp_param.py (_init_sharded_param), _fsdp_param_group.py (dtypes, _get_param_module_infos).
//
// Not modeled: shard_placement_fn (sharding along another dimension).

#include "core/frameworks/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/nearest.h"
#include "core/frameworks/expert_parallel.h"
#include "core/frameworks/frameworks.h"
#include "core/frameworks/fsdp1/flat_units.h"
#include "core/frameworks/zero/zero_partition.h"
#include "core/model/experts.h"
#include "core/plan/expert_parallel.h"
#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "core/plan/parameter_part.h"
#include "core/plan/unit_boundaries.h"
#include "core/plan/unit_windows.h"

namespace fsdp {

namespace {

class LayoutMaker {
 public:
  LayoutMaker(const ModelIndex& index, const Plan& plan, std::int64_t rank)
      : index_(index),
        model_(*index.model),
        plan_(plan),
        traits_(traits_of(plan)),
        rules_(rules_of(plan)),
        shard_(traits_.mesh == MeshRule::AllShards ? 1 : plan.mesh.dp_shard()) {
    layout_.mesh = plan.mesh;
    layout_.rank = rank;
    if (!traits_.has_flat_parameters) return;
    layout_.flat = plan.fsdp1.use_orig_params ? FlatParameters::Views : FlatParameters::Whole;
  }

  Result<Layout> make() {
    check_sizes();
    if (rules_.check != nullptr) append(errors_, rules_.check(plan_, model_));
    if (auto misfit = expert_misfit(plan_, model_, plan_.mesh, plan_.cpu_offload)) {
      errors_.push_back(*std::move(misfit));
    }
    find_modules();
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    if (traits_.predicts_passes) check_models_of_passes();
    assign_parameters();
    if (plan_.mesh.ep > 1) append(errors_, note_experts(layout_, index_));
    check_ties();
    if (loss_row(plan_.runtime.implementations.loss).calls_head) find_unit_of_loss();
    for (std::size_t u = 0; u < layout_.units.size(); ++u) {
      const std::string where = fmt::format("units/{}", u);
      layout_.units[u].shards = layout_.units[u].of_experts ? plan_.mesh.expert_shard() : shard_;
      if (traits_.has_flat_parameters) {
        choose_dtypes(layout_.units[u]);
        append(errors_, flatten(layout_.units[u], layout_, plan_, model_, where));
        continue;
      }
      if (traits_.wraps_units) check_dtypes(layout_.units[u], where);
      measure(layout_.units[u]);
    }
    const bool completes_partial = traits_.has_dtensors && plan_.runtime.quirks.completes_partial_units;
    for (ShardedUnit& unit : layout_.units) unit.windows = windows_of(unit, index_, completes_partial);
    check_units(layout_);
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    layout_.is_replicated = !traits_.wraps_units;
    if (traits_.wraps_units) layout_.hooks = hook_order(layout_);
    if (rules_.finish != nullptr) rules_.finish(layout_, index_, plan_);
    return std::move(layout_);
  }

  Errors reshard(Layout& layout) {
    check_sizes();
    if (rules_.check != nullptr) append(errors_, rules_.check(plan_, model_));
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      resolve_reshard(plan_.units[u].reshard_after_forward, u, layout.units[u]);
    }
    layout.mesh = plan_.mesh;
    check_units(layout);
    return std::move(errors_);
  }

 private:
  void wrong(std::string where, std::string what, std::string hint) {
    errors_.push_back({std::move(where), std::move(what), std::move(hint)});
  }

  void check_units(const Layout& layout) {
    if (rules_.check_units != nullptr && errors_.empty()) append(errors_, rules_.check_units(layout, plan_, index_));
  }

  void check_sizes() {
    if (plan_.mesh.dp_replicate() < 1 || shard_ < 1) {
      wrong("mesh", fmt::format("{} x {} is not a mesh.", plan_.mesh.dp_replicate(), shard_),
            "Write sizes of at least 1.");
    }
    if (plan_.accumulation < 1) {
      wrong("accumulation", fmt::format("A step needs at least one micro-batch, not {}.", plan_.accumulation),
            "Write 1 or more.");
    }
    if (plan_.accumulation > kMostMicroBatches) {
      wrong("accumulation", fmt::format("{} micro-batches are too many for one step.", plan_.accumulation),
            fmt::format("Up to {} are predicted.", kMostMicroBatches));
    }
    if (plan_.backward_prefetch < 1 || plan_.forward_prefetch < 0) {
      wrong("prefetch",
            fmt::format("forward {} and backward {} cannot be set in FSDP2.", plan_.forward_prefetch,
                        plan_.backward_prefetch),
            "Forward takes 0 or more units; backward 1 (the default) or more.");
    }
  }

  void find_modules() {
    owner_of_module_.assign(model_.modules.size(), -1);
    layout_.units.resize(plan_.units.size());
    bool has_root = false;
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      const Unit& from = plan_.units[u];
      ShardedUnit& unit = layout_.units[u];
      const std::string where = fmt::format("units/{}", u);
      if (from.modules.empty()) wrong(where, "The unit has no modules.", "Name at least one.");
      for (const std::string& name : from.modules) add_module(name, from, static_cast<int>(u), where, unit);
      if (unit.modules.empty()) continue;
      unit.name = model_.modules[unit.modules.front()].name;
      unit.is_root = unit.modules.front() == 0;
      has_root = has_root || unit.is_root;
      resolve_reshard(from.reshard_after_forward, u, unit);
    }
    if (!has_root) wrong("units", "No unit wraps the root module.", "Add a unit with the module \"\" as the last one.");
    if (has_root && !layout_.units.empty() && !layout_.units.back().is_root) {
      wrong("units", "The root is not the last unit.", "fully_shard is called bottom-up: put the root last.");
    }
  }

  /// Whether one of its modules is entered through its own forward: then the unit is gathered.
  bool is_entered(const Unit& unit) const {
    return std::any_of(unit.modules.begin(), unit.modules.end(), [&](const std::string& name) {
      const int module = index_.find(name);
      return module >= 0 && model_.modules[module].called;
    });
  }

  void add_module(const std::string& name, const Unit& from, int u, const std::string& where, ShardedUnit& unit) {
    const int module = index_.find(name);
    if (module < 0) {
      std::vector<std::string> known;
      for (const Module& candidate : model_.modules) known.push_back(candidate.name);
      wrong(where, fmt::format("The model has no module \"{}\".", name), suggest_name(name, known));
      return;
    }
    if (!model_.modules[module].called && module != 0 && !is_entered(from)) {
      wrong(where,
            fmt::format("\"{}\" is never entered through its own forward, so FSDP2 would never gather it.", name),
            "Wrap the modules below it, or leave them to the root.");
      return;
    }
    if (owner_of_module_[module] >= 0) {
      wrong(where, fmt::format("\"{}\" is in two units.", name), "Name it once.");
      return;
    }
    for (const int other : unit.modules) {
      if (index_.contains(other, module) || index_.contains(module, other)) {
        wrong(where, fmt::format("\"{}\" and \"{}\" are nested.", model_.modules[other].name, name),
              "A unit of several modules takes modules that do not contain each other.");
        return;
      }
    }
    for (int above = model_.modules[module].parent; above > 0; above = model_.modules[above].parent) {
      if (owner_of_module_[above] < 0 || owner_of_module_[above] == u) continue;
      wrong(where,
            fmt::format("\"{}\" is inside \"{}\", which an earlier unit wraps.", name, model_.modules[above].name),
            "fully_shard is called bottom-up: put the inner unit first.");
      return;
    }
    owner_of_module_[module] = u;
    unit.modules.push_back(module);
  }

  void resolve_reshard(const ReshardAfterForward& from, std::size_t u, ShardedUnit& unit) {
    using Kind = ReshardAfterForward::Kind;
    unit.reshard = from;
    if (traits_.has_flat_parameters) {
      unit.reshard = {unit.is_root || !reshards_after_forward(plan_) ? Kind::Never : Kind::Always, 0};
      return;
    }
    // A model of a step of passes is for FSDP2 a root by itself.
    const bool is_first = unit.is_root || is_model_of_passes(model_, unit.modules.front());
    if (from.kind == Kind::Default) unit.reshard.kind = is_first ? Kind::Never : Kind::Always;
    if (from.kind != Kind::Smaller) return;
    const std::int64_t size = from.world_size;
    if (size < 1 || shard_ % size != 0) {
      wrong(fmt::format("units/{}", u),
            fmt::format("reshard_after_forward {} does not divide the shard world size {}.", size, shard_),
            "Write a divisor of it, true or false.");
    } else if (size == 1) {
      unit.reshard = {Kind::Never, 0};
    } else if (size == shard_) {
      unit.reshard = {Kind::Always, 0};
    }
  }

  // The module that holds them is none that FSDP2 knows.
  void check_models_of_passes() {
    if (!has_passes(model_)) return;
    for (const int root : roots_of(model_)) {
      const bool is_unit = std::any_of(layout_.units.begin(), layout_.units.end(),
                                       [&](const ShardedUnit& unit) { return unit.modules == std::vector<int>{root}; });
      if (is_unit) continue;
      const std::string& name = model_.modules[static_cast<std::size_t>(root)].name;
      wrong("units", fmt::format("\"{}\" is a model by itself, which the script trains by turns with others.", name),
            fmt::format("Add a unit with the module \"{}\" after those inside it.", name));
    }
  }

  void assign_parameters() {
    for (std::size_t m = 1; m < model_.modules.size(); ++m) {
      if (owner_of_module_[m] < 0) owner_of_module_[m] = owner_of_module_[model_.modules[m].parent];
    }
    layout_.unit_of_parameter.assign(model_.parameters.size(), -1);
    layout_.parameter_dtype.resize(model_.parameters.size());
    for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
      const Parameter& parameter = model_.parameters[p];
      layout_.parameter_dtype[p] = dtype_of(parameter);
    }
    for (std::size_t u = 0; u < layout_.units.size(); ++u) {
      for (const int module : layout_.units[u].modules) collect(module, static_cast<int>(u));
    }
  }

  // DeepSpeed casts frozen parameters, too.
  Dtype dtype_of(const Parameter& parameter) const {
    if (!is_floating_point(parameter.dtype)) return parameter.dtype;
    if (traits_.precision == PrecisionRule::MasterCopy) return zero_dtype(plan_);
    return plan_.parameter_dtype && parameter.trainable ? *plan_.parameter_dtype : parameter.dtype;
  }

  void collect(int module, int u) {
    if (owner_of_module_[module] != u) return;
    const bool own_first = traits_.has_flat_parameters;
    if (own_first) collect_own(module, u);
    for (const int child : model_.modules[module].children) collect(child, u);
    if (!own_first) collect_own(module, u);
  }

  void collect_own(int module, int u) {
    for (const int p : model_.modules[module].parameters) {
      if (layout_.unit_of_parameter[p] >= 0) continue;  // Tied: it appears once, at its first place.
      layout_.unit_of_parameter[p] = u;
      layout_.units[u].parameters.push_back({.parameter = p});
    }
  }

  // A parameter that only the loss reads gets no gradient from the backward.
  void find_unit_of_loss() {
    std::vector<bool> is_of_loss(model_.parameters.size(), false), is_read_elsewhere(is_of_loss);
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      const Call& call = model_.calls[c];
      for (const Op& op : model_.blocks[call.block].ops) {
        const bool is_loss = call.module < 0 && op.kind == OpKind::LinearCrossEntropy;
        for (const int of_block : op.parameters) {
          const int parameter = call.parameters[of_block];
          (is_loss ? is_of_loss : is_read_elsewhere)[parameter] = true;
          const int unit = layout_.unit_of_parameter[parameter];
          if (is_loss && !layout_.units[unit].is_root) layout_.loss = {.unit = unit, .call = static_cast<int>(c)};
        }
      }
    }
    if (layout_.loss.unit < 0) return;
    for (ShardedParameter& p : layout_.units[layout_.loss.unit].parameters) {
      p.from_loss = is_of_loss[p.parameter] && model_.parameters[p.parameter].receives_gradient;
      p.from_backward = !p.from_loss || is_read_elsewhere[p.parameter];
    }
  }

  // torch 2.11 breaks such a tie silently and trains two parameters; newer versions refuse.
  void check_ties() {
    for (const Parameter& parameter : model_.parameters) {
      const int owner = owner_of_module_[parameter.module];
      for (const std::string& alias : parameter.tied_names) {
        const int module = index_.find(parent_name(alias));
        if (module < 0 || owner_of_module_[module] == owner) continue;
        wrong("units", fmt::format("\"{}\" and \"{}\" are one parameter, but in two units.", parameter.name, alias),
              "Wrap both modules as one unit, or leave both to the root.");
      }
    }
  }

  void check_dtypes(const ShardedUnit& unit, const std::string& where) {
    const Parameter* first = nullptr;
    for (const ShardedParameter& shard : unit.parameters) {
      const Parameter& parameter = model_.parameters[shard.parameter];
      if (!parameter.trainable) continue;
      if (first == nullptr) first = &parameter;
      const Dtype expected = layout_.parameter_dtype[first - model_.parameters.data()];
      const Dtype found = layout_.parameter_dtype[shard.parameter];
      if (found == expected) continue;
      wrong(where,
            fmt::format("\"{}\" is {} and \"{}\" is {}, but the trainable parameters of a unit have one dtype.",
                        first->name, name_of(expected), parameter.name, name_of(found)),
            "Set parameter_dtype, or wrap them apart.");
      return;
    }
  }

  void measure(ShardedUnit& unit) {
    for (ShardedParameter& shard : unit.parameters) {
      const Parameter& parameter = model_.parameters[shard.parameter];
      const bool is_whole = !traits_.wraps_units && !traits_.gathers_each_read;
      const CutBy cut = is_whole ? CutBy::None : CutBy::Rows;
      const Shape& shape = unit.of_experts ? own_experts(parameter.shape, plan_.mesh.ep) : parameter.shape;
      const ParameterPart part = part_of(shape, cut, unit.shards, layout_.rank_in(unit, layout_.rank));
      shard.elements = part.elements;
      shard.shard_elements = part.chunk;
      shard.local_elements = part.local;
      shard.receives_gradient = parameter.receives_gradient;
      shard.in_float8 = parameter.gathered_in_float8 && traits_.wraps_units;
      unit.shard_elements += shard.shard_elements;
      unit.true_elements += shard.elements;
      if (shard.receives_gradient && shard.from_backward) {
        unit.reduced_shard_elements += shard.shard_elements;
        unit.reduced_true_elements += shard.elements;
      }
      if (shard.from_loss) {
        layout_.loss.shard_elements += shard.shard_elements;
        layout_.loss.true_elements += shard.elements;
        layout_.loss.full_elements = shard_ * layout_.loss.shard_elements;
      }
    }
    unit.full_elements = unit.shards * unit.shard_elements;
    unit.reduced_full_elements = unit.shards * unit.reduced_shard_elements;
    choose_dtypes(unit);
  }

  // The trainable parameters of a unit share one dtype; frozen ones may differ (torch >= 2.11).
  Dtype original_dtype(const ShardedUnit& unit) const {
    for (const ShardedParameter& shard : unit.parameters) {
      if (model_.parameters[shard.parameter].trainable) return layout_.parameter_dtype[shard.parameter];
    }
    return unit.parameters.empty() ? Dtype::Float32 : layout_.parameter_dtype[unit.parameters.front().parameter];
  }

  void choose_dtypes(ShardedUnit& unit) {
    const MixedPrecision& precision = plan_.mixed_precision;
    unit.original_dtype = original_dtype(unit);
    unit.param_dtype = precision.param_dtype.value_or(unit.original_dtype);
    const bool follows_parameter = traits_.wraps_units && plan_.runtime.quirks.reduces_in_parameter_dtype;
    unit.reduce_dtype = precision.reduce_dtype.value_or(follows_parameter ? unit.original_dtype : unit.param_dtype);
    Bytes gathered;
    for (const ShardedParameter& shard : unit.parameters) {
      const Dtype own = layout_.parameter_dtype[shard.parameter];
      const Dtype wide = is_floating_point(own) ? precision.param_dtype.value_or(own) : own;
      const Dtype sent = shard.in_float8 ? Dtype::UInt8 : wide;
      unit.mixed_gather = unit.mixed_gather || sent != unit.param_dtype;
      gathered += size_of(sent) * shard.shard_elements;
    }
    unit.gather_shard_bytes = gathered;
  }

  const ModelIndex& index_;
  const Model& model_;
  const Plan& plan_;
  const FrameworkTraits& traits_;
  const FrameworkRules& rules_;
  std::int64_t shard_;
  Layout layout_;
  std::vector<int> owner_of_module_;
  Errors errors_;
};

}  // namespace

Result<Layout> make_layout(const ModelIndex& index, const Plan& plan, std::int64_t rank) {
  return LayoutMaker(index, plan, rank).make();
}

Errors reshard_as(Layout& layout, const ModelIndex& index, const Plan& plan) {
  return LayoutMaker(index, plan, layout.rank).reshard(layout);
}

void see_from(Layout& layout, std::int64_t rank) {
  layout.rank = rank;
  if (layout.is_replicated && !layout.gathers_each_read) return;
  for (ShardedUnit& unit : layout.units) {
    for (ShardedParameter& p : unit.parameters) p.local_elements = p.local_elements_of(layout.rank_in(unit, rank));
  }
}

bool Layout::has_whole_gradients() const {
  if (gathers_each_read || has_flat_units()) return mesh.dp_shard() == 1;
  return is_replicated && !updates_parts();
}

std::vector<std::int64_t> different_ranks(const Layout& layout) {
  std::vector<std::int64_t> ranks = {0};
  if (layout.gathers_by_module()) return ranks;  // All parts are padded to one size.
  if (layout.updates_parts()) return different_parts(layout.zero);
  // Flat parameters are cut evenly: ranks differ by the padding between the original ones.
  if (layout.has_flat_units()) return ranks;
  // Where rows divide, which they mostly do, the last full rank is the last of all.
  const auto add = [&](std::int64_t rank) {
    if (rank < layout.mesh.dp_shard()) ranks.push_back(rank);
  };
  for (const ShardedUnit& unit : layout.units) {
    const std::int64_t distance = unit.of_experts ? layout.mesh.ep : 1;
    for (const ShardedParameter& p : unit.parameters) {
      if (p.shard_elements == 0) continue;
      const std::int64_t full = p.elements / p.shard_elements;
      add(distance * full);
      if (p.elements % p.shard_elements != 0) add(distance * (full + 1));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace fsdp
