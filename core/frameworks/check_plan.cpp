#include "core/frameworks/check_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/nearest.h"
#include "core/frameworks/check_autocast.h"
#include "core/frameworks/layout.h"
#include "core/frameworks/other_models.h"
#include "core/model/op_shapes.h"
#include "core/plan/automodel.h"
#include "core/plan/framework_traits.h"
#include "core/plan/input_casts.h"
#include "core/plan/loss_table.h"
#include "core/plan/nested_checkpoints.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/reentrant_checkpoints.h"
#include "core/plan/torch_version.h"

namespace fsdp {

namespace {

void check_checkpointing(const Plan& plan, const Model& model, const ModelIndex& index, Errors& errors) {
  for (const Checkpointing::Entry& entry : plan.checkpointing.entries) {
    const int module = index.find(entry.module);
    bool repeated = false;
    for (const Call& call : model.calls) repeated = repeated || (call.module == module && call.repeated);
    if (module >= 0 && repeated) continue;
    std::vector<std::string> known;
    for (const Call& call : model.calls) {
      if (call.repeated) known.push_back(model.modules[call.module].name);
    }
    errors.push_back({"checkpointing", fmt::format("\"{}\" is not a repeated block of the model.", entry.module),
                      suggest_name(entry.module, known)});
  }
  const FrameworkTraits& traits = traits_of(plan);
  if (plan.checkpointing.offload_inputs && !traits.offloads_inputs) {
    errors.push_back({"activation_checkpointing/offload_inputs",
                      fmt::format("Inputs of blocks in host memory are not predicted for {}.", traits.title),
                      "Write false, or plan for --runtime fsdp2, fsdp1 or ddp."});
  }
}

// A unit of several modules that has been entered and waits for a module that never runs is not left: it stays
// gathered.
bool stays_gathered(const ShardedUnit& unit, int position) {
  return std::any_of(unit.windows.begin(), unit.windows.end(),
                     [&](const Window& window) { return !window.runs_post_forward && window.end <= position; });
}

// Parameters that another module's forward reads would not be gathered then: an expert that a mixture runs or not, as
// the tokens fall; an output projection that a fused attention takes as a weight. One is told for each unit.
void check_reads(const Model& model, const ModelIndex& index, const Layout& layout, Errors& errors) {
  std::vector<bool> is_told(layout.units.size(), false);
  for (std::size_t c = 0; c < model.calls.size(); ++c) {
    const Call& call = model.calls[c];
    const std::vector<Op>& ops = model.blocks[call.block].ops;
    for (const Op& op : ops) {
      const int position = index.call_begin[c] + static_cast<int>(&op - ops.data());
      const int reader = call.modules[op.module];
      for (const int of_block : op.parameters) {
        const int parameter = call.parameters[of_block];
        const auto u = static_cast<std::size_t>(layout.unit_of_parameter[parameter]);
        const ShardedUnit& unit = layout.units[u];
        const bool is_inside = std::any_of(unit.modules.begin(), unit.modules.end(),
                                           [&](int module) { return index.contains(module, reader); });
        const bool is_called = layout.loss.call == static_cast<int>(c);
        if (unit.is_root || is_inside || is_told[u] || is_called || stays_gathered(unit, position)) continue;
        is_told[u] = true;
        const std::string name = reader < 0 ? "" : model.modules[reader].name;
        errors.push_back({fmt::format("units/{}", u),
                          fmt::format("\"{}\" is read by the forward of \"{}\", which would not gather it.",
                                      model.parameters[parameter].name, name),
                          name.empty() ? "Leave it to the root." : fmt::format("Wrap \"{}\" in its place.", name)});
      }
    }
  }
}

// PyTorch 2.11, loss.backward(): "element 0 of tensors does not require grad and does not have a grad_fn".
void check_trained(const Model& model, Errors& errors) {
  if (num_gradient_parameters(model) > 0) return;
  errors.push_back({"model", "No parameter gets a gradient, so PyTorch raises an error in backward.",
                    "Train at least one parameter. A forward without a backward, as for inference, is not predicted."});
}

// PyTorch 2.11: "Operator aten._fused_sgd_.default does not have a sharding strategy registered."
void check_optimizer(const Optimizer& optimizer, Errors& errors) {
  const OptimizerRow& row = optimizer_row(optimizer);
  if (row.has_fused_shards || optimizer.implementation != OptimizerImplementation::Fused) return;
  errors.push_back({"optimizer",
                    fmt::format("PyTorch has no fused {} for sharded parameters (DTensors).", row.class_name),
                    fmt::format("{} is foreach or for_loop; Adam and AdamW can be fused.", row.class_name)});
}

void check_muon(const Plan& plan, const Model& model, Errors& errors) {
  if (!plan.optimizer.muon) return;
  const auto is_muon = [&](const Parameter& parameter) { return is_updated_by_muon(plan, parameter); };
  if (std::none_of(model.parameters.begin(), model.parameters.end(), is_muon)) {
    errors.push_back({"optimizer", fmt::format("{} names no matrix that Muon updates.", model.name),
                      "Capture a script that trains with torch.optim.Muon, or leave \"muon\" out."});
  }
}

// Whether the root gives something floating in another dtype to what runs after it.
bool returns_other_dtype(const Model& model, Dtype activation, Dtype output) {
  std::vector<bool> is_made(model.values.size(), false);
  for (const Call& call : model.calls) {
    for (const int value : call.module < 0 ? call.inputs : call.outputs) {
      const auto v = static_cast<std::size_t>(value);
      const Dtype dtype = model.values[v].dtype.value_or(activation);
      if (call.module >= 0) is_made[v] = true;
      if (call.module < 0 && is_made[v] && is_floating_point(dtype) && dtype != output) return true;
    }
  }
  return false;
}

bool has_op_of(const Model& model, OpKind kind) {
  return has_op(model, [&](const Op& op) { return op.kind == kind; });
}

// Linear attention and state spaces: under FSDP1 reserved memory was up to 4.9 % higher than predicted, and ZeRO and
// SimpleFSDP were not compared.
void check_scans(const Plan& plan, const Model& model, Errors& errors) {
  const FrameworkTraits& traits = traits_of(plan);
  if (traits.keeps_each_parameter() || !has_op(model, [](const Op& op) { return is_scan(op.kind); })) return;
  errors.push_back({"runtime",
                    fmt::format("Linear attention and state spaces are not predicted under {}.", traits.title),
                    "Plan with --runtime fsdp2 or ddp."});
}

constexpr std::string_view kLossPlace = "/runtime/implementations/loss";
constexpr std::string_view kPyTorchLoss = "Write \"pytorch\", or leave it out.";

// What the loss reads of the head: a bias, and whether something before it is trained.
void check_head(const LossRow& row, const Model& model, const Call& call, const Op& op, Errors& errors) {
  const Parameter& weight = model.parameters[call.parameters[op.parameters.front()]];
  if (op.parameters.size() > 1 && !row.takes_bias) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} does not add a bias, which the head of \"{}\" has.", row.title, weight.name),
                      std::string(kPyTorchLoss)});
  }
  // torchtitan's calls the head alone, without the cap; that of cut-cross-entropy was not run here.
  if (op.attributes.softcap > 0 && !row.takes_cap) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} is not predicted with capped logits, which {} has.", row.title, model.name),
                      std::string(kPyTorchLoss)});
  }
  if (row.needs_trained_head && !weight.receives_gradient) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} is not predicted with a frozen head, as \"{}\" is.", row.title, weight.name),
                      std::string(kPyTorchLoss)});
  }
  // LigerFusedLinearCrossEntropyFunction makes no gradient at all if its input requires none.
  const bool is_alone = weight.receives_gradient && num_gradient_parameters(model) == num_elements(weight.shape);
  if (is_alone && row.needs_hidden_gradient) {
    errors.push_back(
        {std::string(kLossPlace),
         fmt::format("{} makes no gradient for a head alone: \"{}\" would not be trained.", row.title, weight.name),
         "Train something before the head, or write \"pytorch\"."});
  }
}

