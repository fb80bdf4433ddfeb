// torch.autocast around the forward and the loss.
//
// Autocast casts the arguments of listed ops: products, convolutions and attention to its dtype, norms, powers and
// losses to fp32. All other ops follow PyTorch's type promotion. The op rules (simulator/ops/) say what that allocates.
// A copy of a trained fp32 parameter is cached until the forward and its loss are over, so that we allow each one to be
// multiplied once.
//
// Sources: aten/src/ATen/autocast_mode.h (the lists) and autocast_mode.cpp (cached_cast), torch/amp/autocast_mode.py,
// torch 2.11; deepspeed/runtime/engine.py (torch_autocast), DeepSpeed 0.19.8.
//
// Not modeled: fp16, whose loss is scaled by a GradScaler; most losses other than PyTorch's and TRL's; experts and
// selective checkpointing without a policy; FSDP1 or FSDP2 under autocast with gathered parameters in fp32.

#include "core/frameworks/check_autocast.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"

namespace fsdp {

namespace {

constexpr std::string_view kPlace = "mixed_precision/autocast";
constexpr std::string_view kOthers = "Plan with --precision bf16 or fp32.";

bool multiplies(OpKind kind) {
  return kind == OpKind::Linear || kind == OpKind::Conv1d || kind == OpKind::Conv2d;
}

/// Calls `visit(call, op)` for all ops of the forward.
template <class Visit>
void for_each_op(const Model& model, Visit visit) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) visit(call, op);
  }
}

/// The first parameter that a step multiplies twice, whose second reader would find the copy of the first; -1 if none.
int multiplied_twice(const Plan& plan, const Model& model) {
  std::vector<int> readers(model.parameters.size(), 0);
  for_each_op(model, [&](const Call& call, const Op& op) {
    if (!multiplies(op.kind)) return;
    for (const int p : op.parameters) ++readers[call.parameters[p]];
  });
  for (std::size_t p = 0; p < readers.size(); ++p) {
    const Parameter& parameter = model.parameters[p];
    const bool is_cached = parameter.trainable && stored_dtype(plan, parameter) == Dtype::Float32;
    if (readers[p] > 1 && is_cached) return static_cast<int>(p);
  }
  return -1;
}

/// Whether parameters have autocast's dtype already, so that it copies and caches none.
bool is_beside_policy(const Plan& plan) {
  return traits_of(plan).precision == PrecisionRule::Policy && plan.mixed_precision.param_dtype.has_value();
}

bool has_other_table(const OpAttributes& attributes) {
  return attributes.wide || attributes.by_halves || attributes.as_complex || attributes.interleaved;
}

/// LayerNorm of Cohere or Nemotron, or a squared ReLU.
bool is_written_by_a_family(const Op& op) {
  const OpAttributes& attributes = op.attributes;
  if (op.kind == OpKind::LayerNorm) return attributes.unit_offset || attributes.wide_weight;
  return op.kind == OpKind::Relu && attributes.written_out;
}

/// Whether some attention has trained sinks, or values of another width than the keys.
bool has_other_attention(const Model& model) {
  bool found = false;
  for_each_op(model, [&](const Call& call, const Op& op) {
    if (op.kind != OpKind::Attention) return;
    const std::vector<Value>& values = model.blocks[call.block].values;
    const bool is_narrower = values[op.inputs[0]].shape.back() != values[op.inputs[2]].shape.back();
    found = found || is_narrower || !op.parameters.empty();
  });
  return found;
}

void check_model(const Plan& plan, const Model& model, Errors& errors) {
  const auto wrong = [&](std::string what, std::string_view hint) {
    errors.push_back({std::string(kPlace), std::move(what), std::string(hint)});
  };
  const auto has = [&](const auto& is_such) { return has_op(model, is_such); };
  if (has([](const Op& op) { return op.kind == OpKind::Recorded; })) {
    wrong("A captured model has the precision of its script, autocast included.", "Leave it out.");
    return;
  }
  if (has([](const Op& op) { return is_scan(op.kind); })) {
    wrong("Linear attention and state spaces under autocast are not predicted: it casts the products of their scans.",
          "Plan with --precision bf16, or mixed under FSDP2.");
  }
  const bool is_beside = is_beside_policy(plan);
  if (!is_beside && has([](const Op& op) { return is_of_experts(op.kind); })) {
    wrong("Experts under autocast are not predicted.", kOthers);
  }
  if (has([](const Op& op) { return op.kind == OpKind::RotaryTable && has_other_table(op.attributes); })) {
    wrong("Heads that are turned in fp32, or by other tables than Llama's, are not predicted under autocast.", kOthers);
  }
  if (has(is_written_by_a_family)) {
    wrong("LayerNorm of a model's own, and squared ReLU, are not predicted under autocast.", kOthers);
  }
  const auto is_packed = [](const Op& op) {
    return op.kind == OpKind::Attention && op.attributes.packed != PackedAttention::None;
  };
  if (!is_beside && has(is_packed)) {
    wrong("Packed rows are not predicted under autocast.", kOthers);
  }
  if (has_other_attention(model)) {
    wrong("Attention with sinks, or with values of another width than the keys, is not predicted under autocast.",
          kOthers);
  }
  if (const int twice = is_beside ? -1 : multiplied_twice(plan, model); twice >= 0) {
    wrong(fmt::format("\"{}\" is multiplied twice, and autocast would reuse its copy, which is not predicted.",
                      model.parameters[twice].name),
          kOthers);
  }
}

