#include "tests/support/any_plan.h"

#include <string>
#include <utility>

#include "core/model/op.h"
#include "core/plan/torch_version.h"

namespace fsdp {

namespace {

template <class E>
rc::Gen<E> any_of(E last) {
  return rc::gen::map(rc::gen::inRange(0, static_cast<int>(last) + 1), [](int i) { return static_cast<E>(i); });
}

std::optional<Dtype> any_dtype() {
  if (*rc::gen::arbitrary<bool>()) return std::nullopt;
  return *any_of(Dtype::Float16);
}

double any_number() {
  return *rc::gen::positive<int>() / 64.0;
}

ReshardAfterForward any_reshard() {
  using Kind = ReshardAfterForward::Kind;
  ReshardAfterForward reshard{.kind = *any_of(Kind::Smaller)};
  if (reshard.kind == Kind::Smaller) reshard.world_size = *rc::gen::inRange(2, 64);
  return reshard;
}

/// Rows of units of equal length over stacks, broken here and there, and single modules between them.
std::vector<Unit> any_units() {
  std::vector<Unit> units;
  const int num_rows = *rc::gen::inRange(0, 4);
  for (int row = 0; row < num_rows; ++row) {
    const std::string stem = *rc::gen::element<std::string>("model.layers.", "encoder.block.", "h.");
    const std::string after = *rc::gen::element<std::string>("", ".mlp");
    const int per_unit = *rc::gen::inRange(1, 4);
    const int step = *rc::gen::inRange(1, 3);
    int next = *rc::gen::inRange(0, 3);
    const ReshardAfterForward reshard = any_reshard();
    const int num_units = *rc::gen::inRange(0, 6);
    for (int i = 0; i < num_units; ++i) {
      Unit unit{.reshard_after_forward =
                    *rc::gen::weightedElement<bool>({{5, true}, {1, false}}) ? reshard : any_reshard()};
      const int length = *rc::gen::weightedElement<bool>({{5, true}, {1, false}}) ? per_unit : 1;
      for (int m = 0; m < length; ++m, next += step) unit.modules.push_back(stem + std::to_string(next) + after);
      units.push_back(std::move(unit));
    }
    if (*rc::gen::arbitrary<bool>())
      units.push_back({.modules = {"model.norm", "lm_head"}, .reshard_after_forward = any_reshard()});
  }
  units.push_back({.modules = {""}, .reshard_after_forward = any_reshard()});
  return units;
}

Checkpointing any_checkpointing() {
  Checkpointing checkpointing;
  const int num_entries = *rc::gen::inRange(0, 6);
  int layer = 0;
  for (int i = 0; i < num_entries; ++i) {
    layer += *rc::gen::inRange(1, 3);
    checkpointing.entries.push_back(
        {.module = "model.layers." + std::to_string(layer), .mode = *any_of(CheckpointMode::Full)});
  }
  checkpointing.selective_keep =
      *rc::gen::container<std::vector<OpKind>>(any_of(static_cast<OpKind>(kNumRuledOpKinds - 1)));
  checkpointing.every_second_linear = *rc::gen::arbitrary<bool>();
  checkpointing.early_stop = *rc::gen::arbitrary<bool>();
  return checkpointing;
}

Runtime any_runtime() {
  Runtime runtime = runtime_of_flavor(*rc::gen::element<std::string>("transformers", "torchtitan")).value();
  runtime.allocator_settings = *rc::gen::element<std::string>("", "expandable_segments:True");
  runtime.implementations = {.rms_norm = *any_of(RmsNormImplementation::Fused),
                             .rotary = *any_of(RotaryImplementation::Complex),
                             .attention = *any_of(AttentionBackend::Eager),
                             .loss = {.kind = *any_of(LossKind::TitanChunked)},
                             .automodel_decoders = *rc::gen::arbitrary<bool>(),
                             .lora_in_one_op = *rc::gen::arbitrary<bool>(),
                             .norm_in_float64 = *rc::gen::arbitrary<bool>(),
                             .repeat_kv = *rc::gen::arbitrary<bool>(),
                             .upcast_logits = *rc::gen::arbitrary<bool>(),
                             .keep_logits = *rc::gen::arbitrary<bool>(),
                             .float_logits = *rc::gen::arbitrary<bool>(),
                             .loss_after_root = *rc::gen::arbitrary<bool>(),
                             .use_cache = *rc::gen::arbitrary<bool>(),
                             .padding_mask = *rc::gen::arbitrary<bool>(),
                             .prefer_cudnn_attention = *rc::gen::arbitrary<bool>(),
                             .cudnn_allow_tf32 = *rc::gen::arbitrary<bool>(),
                             .matmul_allow_tf32 = *rc::gen::arbitrary<bool>()};
  set_torch_version(runtime, torch_versions()[*rc::gen::inRange<std::size_t>(0, torch_versions().size())]);
  // Those that a file may say otherwise than its release does.
  runtime.quirks.forward_all_gather_output_kept = *rc::gen::arbitrary<bool>();
  runtime.quirks.last_gradient_kept_in_reduce = *rc::gen::arbitrary<bool>();
  runtime.quirks.all_reduce_output_kept = *rc::gen::arbitrary<bool>();
  runtime.quirks.clip_reduces_each_norm = *rc::gen::arbitrary<bool>();
  runtime.quirks.skip_collectives_of_one = *rc::gen::arbitrary<bool>();
  runtime.quirks.cublaslt_workspace = Bytes(*rc::gen::inRange(0, 1 << 30));
  return runtime;
}

Plan make_any_plan() {
  Plan plan;
  plan.model = *rc::gen::element<std::string>("Qwen3-TTS", "a \"quoted\" näme", "");
  plan.model_fingerprint = *rc::gen::element<std::string>("0123456789abcdef", "");
  plan.model_file = *rc::gen::element<std::string>("model_specs/qwen3_tts.json", "qwen3_tts", "a b\\c.json");
  plan.recipe = *rc::gen::element<std::string>("sft", "");
  plan.dimensions = {{.name = "batch", .value = static_cast<double>(*rc::gen::inRange(1, 4096))},
                     {.name = "seconds", .value = any_number()}};
  plan.trainable = *rc::gen::element(std::vector<std::string>{}, std::vector<std::string>{"*.mlp.*", "lm_head"});
  plan.frozen = *rc::gen::element(std::vector<std::string>{}, std::vector<std::string>{"embed"});
  plan.mesh = {*rc::gen::inRange(1, 65), *rc::gen::inRange(1, 4097)};
  plan.units = any_units();
  plan.parameter_dtype = any_dtype();
  plan.mixed_precision = {.param_dtype = any_dtype(),
                          .reduce_dtype = any_dtype(),
                          .output_dtype = any_dtype(),
                          .cast_forward_inputs = *rc::gen::arbitrary<bool>()};
  plan.checkpointing = any_checkpointing();
  plan.cpu_offload = *rc::gen::arbitrary<bool>();
  plan.forward_prefetch = *rc::gen::inRange(0, 4);
  plan.backward_prefetch = *rc::gen::inRange(0, 4);
  plan.reduce_scatter_buffers = *rc::gen::inRange(1, 4);
  plan.separate_reduce_scatter_group = *rc::gen::arbitrary<bool>();
  plan.accumulation = *rc::gen::inRange(1, 64);
  plan.sync_every_micro_batch = *rc::gen::arbitrary<bool>();
  plan.optimizer = {.kind = *any_of(OptimizerKind::ScheduleFreeAdamW),
                    .implementation = *any_of(OptimizerImplementation::ForLoop),
                    .states = *any_of(OptimizerStates::BFloat16),
                    .weight_decay = any_number(),
                    .momentum = any_number()};
  if (plan.optimizer.kind != OptimizerKind::Sgd) plan.optimizer.momentum = 0;
  if (*rc::gen::arbitrary<bool>()) plan.optimizer.clip_grad_norm = any_number();
  plan.initialization = *any_of(Initialization::Device);
  plan.runtime = any_runtime();
  return plan;
}

}  // namespace

rc::Gen<Plan> any_plan() {
  return rc::gen::exec([] { return make_any_plan(); });
}

}  // namespace fsdp