// torchtitan 0.3.0, components/loss.py (ChunkedLossWrapper), run with PyTorch 2.8 to 2.15. On those up to 2.12 a unit
// of norm and head, which is torchtitan's, ends in the backward of the norm: "The tensor has a non-zero number of
// elements, but its data is not allocated yet".
void check_called_head(const Plan& plan, const Model& model, const Layout& layout, const LossRow& row, Errors& errors) {
  const auto wrong = [&](std::string_view where, std::string what, std::string hint) {
    errors.push_back({std::string(where), std::move(what), std::move(hint)});
  };
  if (plan.accumulation > 1 && !plan.sync_every_micro_batch) {
    wrong("sync_every_micro_batch", fmt::format("{} reduces the head's gradient in every micro-batch.", row.title),
          "Plan with --gradient-sync every.");
  }
  const std::int64_t chunks = num_chunks(plan.runtime.implementations.loss);
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      if (op.kind != OpKind::LinearCrossEntropy) continue;
      const Shape& labels = model.blocks[call.block].values[op.inputs[1]].shape;
      if (labels.size() != 2 || labels[1] % chunks != 0) {
        wrong(kLossPlace,
              fmt::format("{} parts of a sequence are not equal if the labels are {}.", chunks, to_string(labels)),
              fmt::format("Write {},chunks=N with a number that divides the sequence, or another --seq.", row.name));
      }
    }
  }
  const UnitOfLoss& loss = layout.loss;
  if (loss.unit < 0) {
    const bool is_left = layout.units.back().reshard.kind != ReshardAfterForward::Kind::Never;
    if (is_left) {
      wrong(fmt::format("units/{}", layout.units.size() - 1),
            "The root has the head's parameters, and is resharded before the loss reads them.",
            "Leave reshard_after_forward of the root out.");
    }
    return;
  }
  const ShardedUnit& unit = layout.units[loss.unit];
  const std::string where = fmt::format("units/{}", loss.unit);
  if (unit.windows.empty() || unit.windows.back().runs_post_forward) {
    wrong(where, fmt::format("A unit of the head alone is not predicted under {}.", row.title),
          "Wrap the norm before the head with it, as torchtitan does, or leave the head to the root.");
  } else if (!plan.runtime.quirks.completes_partial_units) {
    wrong(where,
          fmt::format("PyTorch {} ends with an error: {} has freed the unit of \"{}\" when its backward begins.",
                      torch_version_of(plan.runtime).name, row.title, unit.name),
          "Plan for --torch 2.13 or later, or leave the head to the root.");
  }
  if (unit.reshard.kind == ReshardAfterForward::Kind::Smaller) {
    wrong(where, fmt::format("{} shards the head's unit over all ranks.", row.title), "Write true or false.");
  }
}

