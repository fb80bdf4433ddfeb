// The JSON of deepspeed.initialize(config=...), with the keys of DeepSpeed 0.19.8. It includes keys whose default the
// prediction relies on, and always gradient_clipping, whose default clips at 1.
//
// JSON has no comments, so the script's duties are printed beside the file. The optimizer is one of them: the file
// could name one, but "AdamW" there is DeepSpeed's own FusedAdam, which no plan has, and without a learning rate it
// trains with PyTorch's default. deepspeed.initialize uses a given optimizer unchanged.
//
// Sources: deepspeed/runtime/constants.py, config.py, zero/config.py (DeepSpeedZeroConfig), engine.py
// (_configure_optimizer, get_optimizer_configuration, _do_optimizer_sanity_check), DeepSpeed 0.19.8.
//
// Not modeled: "optimizer" with torch_adam, which would be PyTorch's AdamW again.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/json_writer.h"
#include "core/base/name_ranges.h"
#include "core/frameworks/zero/zero_nvme.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_json_zero.h"
#include "core/plan/plan_names.h"
#include "render/python_words.h"
#include "render/trainer_config.h"
#include "render/trainer_notes.h"

namespace fsdp::render {

namespace {

/// One, if no size is named batch. DeepSpeed counts samples by it, and loads a data set that it is given.
std::int64_t micro_batch_of(const Model& model) {
  const Dimension* batch = find_dimension(model.dimensions, "batch");
  return batch == nullptr ? 1 : static_cast<std::int64_t>(batch->value);
}

/// The blocks with this mode of checkpointing, and its details.
std::string checkpointed_as(const Checkpointing& given, CheckpointMode mode) {
  const std::vector<std::string> modules = given.modules(mode);
  if (modules.empty()) return {};
  std::string words =
      fmt::format("torch.utils.checkpoint with use_reentrant=False{} around {}",
                  given.early_stop ? "" : " and early_stop=False", fmt::join(fold_names(modules), ", "));
  if (mode != CheckpointMode::Selective) return words;
  std::vector<std::string_view> kept;
  for (const OpKind kind : given.selective_keep) kept.push_back(name_of(kind));
  words += fmt::format(", with a policy that keeps the outputs of {}", fmt::join(kept, ", "));
  if (given.every_second_linear) words += " (of every second linear)";
  return words;
}

/// With a drive, the object has more keys than fit on a line.
void begin_offload(JsonWriter& json, std::string_view key, const ZeroOptions& zero, bool is_on_drive) {
  json.key(key);
  json.begin_object(is_on_drive ? JsonLayout::Lines : JsonLayout::OneLine);
  json.member("device", is_on_drive ? "nvme" : "cpu");
  json.member("pin_memory", zero.pin_memory);
  if (is_on_drive) json.member("nvme_path", zero.nvme.path);
}

void write_offload(JsonWriter& json, const ZeroOptions& zero) {
  begin_offload(json, "offload_optimizer", zero, zero.nvme.optimizer);
  if (zero.offload_ratio < 1) json.member("ratio", zero.offload_ratio);
  if (zero.nvme.optimizer) {
    json.member("buffer_count", zero.nvme.buffer_count);
    json.member("pipeline_read", zero.nvme.pipeline_read);
    json.member("pipeline_write", zero.nvme.pipeline_write);
  }
  json.end_object();
  if (!zero.offload_param) return;
  begin_offload(json, "offload_param", zero, zero.nvme.parameters);
  if (zero.nvme.parameters) {
    json.member("buffer_count", zero.nvme.param_buffer_count);
    json.member("buffer_size", zero.nvme.param_buffer_size);
    json.member("max_in_cpu", zero.nvme.max_in_cpu);
  }
  json.end_object();
}

void write_queue(JsonWriter& json, const NvmeOptions& nvme) {
  json.key("aio");
  json.begin_object();
  json.member("block_size", nvme.block_size);
  json.member("intra_op_parallelism", nvme.intra_op_parallelism);
  json.end_object();
}

bool is_pure_bf16(const Plan& plan) {
  return zero_master_dtype(plan) == Dtype::BFloat16;
}

void write_precision(JsonWriter& json, const Plan& plan) {
  json.key("bf16");
  json.begin_object();
  json.member("enabled", zero_dtype(plan) == Dtype::BFloat16);
  if (is_pure_bf16(plan)) {
    json.member("bf16_master_weights_and_grads", true);
    json.member("bf16_optimizer_states", true);
  }
  json.end_object();
  if (zero_dtype(plan) != Dtype::Float16) return;
  json.key("fp16");
  json.begin_object();
  json.member("enabled", true);
  write_fp16_members(json, plan.zero.fp16);
  json.end_object();
}

/// Whether PyTorch's optimizer runs on the host.
bool has_torch_on_host(const Plan& plan) {
  return plan.cpu_offload && !optimizer_row(plan.optimizer).has_cpu_adam;
}

/// On the host DeepSpeed has an Adam of its own, and PyTorch a loop.
std::string optimizer_call(const Plan& plan) {
  if (!plan.cpu_offload) {
    return fmt::format("{}(model.parameters(), {})", python_optimizer(plan.optimizer),
                       python_optimizer_options(plan.optimizer));
  }
  Optimizer optimizer = plan.optimizer;
  optimizer.implementation = OptimizerImplementation::Foreach;
  const std::string options = python_optimizer_options(optimizer);
  if (has_torch_on_host(plan)) {
    return fmt::format("{}(model.parameters(), {})", python_optimizer(optimizer), options);
  }
  return fmt::format("deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), {}, adamw_mode={}{})", options,
                     optimizer_row(plan.optimizer).decouples_decay ? "True" : "False",
                     is_pure_bf16(plan) ? ", fp32_optimizer_states=False" : "");
}

std::vector<Duty> duties_of_engine(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  std::vector<Duty> duties = duties_of_model(config);
  for (const CheckpointMode mode : {CheckpointMode::Full, CheckpointMode::Selective}) {
    std::string words = checkpointed_as(plan.checkpointing, mode);
    if (!words.empty()) duties.emplace_back("checkpointing", std::move(words));
  }
  duties.emplace_back("optimizer", optimizer_call(plan) + ", handed to deepspeed.initialize with the model");
  duties.emplace_back("micro-batch", sizes_of(plan.dimensions) + " on each GPU");
  duties.emplace_back("loop", plan.accumulation > 1
                                  ? fmt::format("engine.backward(loss) and engine.step() for each of {} micro-batches; "
                                                "the engine divides the loss",
                                                plan.accumulation)
                                  : std::string("engine.backward(loss) and engine.step()"));
  return duties;
}

}  // namespace

std::string deepspeed_json(const TrainerConfig& config) {
  const Plan& plan = config.said.plan;
  JsonWriter json;
  json.begin_object();
  json.member("train_micro_batch_size_per_gpu", micro_batch_of(config.model));
  json.member("gradient_accumulation_steps", plan.accumulation);
  json.member("gradient_clipping", plan.optimizer.clip_grad_norm.value_or(0));
  write_precision(json, plan);
  json.key("zero_optimization");
  json.begin_object();
  const int stage = traits_of(plan).zero_stage;
  json.member("stage", stage);
  json.member("reduce_bucket_size", plan.zero.reduce_bucket_size);
  json.member("overlap_comm", plan.zero.overlap_comm);
  json.member("contiguous_gradients", true);
  json.member("reduce_scatter", true);
  if (stage == 3) {
    json.member("stage3_prefetch_bucket_size", plan.zero.prefetch_bucket_size);
    json.member("stage3_param_persistence_threshold", plan.zero.param_persistence_threshold);
    json.member("stage3_max_live_parameters", plan.zero.max_live_parameters);
    json.member("stage3_max_reuse_distance", plan.zero.max_reuse_distance);
    json.member("sub_group_size", plan.zero.sub_group_size);
    if (plan.zero.hpz_partition_size > 1) json.member("zero_hpz_partition_size", plan.zero.hpz_partition_size);
    if (plan.zero.quantized_weights) json.member("zero_quantized_weights", true);
    if (plan.zero.quantized_gradients) json.member("zero_quantized_gradients", true);
  } else {
    json.member("use_multi_rank_bucket_allreduce", true);
    json.member("round_robin_gradients", false);
  }
  if (plan.cpu_offload) write_offload(json, plan.zero);
  json.end_object();
  if (uses_drive(plan)) write_queue(json, plan.zero.nvme);
  json.member("zero_allow_untested_optimizer", true);
  // Otherwise DeepSpeed refuses PyTorch's optimizers on the host.
  if (has_torch_on_host(plan)) json.member("zero_force_ds_cpu_optimizer", false);
  json.end_object();
  return std::move(json).take();
}

std::vector<std::string> deepspeed_notes(const TrainerConfig& config) {
  std::vector<std::string> notes = {fmt::format("Predicted: {}. Start it with: {}", predicted_of(config.said.report),
                                                torchrun_of(config, "train.py")),
                                    "The script must do what the file cannot express:"};
  for (const auto& [subject, words] : duties_of_engine(config)) notes.push_back(fmt::format("{}: {}", subject, words));
  return notes;
}

}  // namespace fsdp::render
