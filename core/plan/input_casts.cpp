// FSDP2 casts the floating arguments of a unit's forward to param_dtype before the unit's all-gather. For the root
// these are the inputs of the model: each is copied, and the copy lives until the root's forward returns. Between units
// values have param_dtype already, unless a spec has an op that gives another dtype (a cast, a constant): a unit that
// reads one is refused, and a cast before the unit says the same. Under torch.autocast norms and powers also leave
// fp32 behind; a unit that reads or, with an output_dtype, returns such a value is refused likewise.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_state.py (_pre_forward), _fsdp_common.py (_cast_fp_tensor), torch
// 2.11.0; torch/nn/modules/module.py (_call_impl holds the arguments).

#include "core/plan/input_casts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/plan/autocast_flow.h"
#include "core/plan/framework_traits.h"

namespace fsdp {

namespace {

/// A value on its way through the calls: its dtype where that is not the activations', and the op that made it.
struct Flowing {
  std::optional<Dtype> dtype;
  int maker = -1;  ///< Position; -1: an input of the model.
};

class CastCheck {
 public:
  CastCheck(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : index_(index), model_(*index.model), plan_(plan), layout_(layout), values_(model_.values.size()) {
    activation_ = activation_dtype(model_, plan);
  }

  Errors run() {
    const std::vector<bool> cast = inputs_cast_by_root(model_, plan_);
    for (std::size_t i = 0; i < cast.size(); ++i) {
      const std::optional<Dtype>& dtype = model_.values[model_.inputs[i]].dtype;
      if (dtype && is_floating_point(*dtype) && *dtype != activation_ && !cast[i]) {
        values_[model_.inputs[i]].dtype = dtype;
      }
    }
    for (std::size_t c = 0; c < model_.calls.size(); ++c) follow(static_cast<int>(c));
    return std::move(errors_);
  }

 private:
  void follow(int c) {
    const Call& call = model_.calls[c];
    const Block& block = model_.blocks[call.block];
    std::vector<Flowing> inside(block.values.size());
    for (std::size_t i = 0; i < call.inputs.size(); ++i) inside[i] = values_[call.inputs[i]];
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const Op& op = block.ops[o];
      const int position = index_.call_begin[c] + static_cast<int>(o);
      for (const int input : op.inputs) {
        if (inside[input].dtype) look_at(op, block.values[input], inside[input], position);
      }
      for (const int output : op.outputs) inside[output] = {dtype_of(block, op, output, inside), position};
    }
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      values_[call.outputs[o]] = inside[block.outputs[o]];
    }
  }

  // An op without a dtype of its own gives that of its first input, which may have been cast.
  std::optional<Dtype> dtype_of(const Block& block, const Op& op, int output,
                                const std::vector<Flowing>& inside) const {
    std::optional<Dtype> declared = block.values[output].dtype;
    if (plan_.mixed_precision.autocast && plan_.mixed_precision.param_dtype && op.kind != OpKind::Recorded) {
      std::vector<std::optional<Dtype>> inputs;
      for (const int input : op.inputs) inputs.push_back(inside[input].dtype);
      declared = autocast_result(op, inputs, declared);
      return declared && is_floating_point(*declared) && *declared != activation_ ? declared : std::nullopt;
    }
    if (!declared || !is_floating_point(*declared) || *declared == activation_) return std::nullopt;
    const bool is_own =
        op.kind == OpKind::Cast || op.kind == OpKind::Constant || op.kind == OpKind::Recorded || op.inputs.empty();
    return is_own ? declared : inside[op.inputs.front()].dtype;
  }

  void look_at(const Op& op, const Value& value, const Flowing& flowing, int position) {
    const bool is_autocast = plan_.mixed_precision.autocast.has_value();
    if (!is_autocast && flowing.maker < 0 && !op.parameters.empty() && takes_one_dtype(op.kind)) {
      const MixedPrecision& precision = plan_.mixed_precision;
      const FrameworkTraits& traits = traits_of(plan_);
      const bool could_cast = precision.param_dtype && !precision.cast_forward_inputs && traits.casts_inputs;
      add({could_cast ? "mixed_precision/cast_forward_inputs" : "parameter_dtype",
           fmt::format("The input \"{}\" is {}, and PyTorch does not multiply it by parameters in {}.", value.name,
                       name_of(*flowing.dtype), name_of(activation_)),
           could_cast ? "Write true, and FSDP2 casts it."
           : traits.gathers_each_read
               ? fmt::format("Cast it in the model, or take {} for param_dtype: SimpleFSDP casts only parameters.",
                             name_of(*flowing.dtype))
               : fmt::format("Use {}, or a mixed_precision/param_dtype, to which FSDP2 casts it.",
                             name_of(*flowing.dtype))});
    }
    if (!plan_.mixed_precision.param_dtype) return;
    if (is_autocast && plan_.mixed_precision.output_dtype) look_at_output(value, flowing, position);
    if (!plan_.mixed_precision.cast_forward_inputs) return;
    // The op itself casts: one copy, whoever makes it.
    if (op.kind == OpKind::Cast) return;
    for (const ShardedUnit& unit : layout_.units) {
      if (!unit.is_root && is_argument(unit, flowing.maker, position)) refuse(unit, value, *flowing.dtype);
    }
  }