// Without a policy every unit's gathered parameters would be cast, and the cache would keep the copies of all units.
void check_policy(const MixedPrecision& precision, const FrameworkTraits& traits, Errors& errors) {
  if (!traits.predicts_autocast || precision.param_dtype == precision.autocast) return;
  errors.push_back(
      {std::string(kPlace),
       fmt::format("Autocast under {} is predicted only with gathered parameters in the same dtype.", traits.title),
       fmt::format("Write \"{}\" for param_dtype (--precision autocast).", name_of(*precision.autocast))});
}

// accelerate's convert_outputs_to_fp32. We know of the logits that a loss inside the model reads.
void check_float_outputs(const Plan& plan, Errors& errors) {
  if (!plan.mixed_precision.float_outputs) return;
  const auto wrong = [&](std::string what, std::string hint) {
    errors.push_back({"mixed_precision/float_outputs", std::move(what), std::move(hint)});
  };
  if (!plan.mixed_precision.autocast) {
    wrong("accelerate copies outputs to fp32 only with autocast.", "Write an autocast, or leave it out.");
  }
  if (plan.runtime.implementations.loss_after_root || plan.runtime.implementations.float_logits) {
    wrong("Copies of logits before a loss outside the model, or of logits in fp32, are not predicted.",
          "Leave it out, or \"loss_after_root\" and \"float_logits\".");
  }
}

}  // namespace

Errors check_autocast(const Plan& plan, const Model& model) {
  Errors errors;
  const MixedPrecision& precision = plan.mixed_precision;
  check_float_outputs(plan, errors);
  if (!precision.autocast) return errors;
  const auto wrong = [&](std::string_view where, std::string what, std::string hint) {
    errors.push_back({std::string(where), std::move(what), std::move(hint)});
  };
  const FrameworkTraits& traits = traits_of(plan);
  if (!traits.predicts_autocast) {
    wrong(kPlace,
          traits.zero_stage > 0
              ? std::string("DeepSpeed has a torch_autocast of its own, which is not predicted.")
              : fmt::format("Autocast around {} is not predicted: it has a mixed precision of its own.", traits.title),
          "Plan with --precision mixed, or for --runtime fsdp2, fsdp1 or ddp.");
  }
  if (*precision.autocast != Dtype::BFloat16) {
    wrong(kPlace,
          *precision.autocast == Dtype::Float16
              ? std::string("Autocast in float16 needs a GradScaler, which is not predicted.")
              : fmt::format("Autocast in {} is not predicted.", name_of(*precision.autocast)),
          "Write bfloat16.");
  }
  if (traits.precision == PrecisionRule::Policy) {
    check_policy(precision, traits, errors);
  } else if (precision.param_dtype || precision.reduce_dtype || precision.output_dtype) {
    wrong(kPlace, "Autocast beside another mixed precision is not predicted.", "Leave the other dtypes out.");
  }
  check_model(plan, model, errors);
  const LossRow& loss = loss_row(plan.runtime.implementations.loss);
  const bool is_plain = loss.kind == LossKind::PyTorch || loss.kind == LossKind::ChunkedNll;
  if (!is_plain && !(loss.is_of_fsdp && is_beside_policy(plan))) {
    wrong("runtime/implementations/loss", fmt::format("{} is not predicted under autocast.", loss.title),
          "Write \"pytorch\".");
  }
  const std::vector<Checkpointing::Entry>& entries = plan.checkpointing.entries;
  const bool is_selective = std::any_of(entries.begin(), entries.end(),
                                        [](const auto& entry) { return entry.mode == CheckpointMode::Selective; });
  if (is_selective && !is_beside_policy(plan)) {
    wrong("activation_checkpointing", "Selective checkpointing under autocast is not predicted.",
          "Write full, or leave it out.");
  }
  if (plan.checkpointing.offload_inputs && !is_beside_policy(plan)) {
    wrong("activation_checkpointing/offload_inputs", "Offloaded inputs under autocast are not predicted.",
          "Write false.");
  }
  return errors;
}

}  // namespace fsdp