// A loss that makes the logits itself reads the head's parameters in the root's forward.
void check_loss_with_head(const Plan& plan, const Model& model, Errors& errors) {
  const LossRow& row = loss_row(plan.runtime.implementations.loss);
  const FrameworkTraits& traits = traits_of(plan);
  if (plan.runtime.implementations.loss_after_root && !row.calls_head) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} runs in the model's forward, and this plan's loss after it.", row.title),
                      "Plan with --flavor transformers."});
  }
  if (plan.runtime.implementations.keep_logits || plan.runtime.implementations.float_logits) {
    errors.push_back({std::string(kLossPlace), fmt::format("{} makes no logits to keep or to cast.", row.title),
                      "Leave \"keep_logits\" and \"float_logits\" out."});
  }
  const bool is_fsdp2 = traits.wraps_units && traits.has_dtensors;
  if ((row.is_of_fsdp2 && !is_fsdp2) || (row.is_of_fsdp && !is_fsdp2 && !traits.has_flat_parameters)) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} is predicted under FSDP2 {}alone, and this plan is for {}.", row.title,
                                  row.is_of_fsdp ? "and FSDP1 " : "", traits.title),
                      "Write runtime/name \"pytorch-fsdp2\", or the loss \"pytorch\"."});
  } else if (traits.gathers_each_read || traits.zero_stage == 3) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} reads the head's weight outside of the head, which is not predicted under {}.",
                                  row.title, traits.title),
                      std::string(kPyTorchLoss)});
  }
  if (row.needs_16_bits && activation_dtype(model, plan) == Dtype::Float32) {
    errors.push_back({std::string(kLossPlace), fmt::format("{} takes no hidden states in float32.", row.title),
                      "Plan with --precision bf16 or mixed."});
  }
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      if (op.kind == OpKind::LinearCrossEntropy) check_head(row, model, call, op, errors);
    }
  }
}

