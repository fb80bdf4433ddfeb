#include "core/plan/plan_json.h"

#include <fmt/format.h>

#include "core/base/name_ranges.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan_json_model.h"
#include "core/plan/plan_json_zero.h"
#include "core/plan/plan_names.h"
#include "core/plan/unit_rows.h"
#include "core/version.h"

namespace fsdp {

namespace {

// ---- Writing.

void write_optional(JsonWriter& writer, std::string_view key, const std::optional<Dtype>& dtype) {
  writer.key(key);
  if (dtype) {
    writer.value(name_of(*dtype));
  } else {
    writer.value(nullptr);
  }
}

template <class Number>
void write_optional(JsonWriter& writer, std::string_view key, const std::optional<Number>& number) {
  writer.key(key);
  if (number) {
    writer.value(*number);
  } else {
    writer.value(nullptr);
  }
}

void write_reshard(JsonWriter& writer, const ReshardAfterForward& reshard) {
  writer.key("reshard_after_forward");
  switch (reshard.kind) {
    case ReshardAfterForward::Kind::Default:
      return writer.value("default");
    case ReshardAfterForward::Kind::Always:
      return writer.value(true);
    case ReshardAfterForward::Kind::Never:
      return writer.value(false);
    case ReshardAfterForward::Kind::Smaller:
      return writer.value(reshard.world_size);
  }
}

void write_units(JsonWriter& writer, const std::vector<Unit>& units) {
  writer.key("units");
  writer.begin_array();
  for (const UnitRow& row : fold_units(units)) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("modules", row.modules);
    if (row.count > 1) writer.member("modules_per_unit", row.modules_per_unit);
    write_reshard(writer, row.reshard_after_forward);
    writer.end_object();
  }
  writer.end_array();
}

void write_checkpointing(JsonWriter& writer, const Checkpointing& checkpointing) {
  writer.key("activation_checkpointing");
  writer.begin_object();
  writer.key("modules");
  writer.begin_array();
  const auto& entries = checkpointing.entries;
  for (std::size_t i = 0; i < entries.size();) {
    std::vector<std::string> names;
    std::size_t end = i;
    for (; end < entries.size() && entries[end].mode == entries[i].mode; ++end) names.push_back(entries[end].module);
    for (const std::string& name : fold_names(names)) {
      writer.begin_object(JsonLayout::OneLine);
      writer.member("module", name);
      writer.member("mode", name_of(kCheckpointModeTable, entries[i].mode));
      writer.end_object();
    }
    i = end;
  }
  writer.end_array();
  std::vector<std::string> kept;
  for (const OpKind kind : checkpointing.selective_keep) kept.emplace_back(name_of(kind));
  writer.member("selective_keep", kept);
  writer.member("every_second_linear", checkpointing.every_second_linear);
  writer.member("early_stop", checkpointing.early_stop);
  if (checkpointing.offload_inputs) writer.member("offload_inputs", true);
  writer.end_object();
}

void write_optimizer(JsonWriter& writer, const Optimizer& optimizer) {
  writer.key("optimizer");
  writer.begin_object();
  writer.member("kind", name_of(kOptimizerKindTable, optimizer.kind));
  writer.member("implementation", name_of(kOptimizerImplementationTable, optimizer.implementation));
  writer.member("states", name_of(kOptimizerStatesTable, optimizer.states));
  writer.member("weight_decay", optimizer.weight_decay);
  writer.member("momentum", optimizer.momentum);
  write_optional(writer, "clip_grad_norm", optimizer.clip_grad_norm);
  if (optimizer.muon) {
    writer.key("muon");
    writer.begin_object();
    writer.member("nesterov", optimizer.muon->nesterov);
    writer.member("ns_steps", optimizer.muon->ns_steps);
    writer.member("steps_last", optimizer.muon->steps_last);
    writer.end_object();
  }
  writer.end_object();
}

void write_runtime(JsonWriter& writer, const Runtime& runtime) {
  writer.key("runtime");
  writer.begin_object();
  writer.member("name", name_of(kFrameworkTable, runtime.framework));
  writer.member("version", runtime.version);
  writer.member("flavor", runtime.flavor);
  writer.member("allocator_settings", runtime.allocator_settings);
  writer.key("implementations");
  writer.begin_object();
  const Implementations& use = runtime.implementations;
  writer.member("rms_norm", name_of(kRmsNormTable, use.rms_norm));
  writer.member("rotary", name_of(kRotaryTable, use.rotary));
  writer.member("attention", name_of(kAttentionBackendTable, use.attention));
  writer.member("loss", name_of(kLossTable, use.loss.kind));
  if (use.loss.chunks > 0) writer.member("loss_chunks", use.loss.chunks);
  writer.member("repeat_kv", use.repeat_kv);
  writer.member("upcast_logits", use.upcast_logits);
  writer.member("titan_attention", use.titan_attention);
  if (use.automodel_decoders) writer.member("automodel_decoders", true);
  if (use.lora_in_one_op) writer.member("lora_in_one_op", true);
  if (use.norm_in_float64) writer.member("norm_in_float64", true);
  writer.member("keep_logits", use.keep_logits);
  writer.member("float_logits", use.float_logits);
  writer.member("loss_after_root", use.loss_after_root);
  writer.member("use_cache", use.use_cache);
  if (use.padding_mask) writer.member("padding_mask", true);
  writer.member("prefer_cudnn_attention", use.prefer_cudnn_attention);
  writer.member("cudnn_allow_tf32", use.cudnn_allow_tf32);
  writer.member("matmul_allow_tf32", use.matmul_allow_tf32);
  writer.end_object();
  writer.key("quirks");
  writer.begin_object();
  const Quirks& quirks = runtime.quirks;
  writer.member("forward_all_gather_output_kept", quirks.forward_all_gather_output_kept);
  writer.member("last_gradient_kept_in_reduce", quirks.last_gradient_kept_in_reduce);
  writer.member("all_reduce_output_kept", quirks.all_reduce_output_kept);
  writer.member("clip_reduces_each_norm", quirks.clip_reduces_each_norm);
  writer.member("skip_collectives_of_one", quirks.skip_collectives_of_one);
  writer.member("cublaslt_workspace_bytes", quirks.cublaslt_workspace.count());
  writer.end_object();
  writer.end_object();
}

void write_ddp(JsonWriter& writer, const DdpOptions& ddp) {
  writer.key("ddp");
  writer.begin_object();
  write_optional(writer, "bucket_cap_mb", ddp.bucket_cap_mb);
  writer.member("gradient_as_bucket_view", ddp.gradient_as_bucket_view);
  writer.member("broadcast_buffers", ddp.broadcast_buffers);
  writer.member("find_unused_parameters", ddp.find_unused_parameters);
  writer.end_object();
}

void write_fsdp1(JsonWriter& writer, const Fsdp1Options& fsdp1) {
  writer.key("fsdp1");
  writer.begin_object();
  writer.member("backward_prefetch", name_of(kBackwardPrefetchTable, fsdp1.backward_prefetch));
  writer.member("forward_prefetch", fsdp1.forward_prefetch);
  writer.member("limit_all_gathers", fsdp1.limit_all_gathers);
  writer.member("use_orig_params", fsdp1.use_orig_params);
  write_optional(writer, "buffer_dtype", fsdp1.buffer_dtype);
  writer.member("cast_root_forward_inputs", fsdp1.cast_root_forward_inputs);
  writer.end_object();
}

void write_zero(JsonWriter& writer, const Plan& plan) {
  const ZeroOptions& zero = plan.zero;
  const bool cuts_parameters = traits_of(plan).zero_stage == 3;
  writer.key("zero");
  writer.begin_object();
  writer.member("reduce_bucket_size", zero.reduce_bucket_size);
  writer.member("overlap_comm", zero.overlap_comm);
  if (cuts_parameters) {
    writer.member("prefetch_bucket_size", zero.prefetch_bucket_size);
    writer.member("param_persistence_threshold", zero.param_persistence_threshold);
    writer.member("max_live_parameters", zero.max_live_parameters);
    writer.member("max_reuse_distance", zero.max_reuse_distance);
    writer.member("sub_group_size", zero.sub_group_size);
    writer.member("hpz_partition_size", zero.hpz_partition_size);
    if (zero.quantized_weights) writer.member("quantized_weights", true);
    if (zero.quantized_gradients) writer.member("quantized_gradients", true);
  }
  if (plan.cpu_offload) writer.member("pin_memory", zero.pin_memory);
  if (plan.cpu_offload && cuts_parameters) writer.member("offload_param", zero.offload_param);
  if (plan.cpu_offload && cuts_parameters) writer.member("offload_ratio", zero.offload_ratio);
  // Written where something is there alone.
  if (zero.nvme != NvmeOptions{}) {
    writer.key("nvme");
    writer.begin_object();
    write_nvme_members(writer, zero.nvme);
    writer.end_object();
  }
  if (zero_dtype(plan) == Dtype::Float16) {
    writer.key("fp16");
    writer.begin_object();
    write_fp16_members(writer, zero.fp16);
    writer.end_object();
  }
  writer.end_object();
}

}  // namespace