  // A unit casts what the module that it leaves last returns.
  void look_at_output(const Value& value, const Flowing& flowing, int position) {
    for (const ShardedUnit& unit : layout_.units) {
      if (unit.is_root) continue;
      for (const Window& window : unit.windows) {
        if (flowing.maker < window.begin || flowing.maker >= window.end || position < window.end) continue;
        const auto is_last = [&](const Span& run) { return run.end == window.end && run.begin <= flowing.maker; };
        for (const int module : unit.modules) {
          if (!std::any_of(index_.runs[module].begin(), index_.runs[module].end(), is_last)) continue;
          add({"mixed_precision/output_dtype",
               fmt::format("The unit \"{}\" returns \"{}\" in {} under autocast and would cast it to {}, which is not "
                           "predicted.",
                           unit.name, value.name, name_of(*flowing.dtype),
                           name_of(*plan_.mixed_precision.output_dtype)),
               "Plan for FSDP1 or DDP, or wrap other modules."});
        }
      }
    }
  }

  // For a unit of several modules only the one that is entered first has its arguments cast, or each of them.
  bool is_argument(const ShardedUnit& unit, int maker, int position) const {
    const bool of_each = plan_.runtime.quirks.casts_inputs_of_each_module;
    for (const Window& window : unit.windows) {
      if (position < window.begin || position >= window.end) continue;
      const auto is_cast = [&](const Span& run) {
        const bool has_hook = of_each || run.begin == window.begin;
        return has_hook && run.begin <= position && position < run.end && maker < run.begin;
      };
      for (const int module : unit.modules) {
        if (std::any_of(index_.runs[module].begin(), index_.runs[module].end(), is_cast)) return true;
      }
    }
    return false;
  }

  void refuse(const ShardedUnit& unit, const Value& value, Dtype dtype) {
    add({"mixed_precision/cast_forward_inputs",
         fmt::format("The unit \"{}\" gets \"{}\" in {} and would cast it to {}, which is not predicted.", unit.name,
                     value.name, name_of(dtype), name_of(*plan_.mixed_precision.param_dtype)),
         plan_.mixed_precision.autocast
             ? "Plan for FSDP1 or DDP, or wrap other modules."
             : "Put the op {\"op\": \"cast\"} before it in the spec, or wrap other modules."});
  }

  void add(Error error) {
    if (std::find(errors_.begin(), errors_.end(), error) == errors_.end()) errors_.push_back(std::move(error));
  }

  const ModelIndex& index_;
  const Model& model_;
  const Plan& plan_;
  const Layout& layout_;
  Dtype activation_ = Dtype::Float32;
  std::vector<Flowing> values_;  // [num values]
  Errors errors_;
};

}  // namespace

std::vector<bool> root_arguments(const Model& model) {
  std::vector<bool> is_read_inside(model.values.size(), false), is_read_after(model.values.size(), false);
  for (const Call& call : model.calls) {
    for (const int value : call.inputs) (call.module < 0 ? is_read_after : is_read_inside)[value] = true;
  }
  std::vector<bool> arguments;
  for (const int input : model.inputs) {
    const bool is_beside = std::find(model.inputs_beside_root.begin(), model.inputs_beside_root.end(), input) !=
                           model.inputs_beside_root.end();
    arguments.push_back(!is_beside && (is_read_inside[input] || !is_read_after[input]));
  }
  return arguments;
}

std::vector<bool> inputs_cast_by_root(const Model& model, const Plan& plan) {
  const MixedPrecision& precision = plan.mixed_precision;
  const FrameworkTraits& traits = traits_of(plan);
  // FSDP1's root is a unit, too.
  const bool root_casts = traits.options == OptionsMember::Fsdp1 && plan.fsdp1.cast_root_forward_inputs;
  const bool casts = precision.cast_forward_inputs || root_casts;
  if (!traits.casts_inputs || !casts || !precision.param_dtype) return std::vector<bool>(model.inputs.size(), false);
  std::vector<bool> cast = root_arguments(model);
  for (std::size_t i = 0; i < cast.size(); ++i) {
    const Dtype dtype = model.values[model.inputs[i]].dtype.value_or(activation_dtype(model, plan));
    cast[i] = cast[i] && is_floating_point(dtype) && dtype != *precision.param_dtype;
  }
  return cast;
}

Errors check_input_casts(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  return CastCheck(index, plan, layout).run();
}

}  // namespace fsdp