// A recorded model has the loss of its script, one of images may have none of this kind, and one with several heads
// has none to take: what is asked for is not what would be predicted.
void check_loss(const Plan& plan, const Model& model, Errors& errors) {
  const Loss& loss = plan.runtime.implementations.loss;
  const LossRow& row = loss_row(loss);
  if (!row.takes_head && has_op_of(model, OpKind::LinearCrossEntropy)) {
    errors.push_back(
        {std::string(kLossPlace),
         fmt::format("{} was built for a loss that makes the logits itself, unlike {}.", model.name, row.title),
         "Build the model with the plan's loss."});
    return;
  }
  if (loss == Loss{}) return;
  const bool applies = has_op_of(model, row.takes_head ? OpKind::LinearCrossEntropy : OpKind::CrossEntropy);
  if (loss.chunks > 0 && row.chunks == 0) {
    errors.push_back({std::string(kLossPlace),
                      fmt::format("{} does not let the number of chunks be chosen.", row.title),
                      "Leave \"loss_chunks\" out."});
  }
  if (applies && row.takes_head) return check_loss_with_head(plan, model, errors);
  if (applies) return;
  errors.push_back(
      {std::string(kLossPlace),
       row.takes_head
           ? fmt::format("{} does not end with one linear head and its cross entropy, which {} takes together.",
                         model.name, row.title)
           : fmt::format("{} has no cross entropy whose implementation can be chosen.", model.name),
       std::string(kPyTorchLoss)});
}

void check_padding_mask(const Plan& plan, const Model& model, Errors& errors) {
  if (!plan.runtime.implementations.padding_mask) return;
  if (plan.runtime.implementations.attention == AttentionBackend::FlashAttn) {
    errors.push_back({"runtime/implementations/padding_mask",
                      "flash-attn cuts padding away, so that sizes depend on the data, which is not predicted.",
                      "Leave it out for rows of one length, or plan with another attention."});
    return;
  }
  const bool has_mask = std::any_of(model.values.begin(), model.values.end(),
                                    [](const Value& value) { return value.name.ends_with("padding_mask"); });
  if (has_mask) return;
  errors.push_back({"runtime/implementations/padding_mask",
                    fmt::format("{} makes no mask of padding that is predicted.", model.name),
                    "Leave it out, or capture the script that trains it."});
}