void write_plan_members(JsonWriter& writer, const Plan& plan) {
  writer.member("format_version", kPlanFormatVersion);
  writer.member("generator", fmt::format("fsdp-plan@{}", kVersion));
  writer.key("model");
  writer.begin_object();
  write_model_members(writer, plan);
  writer.end_object();

  writer.key("mesh");
  writer.begin_object(JsonLayout::OneLine);
  writer.member("replicate", plan.mesh.dp_replicate());
  writer.member("shard", plan.mesh.dp_shard());
  if (plan.mesh.ep != 1) writer.member("ep", plan.mesh.ep);
  writer.end_object();
  write_units(writer, plan.units);
  write_optional(writer, "parameter_dtype", plan.parameter_dtype);
  writer.key("mixed_precision");
  writer.begin_object();
  write_optional(writer, "param_dtype", plan.mixed_precision.param_dtype);
  write_optional(writer, "reduce_dtype", plan.mixed_precision.reduce_dtype);
  write_optional(writer, "output_dtype", plan.mixed_precision.output_dtype);
  writer.member("cast_forward_inputs", plan.mixed_precision.cast_forward_inputs);
  if (plan.mixed_precision.autocast) write_optional(writer, "autocast", plan.mixed_precision.autocast);
  if (plan.mixed_precision.float_outputs) writer.member("float_outputs", true);
  writer.end_object();
  write_checkpointing(writer, plan.checkpointing);
  writer.member("cpu_offload", plan.cpu_offload);
  writer.member("forward_prefetch", plan.forward_prefetch);
  writer.member("backward_prefetch", plan.backward_prefetch);
  // Written where they are there alone, as arguments of a framework are.
  if (plan.reduce_scatter_buffers != 1) writer.member("reduce_scatter_buffers", plan.reduce_scatter_buffers);
  if (plan.separate_reduce_scatter_group) writer.member("separate_reduce_scatter_group", true);
  if (plan.cuda_graphs) writer.member("cuda_graphs", true);
  writer.member("accumulation", plan.accumulation);
  writer.member("sync_every_micro_batch", plan.sync_every_micro_batch);
  write_optimizer(writer, plan.optimizer);
  writer.member("initialization", name_of(kInitializationTable, plan.initialization));
  write_runtime(writer, plan.runtime);
  switch (traits_of(plan).options) {
    case OptionsMember::None:
      break;
    case OptionsMember::Fsdp1:
      return write_fsdp1(writer, plan.fsdp1);
    case OptionsMember::Ddp:
      return write_ddp(writer, plan.ddp);
    case OptionsMember::Zero:
      return write_zero(writer, plan);
  }
}

}  // namespace fsdp