// Each unit casts what it returns, and only a unit casts what it is given: a final norm and head that the root runs
// would multiply two dtypes, which PyTorch refuses. Where the root is the only unit, just the loss is cast.
void check_output_dtype(const Plan& plan, const Model& model, Errors& errors) {
  const std::optional<Dtype>& output = plan.mixed_precision.output_dtype;
  const Dtype activation = activation_dtype(model, plan);
  const bool after_root =
      std::any_of(model.calls.begin(), model.calls.end(), [](const Call& c) { return c.module < 0; });
  const bool only_loss = plan.units.size() == 1 && !plan.runtime.implementations.keep_logits && !after_root;
  if (output && after_root && returns_other_dtype(model, activation, *output)) {
    errors.push_back(
        {"mixed_precision/output_dtype",
         fmt::format("The loss runs after the root's forward, which would return its logits in {}: that "
                     "cast is not predicted.",
                     name_of(*output)),
         "Leave it out, or write \"float_logits\": true in runtime/implementations for logits in float32."});
    return;
  }
  if (!output || *output == activation || only_loss) return;
  errors.push_back({"mixed_precision/output_dtype",
                    fmt::format("Units would compute in {} and return {}, which the ops between them do not accept.",
                                name_of(activation), name_of(*output)),
                    fmt::format("Write {}, or leave it out.", name_of(activation))});
}

// Frozen parameters keep the dtype of the checkpoint. An elementwise sum or product takes the wider of
// two dtypes; products and fused norms take one only.
void check_frozen_dtypes(const Plan& plan, const Model& model, Errors& errors) {
  if (!plan.parameter_dtype || plan.mixed_precision.param_dtype || plan.mixed_precision.autocast) return;
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      for (const int index : op.parameters) {
        const Parameter& parameter = model.parameters[call.parameters[index]];
        const bool fits = parameter.trainable || parameter.dtype == *plan.parameter_dtype;
        if (fits || !takes_one_dtype(op.kind) || !is_floating_point(parameter.dtype)) continue;
        errors.push_back({"parameter_dtype",
                          fmt::format("{} is frozen and stays {}, and PyTorch does not multiply it by {}.",
                                      parameter.name, name_of(parameter.dtype), name_of(*plan.parameter_dtype)),
                          fmt::format("Write {}, or a mixed_precision/param_dtype.", name_of(parameter.dtype))});
        return;
      }
    }
  }
}

// A setting without effect is the author's mistake.
void check_framework(const Plan& plan, Errors& errors) {
  const FrameworkTraits& traits = traits_of(plan);
  const auto refuse = [&](std::string_view where, const auto& is_reader) {
    const auto reader = std::find_if(kFrameworkTraits.begin(), kFrameworkTraits.end(), is_reader);
    errors.push_back(
        {std::string(where),
         fmt::format("These are arguments of {}, but the plan is for {}.", reader->plan_name, traits.plan_name),
         "Leave them out, or write the other name in runtime/name."});
  };
  const auto check_options = [&](bool is_set, std::string_view where, OptionsMember member) {
    if (!is_set || traits.options == member) return;
    refuse(where, [&](const FrameworkTraits& each) { return each.options == member; });
  };
  check_options(plan.ddp != DdpOptions{}, "ddp", OptionsMember::Ddp);
  check_options(plan.fsdp1 != Fsdp1Options{}, "fsdp1", OptionsMember::Fsdp1);
  check_options(plan.zero != ZeroOptions{}, "zero", OptionsMember::Zero);
  ZeroOptions of_all = plan.zero;
  of_all.reduce_bucket_size = ZeroOptions{}.reduce_bucket_size;
  of_all.overlap_comm = false;
  of_all.pin_memory = true;
  of_all.offload_param = false;
  of_all.offload_ratio = 1;
  of_all.fp16 = {};
  const bool is_whole = traits.zero_stage == 1 || traits.zero_stage == 2;
  if (is_whole && of_all != ZeroOptions{}) refuse("zero", [](const auto& each) { return each.zero_stage == 3; });
}

// A graph's private pool is predicted for one forward and backward of FSDP2 in a step, as torchtitan captures it.
void check_cuda_graphs(const Plan& plan, const Model& model, Errors& errors) {
  if (!plan.cuda_graphs) return;
  const auto wrong = [&](std::string what, std::string hint) {
    errors.push_back({"/cuda_graphs", std::move(what), std::move(hint)});
  };
  const FrameworkTraits& traits = traits_of(plan);
  const TorchVersion& version = torch_version_of(plan.runtime);
  if (!traits.has_unit_setters) {
    wrong(fmt::format("CUDA graphs are predicted under FSDP2, and this plan is for {}.", traits.title), "Write false.");
  } else if (!version.has_reduce_scatter_settings) {
    wrong(fmt::format("torchtitan 0.3, whose CUDA graphs are predicted, needs PyTorch 2.13; the plan has {}.",
                      version.name),
          "Plan with --torch 2.13 or later, or write false.");
  }
  if (plan.accumulation > 1) {
    wrong("CUDA graphs of several micro-batches are not predicted.", "Write accumulation 1, or false.");
  }
  if (plan.cpu_offload || plan.checkpointing.offload_inputs) {
    wrong("CUDA graphs beside tensors in host memory are not predicted.", "Offload nothing, or write false.");
  }
  if (!plan.runtime.allocator_settings.empty()) {
    wrong(fmt::format("CUDA graphs are predicted with the allocator's defaults, and not with \"{}\".",
                      plan.runtime.allocator_settings),
          "Leave --alloc-conf out, or write false.");
  }
  if (has_passes(model) || begins_with_gradients(model)) {
    wrong("CUDA graphs of a captured script are not predicted.", "Write false.");
  }
}

}  // namespace

Errors check(const Plan& plan, const Model& model) {
  Errors errors;
  if (!plan.model_fingerprint.empty() && plan.model_fingerprint != fingerprint_of(model)) {
    errors.push_back({"model_fingerprint",
                      fmt::format("The plan was made for another model ({}), not for {}: their parameters differ.",
                                  plan.model, model.name),
                      "Plan this model again, or name the model file that the plan was made for."});
    return errors;
  }
  return check(plan, index_of(model));
}

Errors check(const Plan& plan, const ModelIndex& index) {
  const Model& model = *index.model;
  Errors errors;
  if (auto layout = make_layout(index, plan)) {
    errors = check_input_casts(index, plan, *layout);
    check_reads(model, index, *layout, errors);
    const LossRow& row = loss_row(plan.runtime.implementations.loss);
    if (row.calls_head && has_op_of(model, OpKind::LinearCrossEntropy)) {
      check_called_head(plan, model, *layout, row, errors);
    }
  } else {
    errors = std::move(layout).error();
  }
  check_framework(plan, errors);
  append(errors, check_torch(plan));
  check_trained(model, errors);
  check_checkpointing(plan, model, index, errors);
  if (traits_of(plan).has_dtensors) check_optimizer(plan.optimizer, errors);
  check_muon(plan, model, errors);
  if (auto misfit = optimizer_misfit(plan, model, plan.mesh, plan.cpu_offload)) errors.push_back(*std::move(misfit));
  if (auto misfit = passes_misfit(plan, model)) errors.push_back(*std::move(misfit));
  if (auto misfit = quantization_misfit(plan, model)) errors.push_back(*std::move(misfit));
  if (auto misfit = liger_misfit(plan)) errors.push_back(*std::move(misfit));
  if (auto misfit = float8_misfit(plan, model)) errors.push_back(*std::move(misfit));
  if (auto misfit = automodel_misfit(plan, model)) errors.push_back(*std::move(misfit));
  if (auto misfit = nested_checkpoints_misfit(plan, index)) errors.push_back(*std::move(misfit));
  if (auto misfit = reentrant_checkpoints_misfit(plan, index)) errors.push_back(*std::move(misfit));
  check_output_dtype(plan, model, errors);
  check_padding_mask(plan, model, errors);
  check_scans(plan, model, errors);
  check_loss(plan, model, errors);
  check_frozen_dtypes(plan, model, errors);
  append(errors, check_autocast(plan, model));
  check_cuda_graphs(plan, model, errors);
  append(errors, check_other_models(plan, model));
  return errors;
}

}  // namespace fsdp
